// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/rackpulse/rackpulse/lease/leasepb"
	"github.com/rackpulse/rackpulse/ledger"
	"github.com/rackpulse/rackpulse/site"
)

// childEnv makes the test binary a registry of its own: "fast" with small
// numbers, "ours" with the defaults, "naive" the plain server it is measured
// against.
const childEnv = "RACKPULSE_LEASE_TEST_CHILD"

// childDir and childAddress are where the child keeps its ledger and listens; empty:
// in a folder of its own, on any port.
const (
	childDir     = "RACKPULSE_LEASE_TEST_DIR"
	childAddress = "RACKPULSE_LEASE_TEST_ADDRESS"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(childEnv); kind != "" {
		if err := runChild(kind); err != nil {
			fmt.Println("error:", err)
		}
		return
	}
	m.Run()
}

// childStats is what a child tells of itself on request.
type childStats struct {
	CPU     float64 // seconds
	RSS     int64   // bytes, garbage given back
	File    int64   // bytes of RSS that are pages of files: the program, the ledger
	Heap    uint64  // bytes in use
	Stack   uint64  // bytes
	Beats   uint64
	States  map[string]int
	Suspect uint64 // transitions to SUSPECT
	Expired uint64 // transitions to EXPIRED
	Pauses  uint64
}

// runChild serves until its standard input ends, and answers each line with its
// stats.
func runChild(kind string) error {
	ln, err := net.Listen("tcp", cmp.Or(os.Getenv(childAddress), "127.0.0.1:0"))
	if err != nil {
		return err
	}
	dir := os.Getenv(childDir)
	if dir == "" {
		if dir, err = os.MkdirTemp("", "lease"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	stats := naiveChild(ln)
	if kind != "naive" {
		store, err := ledger.OpenBolt(dir, ledger.BoltOptions{})
		if err != nil {
			return err
		}
		defer store.Close()
		cfg := Config{}
		if kind == "fast" {
			cfg = fastConfig
		}
		if stats, err = ourChild(ln, cfg, store); err != nil {
			return err
		}
	}
	fmt.Println(ln.Addr())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		s := stats()
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
			return err
		}
		s.CPU = time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds()
		debug.FreeOSMemory()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		s.Heap, s.Stack = m.HeapAlloc, m.StackInuse
		statm, _ := os.ReadFile("/proc/self/statm")
		fields := strings.Fields(string(statm))
		_, _ = fmt.Sscan(fields[1], &s.RSS)
		_, _ = fmt.Sscan(fields[2], &s.File)
		s.RSS *= int64(os.Getpagesize())
		s.File *= int64(os.Getpagesize())
		line, _ := json.Marshal(s)
		fmt.Println(string(line))
	}
	return nil
}

var fastConfig = Config{BeatInterval: 100 * time.Millisecond, TTL: time.Second, Cooldown: 200 * time.Millisecond}

// ourChild runs our server for nodes n00000 and up.
func ourChild(ln net.Listener, cfg Config, store ledger.Store) (func() childStats, error) {
	s := &site.Site{NodeClasses: []site.NodeClass{{ID: "h100", GPUs: 8}}}
	for i := range 10000 {
		s.Nodes = append(s.Nodes, site.Node{ID: fmt.Sprintf("n%05d", i), Class: "h100"})
	}
	srv, err := NewServer(cfg, Deps{Site: func() *site.Site { return s }, Store: store})
	if err != nil {
		return nil, err
	}
	go func() { _ = srv.Run(context.Background(), ln) }()
	return func() childStats {
		out := childStats{Beats: srv.beats.Load(), States: map[string]int{}}
		for _, n := range srv.Nodes() {
			out.States[n.State.String()]++
		}
		t, _ := srv.totals()
		for move, count := range t.moves {
			switch move[1] {
			case Suspect:
				out.Suspect += count
			case Expired:
				out.Expired += count
			}
		}
		out.Pauses = t.pauses
		return out
	}, nil
}

// naiveServer is what one would write first: gRPC's defaults, a map of nodes
// with a mutex, the list compared, no states.
type naiveServer struct {
	leasepb.UnimplementedLeaseServer
	mu    sync.Mutex
	nodes map[string]*naiveNode
	beats uint64
}

