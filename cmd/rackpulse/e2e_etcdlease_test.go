// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"context"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/rackpulse/rackpulse/testtool"
)

const (
	// etcdClients share the leases; each keeps its own alive on one stream.
	etcdClients = 20
	// etcdKeep is how often a lease is kept alive, a third of its time to live.
	etcdKeep = chaosTTL / 3
)

// etcdLeases are 2,000 leases of an etcd that are kept alive all the time, what
// one would have that gave each node a lease there.
type etcdLeases struct {
	t      *testing.T
	cmd    *exec.Cmd
	client *clientv3.Client
	ids    []clientv3.LeaseID
}

func startEtcdLeases(t *testing.T) *etcdLeases {
	t.Helper()
	cmd, url, err := testtool.StartEtcd(testtool.EtcdProgram(t), t.TempDir(), "http")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	e := &etcdLeases{t: t, cmd: cmd}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	var clients []*clientv3.Client
	for range etcdClients {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	e.client = clients[0]
	var mu sync.Mutex
	var granting sync.WaitGroup
	for _, c := range clients {
		granting.Go(func() {
			mine := make([]clientv3.LeaseID, 0, chaosNodes/etcdClients)
			for range chaosNodes / etcdClients {
				resp, err := c.Grant(ctx, int64(chaosTTL.Seconds()))
				if err != nil {
					t.Error(err)
					return
				}
				mine = append(mine, resp.ID)
			}
			mu.Lock()
			e.ids = append(e.ids, mine...)
			mu.Unlock()
			wg.Go(func() { keepAlive(ctx, c, mine) })
		})
	}
	granting.Wait()
	if n := e.lost(); n != 0 || len(e.ids) != chaosNodes {
		t.Fatalf("%d of %d leases lost before it began", n, len(e.ids))
	}
	return e
}

// keepAlive keeps leases alive on one stream until ctx ends. Unlike the official
// client it never gives up by itself: the requests wait while etcd stands still.
func keepAlive(ctx context.Context, c *clientv3.Client, ids []clientv3.LeaseID) {
	stream, err := pb.NewLeaseClient(c.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return
	}
	go func() {
		for {
			if _, err := stream.Recv(); err != nil {
				return
			}
		}
	}()
	tick := time.NewTicker(etcdKeep)
	defer tick.Stop()
	for {
		for _, id := range ids {
			if stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}) != nil {
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (e *etcdLeases) signal(sig syscall.Signal) { _ = e.cmd.Process.Signal(sig) }

// lost is how many of the leases etcd does not know any more.
func (e *etcdLeases) lost() int {
	e.t.Helper()
	resp, err := e.client.Leases(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	known := make([]clientv3.LeaseID, 0, len(resp.Leases))
	for _, l := range resp.Leases {
		known = append(known, l.ID)
	}
	slices.Sort(known)
	n := 0
	for _, id := range e.ids {
		if _, ok := slices.BinarySearch(known, id); !ok {
			n++
		}
	}
	return n
}
