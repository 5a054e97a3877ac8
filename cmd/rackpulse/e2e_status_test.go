// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestE2EStatusAgents asks for a rack while there is no Prometheus: the screen
// comes from the agents themselves, one of which is dead, through the discovery
// of the registry, and through the site file once that is gone, too.
func TestE2EStatusAgents(t *testing.T) {
	t.Parallel()
	s := newSmall(t, "")
	simulate := "simulate: {site_file: site.yml}\nregistry: {addresses: ['" + s.grpc + "']}\n"
	run := func(name, text string) {
		s.write(name+".yml", text+simulate)
		s.urls[name] = "http://" + freePort(t)
		s.agents[name] = start(t, s.dir, name, binary(t), "agent", "--config.file="+name+".yml", "--simulate", "--web.listen-address="+strings.TrimPrefix(s.urls[name], "http://"))
	}
	run("gpu001", "node: gpu001\n")
	run("gpu002", "node: gpu002\n")
	run("facility1", "node: facility1\ngpu: {source: none}\n")
	for _, n := range []string{"gpu001", "gpu002"} {
		s.awaitState(n, "READY", 30*time.Second)
	}
	away := freePort(t) // nobody listens there
	status := func(args ...string) *screen {
		t.Helper()
		code, out, errors := say(t, append([]string{"status", "--json", "--prometheus.url=http://" + away}, args...)...)
		st := &screen{}
		if err := json.Unmarshal([]byte(out), st); code != 0 || err != nil {
			t.Fatalf("exit status %d, %v: %s%s", code, err, out, errors)
		}
		return st
	}
	var st *screen
	s.eventually(60*time.Second, "all that the agents tell is on the screen", func() error {
		st = status("r01", "--registry.url="+s.stack.registry)
		if len(st.Nodes) != 3 || len(st.Nodes[0].GPUs) != 8 || len(st.Nodes[1].GPUs) != 8 || st.Nodes[0].GPUs[0].Celsius == nil || st.PowerWatts == nil || len(st.Inlet) == 0 || st.Inlet[0].Celsius == nil {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	if st.Nodes[0].LeaseState != "READY" || st.Nodes[2].LeaseState != "" || !strings.Contains(st.From, "connection refused") || len(st.Problems) > 0 {
		t.Errorf("leases %q and %q, from %q, problems %q", st.Nodes[0].LeaseState, st.Nodes[2].LeaseState, st.From, st.Problems)
	}
	one := st.Nodes[0].GPUs[3].UUID
	if st := status(one, "--registry.url="+s.stack.registry); len(st.Nodes) != 1 || len(st.Nodes[0].GPUs) != 1 || st.Nodes[0].GPUs[0].UUID != one {
		t.Errorf("one GPU: %+v", st)
	}
	s.agents["gpu002"].end()
	st = status("r01", "--registry.url="+s.stack.registry)
	if len(st.Problems) != 1 || !strings.Contains(st.Problems[0], strings.TrimPrefix(s.urls["gpu002"], "http://")) || len(st.Nodes[0].GPUs) != 8 || len(st.Nodes[1].GPUs) != 0 {
		t.Errorf("after gpu002 died: problems %q, %d and %d GPUs", st.Problems, len(st.Nodes[0].GPUs), len(st.Nodes[1].GPUs))
	}
	if code, out, _ := say(t, "status", "gpu001", "--prometheus.url=http://"+away, "--registry.url="+s.stack.registry); code != 0 || !holdsAll(out, []string{"from the agents themselves, without alerts", "READY", "gpu001"}) {
		t.Errorf("exit status %d:\n%s", code, out)
	}
	if code, _, errors := say(t, "status", "gpu002", "--prometheus.url=http://"+away, "--site.file="+s.dir+"/site.yml"); code != 1 || !strings.Contains(errors, "gpu002:9400") {
		t.Errorf("neither registry nor agent: exit status %d: %s", code, errors)
	}
}
