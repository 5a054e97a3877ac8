// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/testtool"
)

// TestMain lets more tests run at one time than there are cores: they wait for
// leases and back-offs most of the time.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// measured are the tests that time scrapes.
var measured sync.WaitGroup

// measuring makes a test parallel, but for the five halls of the scenarios: that
// ninety processes start at once is a load that no node has.
func measuring(t *testing.T) {
	measured.Add(1)
	t.Cleanup(measured.Done)
	t.Parallel()
}

// afterMeasuring makes a test parallel once the measured ones are done.
func afterMeasuring(t *testing.T) {
	t.Parallel()
	measured.Wait()
}

// smallSite has two racks, each with a PDU and two sensors, nodes with eight,
// two and no GPUs.
const smallSite = `site: {id: small}
rooms: [{id: hall}]
rows: [{id: row, room: hall}]
feeds: [{id: feed-a, line_volts: 400, rated_amperes: 100}]
racks: [{id: "r[01-02]", row: row, height_u: 42}]
pdus: [{id: "r[01-02]-a", rack: "r[01-02]", feed: feed-a, phases: 3, outlets: 8}]
sensors:
- {id: "r[01-02]-top", rack: "r[01-02]", measures: inlet_temperature, position: top}
- {id: "r[01-02]-out", rack: "r[01-02]", measures: outlet_temperature, position: top}
node_classes:
- {id: h100, height_u: 4, gpus: 8, gpu_model: NVIDIA H100 80GB HBM3}
- {id: pair, height_u: 2, gpus: 2}
- {id: plain, height_u: 1}
nodes:
- {id: gpu001, rack: r01, u: 1, class: h100, outlets: [r01-a/1]}
- {id: gpu002, rack: r01, u: 5, class: h100, outlets: [r01-a/2]}
- {id: pair1, rack: r01, u: 10, class: pair}
- {id: cpu001, rack: r02, u: 20, class: plain}
- {id: cpu002, rack: r02, u: 21, class: plain}
`

// small is a registry with a site of its own, and agents beside it.
type small struct {
	*stack
	grpc, web string
	reg       *process
	urls      map[string]string // of the agents
}

// newSmall starts a registry on smallSite. extra are more lines of registry.yml.
func newSmall(t *testing.T, extra string) *small {
	t.Helper()
	s := prepareSmall(t, extra)
	s.startReg()
	return s
}

// prepareSmall writes the files and starts nothing.
func prepareSmall(t *testing.T, extra string) *small {
	t.Helper()
	s := &small{stack: &stack{t: t, dir: t.TempDir(), agents: map[string]*process{}}, urls: map[string]string{}}
	s.grpc, s.web = freePort(t), freePort(t)
	s.stack.registry = "http://" + s.web
	s.write("site.yml", smallSite)
	s.write("registry.yml", s.registryYAML(extra))
	return s
}

func (s *small) registryYAML(extra string) string {
	return fmt.Sprintf("site_file: site.yml\nstore: {dir: ledger}\ngrpc: {listen: %q}\n", s.grpc) + extra
}

// startReg starts, or starts again, the registry, and waits until it answers.
func (s *small) startReg() {
	s.t.Helper()
	s.reg = start(s.t, s.dir, "registry", binary(s.t), "registry", "--config.file=registry.yml", "--web.listen-address="+s.web)
	s.eventually(15*time.Second, "the registry is ready", func() error {
		return answers(s.stack.registry + "/-/ready")
	})
}

// answers asks for a page and wants it with 200.
func answers(url string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}

// agent starts, or starts again, an agent with a configuration and with
// variables such as "FAKEDCGM_SCRIPT=/x" in its environment, and waits until
// it serves.
func (s *small) agent(name, text string, env ...string) *process {
	s.t.Helper()
	s.write(name+".yml", text)
	if s.urls[name] == "" {
		s.urls[name] = "http://" + freePort(s.t)
	}
	p := startWith(s.t, s.dir, name, func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), env...) },
		binary(s.t), "agent", "--config.file="+name+".yml", "--web.listen-address="+strings.TrimPrefix(s.urls[name], "http://"))
	s.agents[name] = p
	s.eventually(15*time.Second, "agent "+name+" serves", func() error { return answers(s.urls[name] + "/-/healthy") })
	return p
}

// fetch returns an agent's page of metrics, or the registry's with the name "".
func (s *small) fetch(name string) string {
	s.t.Helper()
	url := s.stack.registry
	if name != "" {
		url = s.urls[name]
	}
	text, err := getURL(http.DefaultClient, url+"/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

func getURL(client *http.Client, url string) (string, error) {
	resp, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, resp.Status, data)
	}
	return string(data), err
}

// series returns the values of a page's series of one name whose text holds all
// of the parts, in the page's order.
func series(page, name string, parts ...string) []string {
	var out []string
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, name+"{") && !strings.HasPrefix(line, name+" ") || !holdsAll(line, parts) {
			continue
		}
		line = strings.TrimSpace(line)
		out = append(out, line[strings.LastIndexByte(line, ' ')+1:])
	}
	return out
}

// awaitSeries waits until a page has exactly these values.
func (s *small) awaitSeries(limit time.Duration, agent string, want []string, name string, parts ...string) {
	s.t.Helper()
	s.eventually(limit, fmt.Sprintf("%s of %q %q is %q", name, agent, parts, want), func() error {
		if got := series(s.fetch(agent), name, parts...); !slices.Equal(got, want) {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

// awaitSaid waits for a line of a process's output and returns it.
func (s *small) awaitSaid(limit time.Duration, p *process, texts ...string) string {
	s.t.Helper()
	var lines []string
	s.eventually(limit, fmt.Sprintf("%s says %q", p.name, texts), func() error {
		if lines = p.said(texts...); len(lines) == 0 {
			return fmt.Errorf("it does not")
		}
		return nil
	})
	s.t.Logf("%s: %s", p.name, lines[0])
	return lines[0]
}

// refuses runs the program, which must end by itself with a message.
func refuses(t *testing.T, dir string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(t), args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err == nil || ctx.Err() != nil {
		t.Fatalf("%v was taken (%v); it said\n%s", args, ctx.Err(), out)
	}
	return string(out)
}

// fakeGPUs is a scripted stand-in for DCGM's library.
type fakeGPUs struct {
	t           *testing.T
	script, log string
}

// fakeLibrary is the folder of the built stand-in.
func fakeLibrary(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(testtool.Root(), "build", "fakedcgm")
	if _, err := os.Stat(filepath.Join(dir, "libdcgm.so.4")); err != nil {
		testtool.Missing(t, "the stand-in for DCGM is not built; run 'make fakedcgm'")
	}
	return dir
}

func newFakeGPUs(t *testing.T, lines ...string) *fakeGPUs {
	t.Helper()
	dir := t.TempDir()
	f := &fakeGPUs{t: t, script: filepath.Join(dir, "script"), log: filepath.Join(dir, "calls")}
	f.say(lines...)
	return f
}

// env lets an agent load the library from a folder.
func (f *fakeGPUs) env(library string) []string {
	return []string{"LD_LIBRARY_PATH=" + library, "FAKEDCGM_SCRIPT=" + f.script, "FAKEDCGM_LOG=" + f.log}
}

// say replaces the script; the running library takes it over within 20 ms.
func (f *fakeGPUs) say(lines ...string) {
	f.t.Helper()
	if err := os.WriteFile(f.script+".new", []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(f.script+".new", f.script); err != nil {
		f.t.Fatal(err)
	}
}
