// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"slices"
	"testing"

	"github.com/rackpulse/rackpulse/query"
)

// TestCabling: two exchanged cables are two events, once; back again two more.
func TestCabling(t *testing.T) {
	hears := func(ports ...string) []query.Sample {
		var out []query.Sample
		for i := 0; i < len(ports); i += 2 {
			out = append(out, query.Sample{Labels: map[string]string{"switch": "tor01", "port": ports[i], "neighbor": ports[i+1]}, Value: 1})
		}
		return out
	}
	q := &answers{samples: map[string][]query.Sample{}}
	r := start(t, testConfig(t.TempDir()), Deps{Querier: q})
	wrong := map[string]string{}
	for i, step := range []struct {
		heard []query.Sample
		want  []string
	}{
		{hears("Ethernet1", "gpu001.hall.example", "Ethernet2", "gpu002", "Ethernet9", "spine1"), nil},
		{hears("Ethernet1", "gpu002", "Ethernet2", "gpu001"), []string{
			`tor01/Ethernet1 hears "gpu002", the site file says gpu001: a cable was moved, or the file is out of date`,
			`tor01/Ethernet2 hears "gpu001", the site file says gpu002: a cable was moved, or the file is out of date`}},
		{hears("Ethernet1", "gpu002", "Ethernet2", "gpu001"), nil},
		{nil, nil}, // the switch is silent: that says nothing
		{hears("Ethernet1", "gpu003", "Ethernet2", "gpu002"), []string{
			`tor01/Ethernet1 hears "gpu003", the site file says gpu001: a cable was moved, or the file is out of date`,
			"tor01/Ethernet2 hears gpu002 again"}},
	} {
		q.samples["switch_port_neighbor_info"] = step.heard
		events, err := r.compareCabling(t.Context(), wrong)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range events {
			got = append(got, e.Reason)
		}
		if !slices.Equal(got, step.want) {
			t.Errorf("step %d: %q, want %q", i, got, step.want)
		}
	}
}
