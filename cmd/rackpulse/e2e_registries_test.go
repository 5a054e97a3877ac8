// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/lease"
	"github.com/rackpulse/rackpulse/registry"
	"github.com/rackpulse/rackpulse/testtool"
)

// fleetNodes beat to the three registries; they stand in 25 racks.
const fleetNodes = 200

// trio are three registries over one etcd, for racks of eight nodes n0000 and up.
type trio struct {
	*small
	nodes     int
	etcdArgs  []string
	etcd      *process
	web, beat [3]string
	regs      [3]*process
	log       *callLog
}

// startTrio starts them; beats are taken on the address host, and lease is that
// part of their configuration.
func startTrio(t *testing.T, nodes int, host, lease string) *trio {
	t.Helper()
	c := &trio{small: prepareSmall(t, ""), nodes: nodes, log: &callLog{}}
	hook := httptest.NewServer(c.log)
	t.Cleanup(hook.Close)
	client, peer := "http://"+freePort(t), "http://"+freePort(t)
	c.etcdArgs = []string{"--data-dir=etcd", "--listen-client-urls=" + client, "--advertise-client-urls=" + client, "--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer, "--log-level=error"}
	c.startEtcd()
	c.write("site.yml", rackSite(nodes/8))
	c.write("key", "0123456789")
	c.write("token", "operator-0123456789\n")
	c.write("tokens.yml", "- {token: operator-0123456789, role: operate, name: eve}\n- {token: reader-0123456789, role: read, name: prom}\n")
	for i := range c.regs {
		c.web[i], c.beat[i] = freePort(t), host+strings.TrimPrefix(freePort(t), "127.0.0.1")
		c.write(fmt.Sprintf("reg%d.yml", i), fmt.Sprintf("site_file: site.yml\nadvertise: %q\nstore: {kind: etcd, endpoints: [%q]}\ngrpc: {listen: %q, advertise: %q, allow_insecure: true}\nauth: {tokens_file: tokens.yml}\n",
			c.web[i], client, c.beat[i], c.beat[i])+
			"lease: "+lease+"\n"+
			"actions: {mode: hard, witness: none, max_per_minute: 600, targets: [{action: webhook, url: '"+hook.URL+"', secret_file: key}]}\n")
		c.startReg(i)
	}
	return c
}

func (c *trio) startEtcd() {
	c.etcd = start(c.t, c.dir, "etcd", testtool.Binary(c.t, filepath.Join(testtool.CacheDir(), "etcd-v3.7.3", "server")), c.etcdArgs...)
}

func (c *trio) startReg(i int) {
	c.regs[i] = start(c.t, c.dir, fmt.Sprintf("reg%d", i), binary(c.t), "registry", fmt.Sprintf("--config.file=reg%d.yml", i), "--web.listen-address="+c.web[i])
}

// leader waits until one of the registries is ready and points the client there.
func (c *trio) leader(limit time.Duration) int {
	c.t.Helper()
	lead := -1
	c.eventually(limit, "a registry leads", func() error {
		for i := range c.regs {
			if answers("http://"+c.web[i]+"/-/ready") == nil {
				lead = i
				return nil
			}
		}
		return fmt.Errorf("none is ready")
	})
	c.stack.registry = "http://" + c.web[lead]
	return lead
}

// fleet starts the agents' own beaters, each with the three addresses. change, if
// set, changes one before it starts.
func (c *trio) fleet(interval time.Duration, change func(n int, b *lease.Beater)) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	c.t.Cleanup(func() { cancel(); wg.Wait() })
	for n := range c.nodes {
		b := &lease.Beater{
			Config:    lease.BeaterConfig{Node: fmt.Sprintf("n%04d", n), Addresses: []string{c.beat[n%3], c.beat[(n+1)%3], c.beat[(n+2)%3]}, BeatInterval: interval},
			Inventory: func() lease.Inventory { return lease.Inventory{Status: lease.Fresh, At: time.Now()} },
		}
		if change != nil {
			change(n, b)
		}
		wg.Go(func() {
			if err := b.Run(ctx); err != nil {
				c.t.Error(err)
			}
		})
	}
}