type naiveNode struct {
	last time.Time
	gpus []string
}

func (s *naiveServer) Heartbeat(stream grpc.BidiStreamingServer[leasepb.HeartbeatRequest, leasepb.HeartbeatReply]) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		s.mu.Lock()
		n := s.nodes[m.GetNodeId()]
		if n == nil {
			n = &naiveNode{}
			s.nodes[m.GetNodeId()] = n
		}
		n.last, n.gpus = time.Now(), m.GetGpuUuids()
		s.beats++
		s.mu.Unlock()
		if err := stream.Send(&leasepb.HeartbeatReply{TtlMs: 30000}); err != nil {
			return err
		}
	}
}

func naiveChild(ln net.Listener) func() childStats {
	s := &naiveServer{nodes: map[string]*naiveNode{}}
	gs := grpc.NewServer(grpc.MaxConcurrentStreams(1 << 20))
	leasepb.RegisterLeaseServer(gs, s)
	if os.Getenv(childEnv) == "naive" {
		go func() { _ = gs.Serve(ln) }()
	}
	return func() childStats {
		s.mu.Lock()
		defer s.mu.Unlock()
		return childStats{Beats: s.beats}
	}
}

// child is a running child process.
type child struct {
	t       testing.TB
	cmd     *exec.Cmd
	address string
	ask     func() childStats
}

// startChild starts one; env are more variables of its environment.
func startChild(t testing.TB, kind string, env ...string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), childEnv+"="+kind), env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	out := bufio.NewScanner(pipe)
	line := func() string {
		if !out.Scan() {
			t.Fatalf("child ended: %v", out.Err())
		}
		return out.Text()
	}
	return &child{t: t, cmd: cmd, address: line(), ask: func() childStats {
		fmt.Fprintln(in, "stats")
		var s childStats
		if text := line(); json.Unmarshal([]byte(text), &s) != nil {
			t.Fatalf("child says %q", text)
		}
		return s
	}}
}

// stream opens a connection of its own to the child, with one stream.
func (c *child) stream() (*grpc.ClientConn, leasepb.Lease_HeartbeatClient) {
	conn, err := grpc.NewClient("passthrough:///"+c.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithReadBufferSize(1024), grpc.WithWriteBufferSize(1024), grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window))
	if err != nil {
		c.t.Fatal(err)
	}
	stream, err := leasepb.NewLeaseClient(conn).Heartbeat(context.Background())
	if err != nil {
		c.t.Fatal(err)
	}
	return conn, stream
}

// TestStoppedRegistryExpiresNobody stops a real registry process for longer than
// the TTL while its nodes beat on.
func TestStoppedRegistryExpiresNobody(t *testing.T) {
	c := startChild(t, "fast")
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	const nodes = 20
	for i := range nodes {
		conn, stream := c.stream()
		wg.Go(func() {
			defer conn.Close()
			ticker := time.NewTicker(fastConfig.BeatInterval)
			defer ticker.Stop()
			m := &leasepb.HeartbeatRequest{NodeId: fmt.Sprintf("n%05d", i), GpuUuids: uuids(i*8, 8)}
			for ctx.Err() == nil {
				if err := stream.Send(m); err != nil {
					t.Errorf("beat of %s: %v", m.GetNodeId(), err)
					return
				}
				<-ticker.C
			}
		})
	}
	await := func(what string, ok func(childStats) bool) {
		t.Helper()
		var s childStats
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if s = c.ask(); ok(s) {
				return
			}
		}
		t.Fatalf("never %s: %+v", what, s)
	}
	await("ready", func(s childStats) bool { return s.States["READY"] == nodes })
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1500 * time.Millisecond)
	if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await("aware of the pause", func(s childStats) bool { return s.Pauses == 1 })
	await("ready again", func(s childStats) bool { return s.States["READY"] == nodes })
	if s := c.ask(); s.Expired != 0 {
		t.Errorf("%d nodes expired: %+v", s.Expired, s)
	}
	cancel()
	wg.Wait()
}
