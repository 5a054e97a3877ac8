// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestWithoutDCGMNames: beside a dcgm-exporter everything of ours stays, and nothing
// of its names.
func TestWithoutDCGMNames(t *testing.T) {
	s := &stub{}
	values := []Value{v(fieldTemp, 60), v(fieldSlowdown, 87), v(fieldThrottle, 0x40), v(fieldUtil, 0), v(fieldUsed, 0), v(fieldFree, 81000),
		v("DCGM_FI_DEV_ROW_REMAP_FAILURE", 1), v(fieldXID, 79), v(fieldRecovery, 1)}
	s.give(device(0, values...), device(1, values...))
	withKinds(t, kind("x", 1, s))
	own := func(page string) []string {
		var list []string
		for line := range strings.Lines(page) {
			if !strings.Contains(line, "DCGM_FI_") && !strings.Contains(line, "seconds") && !strings.HasPrefix(line, "#") {
				list = append(list, line)
			}
		}
		return list
	}
	inBubble(t, func(t *testing.T) {
		yes, no := true, false
		r, rec := start(t, Config{EmitDCGMNames: &yes}, Deps{})
		time.Sleep(time.Second)
		synctest.Wait()
		before := rec.page(t)
		if n := strings.Count(before, "\nDCGM_FI_"); n < 10 {
			t.Errorf("%d series of dcgm-exporter's names", n)
		}
		if err := r.Apply(Config{EmitDCGMNames: &no}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		page := rec.page(t)
		if strings.Contains(page, "DCGM_") {
			t.Errorf("still there:\n%s", page)
		}
		if got, want := own(page), own(before); !slices.Equal(got, want) || len(got) < 30 {
			t.Errorf("ours:\n%s\nwant\n%s", strings.Join(got, ""), strings.Join(want, ""))
		}
		for _, name := range []string{"rackpulse_gpu_idle_since_timestamp_seconds", "rackpulse_gpu_throttle_seconds_total", "rackpulse_gpu_xid_errors_total"} {
			if len(series(page, name)) < 2 {
				t.Errorf("no %s", name)
			}
		}
	})
}

// TestReadsWithoutDCGMNames: what is not shown, and no fact, is not read.
func TestReadsWithoutDCGMNames(t *testing.T) {
	no := false
	s, err := newSettings(Config{EmitDCGMNames: &no}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.source.Fields, alwaysRead) || !slices.Equal(s.source.Labels, factLabels) {
		t.Errorf("reads %q, labels %q", s.source.Fields, s.source.Labels)
	}
}
