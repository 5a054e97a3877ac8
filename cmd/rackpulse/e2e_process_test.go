// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is one real process of the stack.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// start runs a program until the test ends; its output goes to a file that is
// shown when the test fails.
func start(t *testing.T, dir, name, program string, args ...string) *process {
	t.Helper()
	return startWith(t, dir, name, nil, program, args...)
}

// startWith is start for a command that change prepares; nil: as it is.
func startWith(t *testing.T, dir, name string, change func(*exec.Cmd), program string, args ...string) *process {
	t.Helper()
	p := &process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command(program, args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if change != nil {
		change(p.cmd)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // the tests look at what the process did, not at its status
		_ = out.Close()
	}()
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.done
		if t.Failed() {
			data, _ := os.ReadFile(p.log)
			t.Logf("%s, last lines:\n%s", name, tail(string(data), 15))
		}
	})
	return p
}

func (p *process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// end asks the process to stop and waits until it has.
func (p *process) end() {
	p.signal(syscall.SIGTERM)
	<-p.done
}

// said returns the lines of the process's output that hold all of the texts.
func (p *process) said(texts ...string) []string {
	data, _ := os.ReadFile(p.log) // not there: nothing said
	var out []string
	for line := range strings.Lines(string(data)) {
		if holdsAll(line, texts) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

func holdsAll(s string, texts []string) bool {
	for _, text := range texts {
		if !strings.Contains(s, text) {
			return false
		}
	}
	return true
}

func tail(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// freePort reserves a port of this machine for a moment.
func freePort(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// hook receives what Alertmanager sends.
type hook struct {
	url string
	mu  sync.Mutex
	got []notification
}

// notification is one message to a receiver, in Alertmanager's webhook format.
type notification struct {
	At       time.Time
	Receiver string `json:"receiver"`
	Status   string `json:"status"`
	Alerts   []struct {
		Status      string            `json:"status"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"alerts"`
}

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	h.url = "http://" + ln.Addr().String()
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close() })
	return h
}

// ServeHTTP keeps the webhook's messages; Slack, PagerDuty and the dead-man's
// switch are taken and left alone.
func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if r.URL.Path != "/webhook" {
		fmt.Fprint(w, "ok")
		return
	}
	n := notification{At: time.Now()}
	if err := json.Unmarshal(data, &n); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	h.got = append(h.got, n)
	h.mu.Unlock()
}

// firing lists the alerts of which receivers ending in suffix were told, by
// alert name, each label set once.
func (h *hook) firing(suffix string) map[string][]map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[string][]map[string]string{}
	seen := map[string]bool{}
	for _, n := range h.got {
		if !strings.HasSuffix(n.Receiver, suffix) {
			continue
		}
		for _, a := range n.Alerts {
			key := fmt.Sprint(a.Labels)
			if a.Status != "firing" || seen[key] {
				continue
			}
			seen[key] = true
			whole := map[string]string{}
			for k, v := range a.Annotations {
				whole["annotation_"+k] = v
			}
			for k, v := range a.Labels {
				whole[k] = v
			}
			out[a.Labels["alertname"]] = append(out[a.Labels["alertname"]], whole)
		}
	}
	return out
}
