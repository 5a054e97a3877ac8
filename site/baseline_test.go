// SPDX-License-Identifier: Apache-2.0

package site

import (
	"reflect"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

func TestVersions(t *testing.T) {
	for _, c := range []struct {
		allowed, got string
		want         bool
	}{
		{"535.154.05", "535.154.05", true},
		{"535.154.05", "535.154.5", true}, // numbers, not texts
		{"535.154.05", "535.154.06", false},
		{"535.154.05", "535.15405", false},
		{"550", "550.54.14", true}, // a branch
		{"550", "55.0", false},
		{"550.54", "550.54.15", true},
		{"550.54", "550.541", false},
		{"=550", "550.54.14", false}, // the version itself
		{"=550.54.14", "550.54.14", true},
		{">=570.124 <571", "570.124.06", true},
		{">=570.124 <571", "570.133.20", true},
		{">=570.124 <571", "570.86.15", false}, // 86 is below 124
		{">=570.124 <571", "571.0", false},
		{">=570.124 <571", "1570.200", false},
		{">=570.124 <571 !=570.133.20", "570.133.20", false},
		{">=570.124 <571 !=570.133.20", "570.133.07", true},
		{">550.54", "550.54.14", true},
		{">550.54.14", "550.54.14", false},
		{"<=550.54.14", "550.54.14", true},
		{"<=550", "550.54", false},
		{"5.15", "5.15.0-91-generic", true},
		{"5.15", "5.150.1", false},
		{"6.1", "6.1.0-18-amd64", true},
		{"6.1", "6.10.3", false},
		{"6.1", "6.12.1", false},
		{">=6.1", "6.1.0-18-amd64", true},
		{">=6.1", "6.10.3-1.el9.x86_64", true},
		{">=6.1", "5.15.0-91-generic", false},
		{">=5.15.0-91", "5.15.0-100-generic", true},
		{">=5.15.0-91", "5.15.0-88-generic", false},
		{"5.15.0-91", "5.15.0-91-generic", true},
		{"5.15.0-91", "5.15.0-92-generic", false},
		{"=5.15.0-91-lowlatency", "5.15.0-91-generic", false},
		{">=5.14.0-427", "5.14.0-427.13.1.el9_4.x86_64", true},
		{"12.4", "12.4", true},
		{"12.4", "12.40", false},
		{">=1.14.3", "1.14.3", true},
		{">=1.14.3", "1.14.2", false},
		{">=1.14.3", "1.17.0-rc.1", true},
		{">=1.17.0", "1.17.0-rc.1", false}, // not out yet
		{">=1.17.0-rc.2", "1.17.0", true},
		{">=1.17.0-rc.2", "1.17.0-rc.10", true},
		{">=99999999999999999999.1", "100000000000000000000.0", true}, // beyond 64 bits
		{">=1", "simulated", false},
		{">=1", "", false},
		{">=1", "1" + strings.Repeat(".1", 200), false}, // too long to be one
	} {
		if got := (Versions{c.allowed}).Allow(c.got); got != c.want {
			t.Errorf("%q allows %q: %t", c.allowed, c.got, got)
		}
	}
	list := Versions{"535.154.05", ">=550.54.14 <551"}
	for got, want := range map[string]bool{"535.154.05": true, "550.90.07": true, "545.23.08": false} {
		if list.Allow(got) != want {
			t.Errorf("%q allows %q: %t", list, got, !want)
		}
	}
}

// admitted are the facts of a node that the pinned class of the example takes.
var admitted = Facts{Driver: "550.54.14", CUDA: "12.4", Toolkit: "1.14.3", Kernel: "5.15.0-91-generic",
	MIGMode: Off, TimeSynchronised: Yes, ContainerCUDA: Passed}

// TestExampleClass holds each line of the pinned class against nodes that are as it
// wants them and nodes that are not.
func TestExampleClass(t *testing.T) {
	s, err := Example()
	if err != nil {
		t.Fatal(err)
	}
	class := s.NodeClasses[1]
	if class.ID != "h100-pinned" {
		t.Fatalf("class %s", class.ID)
	}
	if got := class.Baseline.Check(admitted); got != nil {
		t.Errorf("a node as it should be: %v", got)
	}
	for _, c := range []struct {
		key        string
		good, bad  string
		difference string // of the bad one
		silent     string // of a node that does not tell
	}{
		{"driver", "535.154.05", "550.90.07", "driver 550.90.07, want 535.154.05 or 550.54.14", "driver not told, want 535.154.05 or 550.54.14"},
		{"cuda", "12.2", "12.3", "cuda 12.3, want 12.2 or 12.4", "cuda not told, want 12.2 or 12.4"},
		{"toolkit", "1.17.5", "1.13.5", "toolkit 1.13.5, want >=1.14.3", "toolkit not told, want >=1.14.3"},
		{"kernel", "6.1.0-18-amd64", "6.8.0-45-generic", "kernel 6.8.0-45-generic, want 5.15 or 6.1", "kernel not told, want 5.15 or 6.1"},
		{"mig_mode", "off", "mixed", "mig mode mixed, want off", "mig mode not told, want off"},
		{"time_synchronised", "yes", "no", "time synchronised no, want yes", "time synchronised not told, want yes"},
		{"container_cuda", "passed", "failed: exit status 125", "container cuda failed: exit status 125, want passed", "container cuda not told, want passed"},
	} {
		for value, want := range map[string]string{c.good: "", c.bad: c.difference, "": c.silent} {
			texts := admitted.Texts()
			texts[c.key] = value
			facts, err := ReadFacts(texts)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, d := range class.Baseline.Check(facts) {
				got += d.String()
			}
			if got != want {
				t.Errorf("%s %q: %q, want %q", c.key, value, got, want)
			}
		}
	}
}

func TestBaselineOfAllKeys(t *testing.T) {
	s, err := Parse("site.yml", []byte(`site: {id: s1}
node_classes:
- id: c1
  height_u: 1
  baseline:
    driver: 550.54.14
    cuda: 12.10
    vbios: [96.00.30.00.01, 96.00.5E.00.03]
    ecc_mode: on
    persistence: off
    max_time_offset_seconds: 0.1
    burn_in: true
`))
	if err != nil {
		t.Fatal(err)
	}
	b := s.NodeClasses[0].Baseline
	good := Facts{Driver: "550.54.14", CUDA: "12.10", VBIOS: "96.00.5E.00.03, 96.00.30.00.01", ECCMode: On, Persistence: Off, TimeOffsetSeconds: "0.1", BurnIn: Passed}
	if got := b.Check(good); got != nil {
		t.Errorf("a node as it should be: %v", got)
	}
	bad := Facts{Driver: "550.54.15", CUDA: "12.1", VBIOS: "96.00.30.00.01, 96.00.30.00.02", ECCMode: Off, Persistence: Mixed, TimeOffsetSeconds: "NaN", BurnIn: "failed:\nno"}
	want := []string{"driver 550.54.15, want 550.54.14", "cuda 12.1, want 12.10",
		"vbios 96.00.30.00.01, 96.00.30.00.02, want 96.00.30.00.01 or 96.00.5E.00.03", "ecc mode off, want on",
		"persistence mixed, want off", "time offset seconds NaN, want at most 0.1", `burn in "failed:\nno", want passed`}
	got := b.Check(bad)
	if len(got) != len(want) {
		t.Fatalf("differences %v", got)
	}
	for i, d := range got {
		if d.String() != want[i] {
			t.Errorf("got %q, want %q", d, want[i])
		}
	}
	text, err := yaml.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("again.yml", []byte("site: {id: s1}\nnode_classes:\n- id: c1\n  height_u: 1\n  baseline:\n    "+strings.ReplaceAll(string(text), "\n", "\n    ")+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	if changes := Diff(s, again); len(changes) != 0 {
		t.Errorf("written out and read again: %v", changes)
	}
	again.NodeClasses[0].Baseline.VBIOS = again.NodeClasses[0].Baseline.VBIOS[:1]
	if changes := Diff(s, again); len(changes) != 1 || changes[0].String() != `node class c1 baseline.vbios: "96.00.30.00.01, 96.00.5E.00.03" to "96.00.30.00.01"` {
		t.Errorf("changes %v", changes)
	}
}

// TestFitting holds that a simulated node of any class is admitted.
func TestFitting(t *testing.T) {
	for _, versions := range []Versions{{">=570.124 <571"}, {"535.154.05", "550.54.14"}, {">550.54.14"}, {"<551"}, {"!=5 6.1"}, {"<=12.4 >12.1"}, {"=6.1.0-18"}, nil} {
		b := Baseline{Driver: versions, Toolkit: versions, CUDA: versions, Kernel: versions, VBIOS: Names{"a", "b"}, MIGMode: On, ECCMode: Off, Persistence: On,
			TimeSynchronised: true, MaxTimeOffsetSeconds: 0.001, ContainerCUDA: true, BurnIn: true}
		if got := b.Check(b.Fitting()); got != nil {
			t.Errorf("%q: %v", versions, got)
		}
		for _, r := range b.Requirements(Facts{}) {
			if r.Met {
				t.Errorf("%s is met by a node that tells nothing", r.Name)
			}
		}
	}
	none := Baseline{}
	if !none.Empty() || none.Check(Facts{}) != nil || !reflect.DeepEqual(none.Fitting(), Facts{}) {
		t.Error("an empty baseline asks for something")
	}
}

func TestFactsAsTexts(t *testing.T) {
	f := admitted
	f.GPUCount, f.Simulated = 8, true
	texts := f.Texts()
	if texts["gpu_count"] != "8" || texts["mig_mode"] != "off" || len(texts) != 8 {
		t.Errorf("texts %v", texts)
	}
	texts["from_a_newer_agent"] = "x"
	again, err := ReadFacts(texts)
	f.Simulated = false
	if err != nil || again != f {
		t.Errorf("read back %+v, %v", again, err)
	}
	if _, err := ReadFacts(map[string]string{"gpu_count": "-1"}); err == nil || err.Error() != `gpu_count: "-1" is no number` {
		t.Errorf("error %v", err)
	}
	if got := (Facts{Driver: "1", Simulated: true}).Or(f); got.Driver != "1" || got.CUDA != "12.4" || got.GPUCount != 8 || !got.Simulated {
		t.Errorf("facts over older ones: %+v", got)
	}
}
