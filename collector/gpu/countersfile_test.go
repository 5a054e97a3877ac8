// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-kit/log"

	"github.com/rackpulse/rackpulse/collector"
)

// configMap is a folder as the kubelet makes it of a ConfigMap: the file is a link
// into ..data, which is itself a link that is swapped.
type configMap struct {
	t   *testing.T
	dir string
}

func (c configMap) set(text string) {
	c.t.Helper()
	data, err := os.MkdirTemp(c.dir, "..2026_")
	if err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "counters.csv"), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	tmp := filepath.Join(c.dir, "..data_tmp")
	if err := os.Symlink(filepath.Base(data), tmp); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(c.dir, "..data")); err != nil {
		c.t.Fatal(err)
	}
	path := filepath.Join(c.dir, "counters.csv")
	if _, err := os.Lstat(path); err != nil {
		if err := os.Symlink("..data/counters.csv", path); err != nil {
			c.t.Fatal(err)
		}
	}
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

const countersTwo = "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, g\n"

// TestCountersReload changes the file under a running agent. The profiling field
// begins with a blank whenever it is watched anew, so that it would show if it was.
func TestCountersReload(t *testing.T) {
	fake := useFake(t, "", "gpus 2", "profblank")
	files := configMap{t, t.TempDir()}
	files.set(countersTwo)
	var logged lockedBuffer
	r, rec := startDCGMWith(t, Config{CountersFile: filepath.Join(files.dir, "counters.csv")}, log.NewLogfmtLogger(&logged))
	page := func(name string, labels ...string) []string { return series(rec.page(t), name, labels...) }
	on := func(name string) bool { return len(page(name)) == 2 }
	eventually(t, "both counters", func() bool { return on("DCGM_FI_DEV_GPU_TEMP") && on("DCGM_FI_PROF_GR_ENGINE_ACTIVE") })
	lost := 0
	rec.mu.Lock()
	rec.each = func(s collector.Snapshot) {
		n := 0
		for _, p := range s.Points {
			if p.Desc.Name == "DCGM_FI_DEV_GPU_TEMP" || p.Desc.Name == "DCGM_FI_PROF_GR_ENGINE_ACTIVE" {
				n++
			}
		}
		if s.Source == sourceName && n != 4 {
			lost++
		}
	}
	rec.mu.Unlock()

	files.set(countersTwo + "DCGM_FI_DEV_BOARD_POWER_WATTS, gauge, p\nDCGM_FI_DEV_SERIAL, label, s\n")
	eventually(t, "a new counter", func() bool { return on("DCGM_FI_DEV_BOARD_POWER_WATTS") })
	want(t, "label", page("DCGM_FI_DEV_GPU_TEMP", `DCGM_FI_DEV_SERIAL="1650123000001"`), "35")

	files.set(countersTwo + "DCGM_FI_DEV_FB_USED, gauge, f\nDCGM_FI_DEV_FB_FREE; gauge; f\n")
	eventually(t, "a bad file", func() bool { return slices.Equal(page("rackpulse_gpu_counters_last_reload_successful"), []string{"0"}) })
	if !on("DCGM_FI_DEV_BOARD_POWER_WATTS") || on("DCGM_FI_DEV_FB_USED") {
		t.Error("a bad file changed what is read")
	}
	if !strings.Contains(logged.String(), `counters.csv:4: want 'field, type, help'`) {
		t.Errorf("log: %s", logged.String())
	}

	files.set(countersTwo + "DCGM_FI_DEV_FB_USED, gauge, f\nDCGM_FI_DEV_OF_TOMORROW, gauge, ?\n")
	eventually(t, "a file with an unknown field", func() bool { return on("DCGM_FI_DEV_FB_USED") && !on("DCGM_FI_DEV_BOARD_POWER_WATTS") })
	eventually(t, "the gauges", func() bool {
		return slices.Equal(page("rackpulse_gpu_counters_last_reload_successful"), []string{"1"}) &&
			slices.Equal(page("rackpulse_gpu_counter_ignored", `field="DCGM_FI_DEV_OF_TOMORROW"`, `reason="unknown"`), []string{"1"})
	})

	if err := os.Remove(filepath.Join(files.dir, "..data")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no file", func() bool { return slices.Equal(page("rackpulse_gpu_counters_last_reload_successful"), []string{"0"}) })
	files.set(countersTwo + "DCGM_FI_DEV_FB_USED, gauge, f\nDCGM_FI_DEV_OF_TOMORROW, gauge, ?\n")
	eventually(t, "the file is back", func() bool { return slices.Equal(page("rackpulse_gpu_counters_last_reload_successful"), []string{"1"}) })

	rec.mu.Lock()
	rec.each = nil
	rec.mu.Unlock()
	if lost > 0 {
		t.Errorf("%d passes without all series of the counters that never left the file", lost)
	}
	if n := len(fake.calls("dcgmStartEmbedded")); n != 1 {
		t.Errorf("DCGM was started %d times", n)
	}
	// SIGHUP takes the same way.
	files.set(countersTwo)
	if err := r.Apply(Config{Source: "dcgm", Interval: minInterval, CountersFile: filepath.Join(files.dir, "counters.csv")}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the short file", func() bool { return !on("DCGM_FI_DEV_FB_USED") && on("DCGM_FI_PROF_GR_ENGINE_ACTIVE") })
	if groups, gone := len(fake.calls("dcgmGroupCreate")), len(fake.calls("dcgmGroupDestroy")); groups-gone > 5 { // static, fields, profiling, slow, xid
		t.Errorf("%d groups made, %d given back", groups, gone)
	}
}