// allReady waits until all nodes are READY at the leader.
func (c *trio) allReady(limit time.Duration) {
	c.t.Helper()
	c.eventually(limit, "all are READY", func() error {
		page, err := getURL(http.DefaultClient, c.stack.registry+"/metrics")
		if err != nil {
			return err
		}
		if n := len(series(page, "rackpulse_lease_state", `state="READY"`)); n != c.nodes {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
}

// unharmed holds that no lease was lost and nothing was done to a node.
func (c *trio) unharmed(what string) {
	c.t.Helper()
	out := c.operator("audit", "--limit=10000")
	if strings.Contains(out, "-> EXPIRED") || strings.Contains(out, "-> SUSPECT") {
		c.t.Errorf("%s: leases were lost:\n%s", what, tail(out, 20))
	}
	if got := c.log.got(); len(got) != 0 {
		c.t.Errorf("%s: %d calls, such as %q", what, len(got), got[0])
	}
}

// operator runs the program with a token that may operate.
func (c *trio) operator(args ...string) string {
	c.t.Helper()
	return c.cli(append(args, "--token-file="+filepath.Join(c.dir, "token"))...)
}

// following holds what a registry answers that does not lead.
func (c *trio) following(i, lead int) {
	c.t.Helper()
	c.eventually(10*time.Second, "the follower names the leader", func() error {
		_, err := getURL(http.DefaultClient, "http://"+c.web[i]+"/-/ready")
		if err == nil || !strings.Contains(err.Error(), "503") || !strings.Contains(err.Error(), "the leader is "+c.web[lead]) {
			return fmt.Errorf("it says %v", err)
		}
		return nil
	})
	page, err := getURL(http.DefaultClient, "http://"+c.web[i]+"/metrics")
	if err != nil || strings.Contains(page, "rackpulse_lease_") || strings.Contains(page, "rackpulse_node_info") {
		c.t.Errorf("the follower shows leases, or nothing (%v)", err)
	}
	// Readers and operators are sent on; the token goes to the registries given only.
	nodes := []string{"nodes", "--registry.url=http://" + c.web[i], "--token-file=" + filepath.Join(c.dir, "token")}
	out, err := exec.Command(binary(c.t), nodes...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "is not leading; the leader is "+c.web[lead]+", which is none of the given registries") {
		c.t.Errorf("nodes of the follower: %s", out)
	}
	out, err = exec.Command(binary(c.t), append(nodes, "--registry.url=http://"+c.web[lead])...).CombinedOutput()
	if err != nil || strings.Count(string(out), "\n") != c.nodes+1 {
		c.t.Errorf("nodes of the follower, with its leader: %v, %s", err, tail(string(out), 3))
	}
}

// TestE2ERegistries takes etcd and leaders away from 200 nodes with three
// registries: nobody is suspected, lost or acted on.
func TestE2ERegistries(t *testing.T) {
	afterMeasuring(t)
	c := startTrio(t, fleetNodes, "127.0.0.1", "{beat_interval: 2s, ttl: 10s, cooldown: 10s}")
	lead := c.leader(20 * time.Second)
	c.fleet(chaosBeat, func(n int, b *lease.Beater) {
		hello := lease.Hello{Roles: []string{lease.RoleGPU}, Advertise: fmt.Sprintf("192.0.2.%d:9400", n)}
		b.Hello = func() lease.Hello { return hello }
	})
	c.allReady(40 * time.Second)
	c.following((lead+1)%3, lead)

	// etcd stands still for 5 s, then dies and is started again.
	c.etcd.signal(syscall.SIGSTOP)
	time.Sleep(5 * time.Second)
	c.etcd.signal(syscall.SIGCONT)
	time.Sleep(4 * time.Second) // the sessions are renewed each 3.3 s
	c.etcd.signal(syscall.SIGKILL)
	<-c.etcd.done
	c.startEtcd()
	time.Sleep(5 * time.Second)
	if now := c.leader(30 * time.Second); now != lead {
		t.Logf("registry %d leads, it was %d: this machine was too busy to keep the session", now, lead)
		<-c.regs[lead].done
		c.startReg(lead)
		lead = now
	}
	c.allReady(40 * time.Second)
	c.operator("breaker", "hold", "--reason=is etcd back?") // returns when it is written
	c.unharmed("etcd away")

	// The leader is killed.
	killed := time.Now()
	c.regs[lead].signal(syscall.SIGKILL)
	<-c.regs[lead].done
	second := c.leader(40 * time.Second)
	leads := time.Since(killed)
	// What must not be lost is there at once: the targets, and the hold.
	if n := c.targets(); n != fleetNodes+1 {
		t.Errorf("%d targets as soon as another registry led, want those of %d nodes and itself", n, fleetNodes)
	}
	if out := c.operator("breaker"); !strings.Contains(out, "is etcd back?") {
		t.Errorf("the hold of all actions did not survive: %s", out)
	}
	c.allReady(40 * time.Second)
	t.Logf("after kill -9 of the leader: another one led after %.1f s, all %d nodes were READY after %.1f s", leads.Seconds(), fleetNodes, time.Since(killed).Seconds())
	c.operator("breaker", "reset", "manual", "--reason=it is")
	c.unharmed("leader killed")
	c.startReg(lead)
	c.following(lead, second)

	// The next leader stands still for longer than its session: it ends itself.
	c.regs[second].signal(syscall.SIGSTOP)
	stopped := time.Now()
	c.awaitOther(second, 40*time.Second)
	c.allReady(40 * time.Second)
	t.Logf("after SIGSTOP of the leader: another one led and all were READY after %.1f s", time.Since(stopped).Seconds())
	c.regs[second].signal(syscall.SIGCONT)
	c.deposed(second)
	c.unharmed("leader stopped")

	// The ledger goes into a file and from there into a bolt.
	file := filepath.Join(c.dir, "backup")
	t.Logf("backup: %s", strings.TrimSpace(c.operator("registry", "backup", file)))
	c.write("bolt.yml", "site_file: site.yml\nstore: {dir: bolt}\ngrpc: {listen: '127.0.0.1:0'}\n")
	cmd := exec.Command(binary(t), "registry", "restore", file, "--config.file=bolt.yml")
	cmd.Dir = c.dir
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), fmt.Sprintf("restored %d nodes", fleetNodes)) {
		t.Errorf("restore: %v, %s", err, out)
	}
	if out := refuses(t, c.dir, "registry", "restore", file, "--config.file=bolt.yml"); !strings.Contains(out, "the ledger is not empty") {
		t.Errorf("restore again: %s", out)
	}
}

// targets is how many targets discovery names.
func (c *trio) targets() int {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.stack.registry+"/api/v1/sd/agents", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer reader-0123456789")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	var groups []registry.TargetGroup
	if err := json.NewDecoder(resp.Body).Decode(&groups); err != nil {
		c.t.Fatalf("targets: %s, %v", resp.Status, err)
	}
	return len(groups)
}

// deposed waits until a registry that led has ended, and said why.
func (c *trio) deposed(i int) {
	c.t.Helper()
	c.eventually(20*time.Second, "the former leader ends", func() error {
		select {
		case <-c.regs[i].done:
			return nil
		default:
			return fmt.Errorf("it runs")
		}
	})
	if len(c.regs[i].said("leadership lost")) == 0 {
		c.t.Error("the former leader did not say why it ended")
	}
}

// awaitOther is leader while one registry stands still.
func (c *trio) awaitOther(stopped int, limit time.Duration) {
	c.t.Helper()
	address := c.web[stopped]
	c.web[stopped] = "127.0.0.1:1" // nobody answers there
	defer func() { c.web[stopped] = address }()
	c.leader(limit)
}
