// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"
	"gopkg.in/yaml.v3"

	"github.com/rackpulse/rackpulse/site"
	"github.com/rackpulse/rackpulse/testtool"
)

// composeService is what the tests look at of a compose service.
type composeService struct {
	Image       string            `yaml:"image"`
	Command     []string          `yaml:"command"`
	Volumes     []string          `yaml:"volumes"`
	Ports       []string          `yaml:"ports"`
	Environment map[string]string `yaml:"environment"`
	Profiles    []string          `yaml:"profiles"`
	Hostname    string            `yaml:"hostname"`
	NetworkMode string            `yaml:"network_mode"`
	DependsOn   []string          `yaml:"depends_on"`
}

type composeFile struct {
	Services map[string]composeService `yaml:"services"`
	Volumes  map[string]any            `yaml:"volumes"`
}

func readCompose(t *testing.T) composeFile {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testtool.Root(), "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var c composeFile
	if err := yaml.Unmarshal(data, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCompose holds that the compose file names only what exists: files, named
// volumes, services, our own verbs and flags; and that nothing is open to the
// network or has a default password.
func TestCompose(t *testing.T) {
	c := readCompose(t)
	for _, name := range []string{"registry", "facility", "gpu001", "gpu", "prometheus", "alertmanager", "grafana", "node-exporter-gpu001"} {
		if _, ok := c.Services[name]; !ok {
			t.Errorf("service %s is missing", name)
		}
	}
	for name, s := range c.Services {
		for _, v := range s.Volumes {
			source, _, _ := strings.Cut(v, ":")
			if strings.HasPrefix(source, "./") {
				if _, err := os.Stat(filepath.Join(testtool.Root(), source)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			} else if _, named := c.Volumes[source]; !named && source != "/" {
				t.Errorf("%s: volume %s is not declared", name, source)
			}
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s: port %s is open to the network", name, p)
			}
		}
		if beside, ok := strings.CutPrefix(s.NetworkMode, "service:"); ok {
			s.DependsOn = append(s.DependsOn, beside)
		}
		for _, dep := range s.DependsOn {
			if _, ok := c.Services[dep]; !ok {
				t.Errorf("%s: depends on %s, which is not there", name, dep)
			}
		}
		if strings.HasPrefix(s.Image, "${RACKPULSE_IMAGE") {
			if err := parses(s.Command); err != nil {
				t.Errorf("%s: rackpulse %s: %v", name, strings.Join(s.Command, " "), err)
			}
		}
	}
	if pw := c.Services["grafana"].Environment["GF_SECURITY_ADMIN_PASSWORD"]; !strings.HasPrefix(pw, "${GRAFANA_ADMIN_PASSWORD:?") {
		t.Errorf("grafana's password is %q; it must be demanded from the environment", pw)
	}
	if p := c.Services["gpu"].Profiles; !slices.Equal(p, []string{"gpu"}) {
		t.Errorf("service gpu has profiles %v", p)
	}
	prom := strings.Join(c.Services["prometheus"].Command, " ")
	for _, want := range []string{"--storage.tsdb.retention.time=200h", "--web.enable-lifecycle"} {
		if !strings.Contains(prom, want) {
			t.Errorf("prometheus runs without %s", want)
		}
	}
}

// parses tells whether our program takes a command line, without running it.
func parses(args []string) error {
	app := kingpin.New("rackpulse", "").Terminate(nil).UsageWriter(io.Discard).ErrorWriter(io.Discard)
	registerVerbs(app)
	_, err := app.Parse(args)
	return err
}

// TestComposeConfigurations checks every configuration file of the compose setup
// with the program that will read it.
func TestComposeConfigurations(t *testing.T) {
	// As in the containers: the folder, and the site file mounted into it.
	dir := t.TempDir()
	src := filepath.Join(testtool.Root(), "deploy", "compose", "rackpulse")
	files, err := os.ReadDir(src)
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile(filepath.Join(testtool.Root(), "site", "example.yml"))
	if err != nil {
		t.Fatal(err)
	}
	copyTo := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	copyTo("site.yml", example)
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(src, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		copyTo(f.Name(), data)
	}
	for _, f := range files {
		path := filepath.Join(dir, f.Name())
		args := []string{"config", "check-agent", "--simulate", path}
		switch f.Name() {
		case "registry.yml":
			args = []string{"config", "check-registry", path}
		case "gpu.yml":
			args = []string{"config", "check-agent", path}
		}
		var out strings.Builder
		if code := execute(t.Context(), args, stdio{nil, &out, &out}); code != 0 {
			t.Errorf("%s: exit status %d: %s", f.Name(), code, out.String())
		}
	}
	hall, err := site.Load(filepath.Join(dir, "site.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range readCompose(t).Services {
		if strings.HasPrefix(name, "gpu0") {
			if _, ok := hall.Node(s.Hostname); !ok {
				t.Errorf("service %s: node %q is not in the site file", name, s.Hostname)
			}
		}
	}
}

// TestComposePrometheus has promtool check the scrape configuration, with the
// rules where the container has them.
func TestComposePrometheus(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(testtool.Root(), "deploy", "compose", "prometheus", "prometheus.yml"))
	if err != nil {
		t.Fatal(err)
	}
	checkPrometheus(t, data, true)
	for _, want := range []string{"scrape_interval: 10s", "scrape_interval: 15s", "evaluation_interval: 15s", "honor_labels: true"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("prometheus.yml lacks %s", want)
		}
	}
}
