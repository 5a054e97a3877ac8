// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rackpulse/rackpulse/testtool"
)

// wires are a network of this machine's own: a bridge that the registries listen
// on, and wires to it from other network namespaces.
type wires struct {
	t    *testing.T
	host string // the bridge's address, or that of the loopback
	// name is the bridge's; empty: namespaces are not to be had, and the wires are
	// cut in the clients' connections instead.
	name string
	n    int
}

// newWires makes the bridge. It needs root's rights over networks and ip of
// iproute2.
func newWires(t *testing.T) *wires {
	t.Helper()
	w := &wires{t: t, host: "127.0.0.1"}
	if !mayNetwork() {
		t.Log("CAP_NET_ADMIN and CAP_SYS_ADMIN are not both there: what is cut here are the clients' connections, not their networks")
		return w
	}
	if _, err := exec.LookPath("ip"); err != nil {
		testtool.Missing(t, "ip of iproute2 is not installed; run 'make deps'")
	}
	// A network for benchmarks (RFC 2544), and names that a second run beside this
	// one does not use.
	w.name, w.host = fmt.Sprintf("rpb%d", os.Getpid()%10000), fmt.Sprintf("198.18.%d.1", os.Getpid()%256)
	w.ip("link add name " + w.name + " type bridge")
	t.Cleanup(func() { w.ip("link del " + w.name) })
	w.ip("addr add " + w.host + "/24 dev " + w.name)
	w.ip("link set " + w.name + " up")
	return w
}

// mayNetwork says whether this process may make network namespaces.
func mayNetwork() bool {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	_, caps, _ := strings.Cut(string(data), "\nCapEff:")
	var set uint64
	if _, err := fmt.Sscanf(caps, "%x", &set); err != nil {
		return false
	}
	const both = 1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_SYS_ADMIN
	return set&both == both
}

func (w *wires) ip(args string) {
	w.t.Helper()
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		w.t.Fatalf("ip %s: %v: %s", args, err, out)
	}
}

// wire leads from one namespace to the bridge.
type wire struct {
	*wires
	end string   // of the bridge's side
	ns  *os.File // nil: there is no namespace
	off atomic.Bool
}

// lay makes a namespace and its wire.
func (w *wires) lay() *wire {
	w.t.Helper()
	w.n++
	out := &wire{wires: w}
	if w.name == "" {
		return out
	}
	ns, inside := fmt.Sprintf("%s-%d", w.name, w.n), fmt.Sprintf("%s%c", w.name, 'a'+w.n)
	out.end = fmt.Sprintf("%s%c", w.name, 'A'+w.n)
	w.ip("netns add " + ns)
	w.t.Cleanup(func() { w.ip("netns del " + ns) }) // the wire goes with it
	w.ip("link add " + out.end + " type veth peer name " + inside + " netns " + ns)
	w.ip("link set " + out.end + " master " + w.name + " up")
	w.ip(fmt.Sprintf("-n %s addr add %s.%d/24 dev %s", ns, w.host[:strings.LastIndexByte(w.host, '.')], w.n+1, inside))
	w.ip("-n " + ns + " link set " + inside + " up")
	f, err := os.Open("/run/netns/" + ns)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = f.Close() })
	out.ns = f
	return out
}

// cut pulls the wire out, or puts it in again: what is sent meanwhile is lost, and
// nobody is told.
func (w *wire) cut(off bool) {
	w.t.Helper()
	w.off.Store(off)
	if w.end != "" {
		w.ip("link set " + w.end + map[bool]string{true: " down", false: " up"}[off])
	}
}

// dial connects from the namespace. The socket belongs to the namespace that its
// thread was in when it was made; the thread is back before it waits.
func (w *wire) dial(ctx context.Context, address string) (net.Conn, error) {
	if w.ns == nil {
		return w.dialQuiet(ctx, address)
	}
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err == nil {
		err = unix.Setns(int(w.ns.Fd()), unix.CLONE_NEWNET)
	}
	if err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	defer own.Close()
	away := true
	back := func() error {
		if !away {
			return nil
		}
		if err := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); err != nil {
			return err // the thread stays locked, and ends with its goroutine
		}
		away = false
		runtime.UnlockOSThread()
		return nil
	}
	d := net.Dialer{Control: func(string, string, syscall.RawConn) error { return back() }}
	conn, err := d.DialContext(ctx, "tcp", address)
	if away && err == nil {
		err = fmt.Errorf("dial %s: the thread is still in the namespace", address)
	}
	return conn, err
}

// dialQuiet is dial where there are no namespaces.
func (w *wire) dialQuiet(ctx context.Context, address string) (net.Conn, error) {
	if w.off.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &quietConn{Conn: conn, wire: w}, nil
}

// quietConn loses what is sent while its wire is cut, and all that follows: it
// never makes sense again.
type quietConn struct {
	net.Conn
	wire *wire
	lost atomic.Bool
}

// Write implements net.Conn.
func (q *quietConn) Write(p []byte) (int, error) {
	if q.lost.Load() || q.wire.off.Load() {
		q.lost.Store(true)
		return len(p), nil
	}
	return q.Conn.Write(p)
}
