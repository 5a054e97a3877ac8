// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// TestDCGMSlow looks at the calls of a real child: how often which fields are read,
// and that nothing waits that must not.
func TestDCGMSlow(t *testing.T) {
	const slow = 2 * time.Second
	fake := useFake(t, "", "gpus 2", "value * 310 1", "value * 160 700")
	_, rec := startDCGM(t, Config{SlowInterval: slow})
	eventually(t, "2 GPUs", func() bool { return ups(t, rec) == "11" })
	want(t, "slow values from the first sample on", series(rec.page(t), fieldSBE), "1", "1")
	want(t, "threshold", series(rec.page(t), fieldLimit), "700", "700")

	const all, fast = "dcgmEntitiesGetLatestValues entities=2 fields=46 ", "dcgmEntitiesGetLatestValues entities=2 fields=22 "
	slowReads := func() int { return len(fake.calls(all)) }
	began, before, fastReads := time.Now(), slowReads(), len(fake.calls(fast))
	fake.say("gpus 2", "value * 310 5", "value * 160 700", "value * 150 66")
	eventually(t, "fast value", func() bool {
		return slices.Equal(series(rec.page(t), fieldTemp), []string{"66", "66"})
	})
	if took := time.Since(began); took < slow/2 {
		want(t, "slow value waits", series(rec.page(t), fieldSBE), "1", "1")
	}
	eventually(t, "slow value", func() bool { return slices.Equal(series(rec.page(t), fieldSBE), []string{"5", "5"}) })
	eventually(t, "two more slow reads", func() bool { return slowReads() >= before+3 })
	passed := time.Since(began)
	if n := slowReads() - before; n > int(passed/slow)+1 {
		t.Errorf("slow fields read %d times in %v", n, passed)
	}
	if n := len(fake.calls(fast)) - fastReads; n < 10 {
		t.Errorf("fast fields read %d times in %v", n, passed)
	}
	if n := len(fake.calls("dcgmWatchFields freq=2000000 age=4.000 samples=2")); n != 1 {
		t.Errorf("%d watches of slow fields", n)
	}
}

// TestDCGMSlowLost: the fast fields alone find a lost GPU, which loses all values;
// when it is back its slow values do not wait, nor do those after an enumeration.
func TestDCGMSlowLost(t *testing.T) {
	fake := useFake(t, "", "gpus 3", "value * 310 4")
	_, rec := startDCGM(t, Config{SlowInterval: 5 * time.Minute})
	eventually(t, "3 GPUs", func() bool { return ups(t, rec) == "111" })
	fake.say("gpus 3", "value * 310 4", "lost 1")
	eventually(t, "GPU 1 lost", func() bool { return ups(t, rec) == "101" })
	want(t, "slow values", series(rec.page(t), fieldSBE), "4", "4")
	for line := range strings.Lines(rec.page(t)) {
		if strings.HasPrefix(line, "DCGM_FI_") && strings.Contains(line, `gpu="1"`) {
			t.Errorf("lost GPU still has %s", line)
		}
	}
	fake.say("gpus 3", "value * 310 6")
	eventually(t, "back with its slow values", func() bool {
		return slices.Equal(series(rec.page(t), fieldSBE), []string{"6", "6", "6"})
	})
	fake.say("gpus 4", "value * 310 7")
	eventually(t, "one more", func() bool {
		return slices.Equal(series(rec.page(t), fieldSBE), []string{"7", "7", "7", "7"})
	})
}

// TestDCGMSlowReconnect: a new connection reads everything at once.
func TestDCGMSlowReconnect(t *testing.T) {
	fake := useFake(t, "", "gpus 2", "value * 310 1")
	_, rec := startDCGM(t, Config{SlowInterval: 5 * time.Minute, DCGM: DCGMConfig{Address: "tcp://127.0.0.1:5555"}})
	eventually(t, "2 GPUs", func() bool { return ups(t, rec) == "11" })
	fake.say("disconnected")
	eventually(t, "noticed", func() bool { return strings.Contains(rec.reason(), "host engine is not valid") })
	fake.say("gpus 2", "value * 310 9")
	eventually(t, "new slow values", func() bool { return slices.Equal(series(rec.page(t), fieldSBE), []string{"9", "9"}) })
}

// TestDCGMReaders: the values that this package reads itself are those of go-dcgm,
// which reads them where DCGM runs elsewhere.
func TestDCGMReaders(t *testing.T) {
	var pages []string
	for _, address := range []string{"", "tcp://127.0.0.1:5555"} {
		t.Run("at "+address, func(t *testing.T) {
			useFake(t, "", "ids 0,3", "mig 3 2", "value 3 310 9007199254740991", "value 0 156 1234567890123", "value 3 1004 0.25", "value 0 203 notsupported")
			_, rec := startDCGM(t, Config{DCGM: DCGMConfig{Address: address}})
			eventually(t, "2 GPUs", func() bool { return ups(t, rec) == "11" })
			pages = append(pages, goldenPage(rec.page(t)))
		})
	}
	if len(pages) != 2 || pages[0] != pages[1] || !strings.Contains(pages[0], "1.234567890123e+12") {
		t.Errorf("pages differ, or not what was said:\n%s", strings.Join(pages, "\n---\n"))
	}
}

// TestNVMLCallsClass: fields that come with one call are of one class.
func TestNVMLCallsClass(t *testing.T) {
	for _, c := range slices.Concat(nvmlCalls, nvmlMore) {
		for _, field := range c.fields {
			if isSlow(field) != isSlow(c.fields[0]) {
				t.Errorf("%s: %s and %s are of two classes", c.symbol, c.fields[0], field)
			}
		}
	}
}

// TestNVMLSlow counts the calls of each class over the node's model.
func TestNVMLSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMockNode(1)
		temps, eccs, answer := 0, 0, nvml.SUCCESS
		m.gpus[0].GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) {
			temps++
			return 40, answer
		}
		m.gpus[0].GetTotalEccErrorsFunc = func(nvml.MemoryErrorType, nvml.EccCounterType) (uint64, nvml.Return) {
			eccs++
			return 3, nvml.SUCCESS
		}
		s := m.open(t, fieldTemp, fieldSBE)
		s.cfg.Interval, s.cfg.SlowInterval = time.Second, 10*time.Second
		for i := range 31 { // 0 s to 30 s
			sample := read(t, s)
			if full := i%10 == 0; sample.FastOnly == full || len(sample.Devices[0].Values) != map[bool]int{true: 2, false: 1}[full] {
				t.Errorf("pass %d: fast only %v, values %+v", i, sample.FastOnly, sample.Devices[0].Values)
			}
			time.Sleep(time.Second)
		}
		if temps != 31 || eccs != 4 {
			t.Errorf("%d calls of the fast field, %d of the slow one; want 31 and 4", temps, eccs)
		}
		answer = nvml.ERROR_UNKNOWN // of all fast calls: the slow one does not keep it alive
		for range 20 {
			if sample := read(t, s); !sample.Devices[0].Lost {
				t.Fatalf("not lost: %+v", sample.Devices[0])
			}
			time.Sleep(time.Second)
		}
		answer = nvml.SUCCESS
		read(t, s)
		time.Sleep(time.Second)
		if sample := read(t, s); sample.FastOnly || valueOf(sample.Devices[0], fieldSBE) != 3 {
			t.Errorf("back, but without its slow values: %+v", sample)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
