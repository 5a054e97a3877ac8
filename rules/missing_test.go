// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"maps"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/rackpulse/rackpulse/site"
)

// missingBad is the small pack in which a node that should tell its fans and does
// not is one whose fans fail.
func missingBad(t *testing.T) fstest.MapFS {
	t.Helper()
	dir := minipack(t, "fans.yml", "    missing: unknown\n    covered_by: nodes\n", "    missing: bad\n    covered_by: known\n")
	dir["fans.yml"].Data = bytes.Replace(dir["fans.yml"].Data, []byte("signals:\n"), []byte(`signals:
  - {name: known, level: node, description: nodes of the site, unit: nodes, expr: "max by (site, rack_id, node) (rackpulse_node_info)"}
`), 1)
	return dir
}

// TestMissingBad evaluates a signal with missing: bad: it holds where it is over its
// limit, and where it should have data and has none; the first scrape too.
func TestMissingBad(t *testing.T) {
	pack, err := ReadPack(missingBad(t))
	if err != nil {
		t.Fatal(err)
	}
	built, err := pack.Build(site.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{}
	for name, data := range built {
		files[strings.TrimPrefix(name, generatedDir)] = &fstest.MapFile{Data: data}
	}
	s := newStoreOf(t, time.Unix(0, 0), files, "correlations.rules.yml")
	p := page{}
	for _, node := range []string{"slow", "silent", "fine", "partly"} {
		p[`rackpulse_node_info{site="ams1",rack_id="r01",node="`+node+`"}`] = 1
	}
	fan := func(node, fan string, v float64) {
		p[`node_fan_speed_ratio{site="ams1",rack_id="r01",node="`+node+`",fan="`+fan+`"}`] = v
	}
	fan("slow", "1", 0.1)
	fan("fine", "1", 0.9)
	fan("partly", "1", 0.9) // its second fan tells nothing: that is not the node's silence
	fan("stranger", "1", 0.9)
	check := func(want map[string]float64) {
		t.Helper()
		s.scrape(p)
		s.eval()
		s.check()
		if got := s.vector("rackpulse:node:fan_low", "node"); !maps.Equal(got, want) {
			t.Errorf("holds for %v, want %v", got, want)
		}
		s.now = s.now.Add(15 * time.Second)
	}
	check(map[string]float64{"slow": 0.1, "silent": 1})
	delete(p, `node_fan_speed_ratio{site="ams1",rack_id="r01",node="fine",fan="1"}`)
	check(map[string]float64{"slow": 0.1, "silent": 1, "fine": 1})
	fan("silent", "1", 0.5)
	check(map[string]float64{"slow": 0.1, "fine": 1})
}
