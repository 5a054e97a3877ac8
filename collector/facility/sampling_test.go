// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-kit/log"

	"github.com/rackpulse/rackpulse/collector"
	"github.com/rackpulse/rackpulse/sim"
)

// rack30kW is a rack at 30 kW on three phases of 230 V, whose power is a share
// of that at each time.
func rack30kW(share func(time.Time) float64) func(time.Time) *sim.State {
	return func(now time.Time) *sim.State {
		watts := 30e3 * share(now)
		p := &sim.PDU{Energised: true, Manageable: true, PowerWatts: watts, PowerFactor: 1}
		for range 3 {
			p.Phases = append(p.Phases, sim.Phase{Volts: 230, Watts: watts / 3, Amperes: watts / 3 / 230})
		}
		return &sim.State{PDUs: map[string]*sim.PDU{"r01-a": p}}
	}
}

// scrapes runs the simulated PDU and reads a series from the page each 15 s for
// four minutes; the times of the scrapes are whole multiples of 15 s and 5 s.
func scrapes(t *testing.T, entry string, share func(time.Time) float64, series ...string) map[string][]float64 {
	t.Helper()
	store := collector.NewStore()
	store.SetIdentity(hallIdentity())
	r, err := New(entries(t, entry), Deps{Store: store, Logger: log.NewNopLogger(), Device: hallDevice, SimState: rack30kW(share)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	out := map[string][]float64{}
	time.Sleep(5 * time.Second)
	for range 16 {
		text := page(t, store)
		for _, name := range series {
			m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(text)
			if m == nil {
				t.Fatalf("no %s in\n%s", name, text)
			}
			v, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			out[name] = append(out[name], v)
		}
		time.Sleep(15 * time.Second)
	}
	cancel()
	<-done
	return out
}

func labels(name, more string) string {
	if more != "" {
		more += ","
	}
	return name + "{" + more + `pdu_id="r01-a",rack_id="r01"}`
}

var (
	power    = labels("pdu_power_watt", "")
	peak     = labels("pdu_phase_current_peak_ampere", `phase="1"`)
	trough   = labels("pdu_phase_current_trough_ampere", `phase="1"`)
	downward = labels("pdu_power_transients_total", `direction="down"`)
	upward   = labels("pdu_power_transients_total", `direction="up"`)
	seen     = labels("rackpulse_facility_transients_observable", `device="r01-a"`)
)

const sampledPDU = "facility:\n- {device: r01-a, driver: sim, interval: 1s, sample: 100ms}\n"

// A sag of 200 ms to 40 % and back: the gauge that is scraped each 15 s shows
// 30 kW all the time, the trough shows it for a minute and it counts once in
// each direction. 30 kW are 43.478 A a phase, 40 % of it 17.391 A.
func TestSagOf200ms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		sag := func(now time.Time) float64 {
			if at := now.Sub(begin); at >= 102*time.Second && at < 102200*time.Millisecond {
				return 0.4
			}
			return 1
		}
		got := scrapes(t, sampledPDU, sag, power, peak, trough, downward, upward, seen)
		for i := range 16 {
			at := time.Duration(5+15*i) * time.Second
			wantTrough, wantCount := 43.478, 0.0
			if at > 102*time.Second {
				wantCount = 1
				if at <= 162*time.Second {
					wantTrough = 17.391
				}
			}
			for name, want := range map[string]float64{power: 30000, peak: 43.478, trough: wantTrough, downward: wantCount, upward: wantCount, seen: 1} {
				if v := got[name][i]; math.Abs(v-want) > 0.001 {
					t.Errorf("at %s: %s is %g, want %g", at, name, v, want)
				}
			}
		}
	})
}

// A swing at 0.5 Hz between 18 and 42 kW, crossing 30 kW at each whole
// second: the plain gauge is flat. Peak and trough show 60.870 and 26.087 A, and each
// period of 2 s counts once in each direction.
func TestSwingOfHalfHertz(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		swing := func(now time.Time) float64 { return 1 + 0.4*math.Sin(math.Pi*now.Sub(begin).Seconds()) }
		got := scrapes(t, sampledPDU, swing, power, peak, trough, downward, upward)
		// A PDU that takes its values at each whole second, as many do, and that is
		// read each 15 s shows a load without any swing.
		plain := scrapes(t, "facility:\n- {device: r01-a, driver: sim}\n", func(now time.Time) float64 {
			return swing(now.Truncate(time.Second))
		}, power, seen)
		for i := range 16 {
			if v := plain[power][i]; math.Abs(v-30000) > 0.001 || plain[seen][i] != 0 {
				t.Errorf("the plain gauge shows %g, observable %g", v, plain[seen][i])
			}
			if i > 0 && (math.Abs(got[peak][i]-60.870) > 0.01 || math.Abs(got[trough][i]-26.087) > 0.01) {
				t.Errorf("scrape %d: peak %g, trough %g", i, got[peak][i], got[trough][i])
			}
		}
		for _, name := range []string{downward, upward} {
			if n := got[name][15] - got[name][0]; math.Abs(n-225/2) > 1 {
				t.Errorf("%s grew by %g in 225 s of a 2 s swing", name, n)
			}
		}
	})
}

func TestTransients(t *testing.T) {
	for _, c := range []struct {
		name     string
		every    time.Duration
		quantity string
		values   []float64
		down, up uint64
	}{
		{"flat", 100 * time.Millisecond, "power", []float64{30e3, 30.1e3, 29.9e3}, 0, 0},
		{"one step down", 100 * time.Millisecond, "power", []float64{30e3, 20e3, 20e3, 20e3}, 1, 0},
		{"a fifth", 100 * time.Millisecond, "power", []float64{30e3, 24e3}, 1, 0},
		{"less than a fifth", 100 * time.Millisecond, "power", []float64{30e3, 24.1e3}, 0, 0},
		{"stairs are one", 100 * time.Millisecond, "power", []float64{30e3, 22e3, 22e3, 15e3, 10e3}, 1, 0},
		{"a slow ramp", time.Second, "power", []float64{30e3, 27e3, 24e3, 21e3, 19e3, 17e3}, 0, 0},
		{"a second apart", time.Second, "power", []float64{30e3, 20e3, 20e3, 20e3, 12e3}, 2, 0},
		{"too far apart", 1500 * time.Millisecond, "power", []float64{30e3, 10e3, 30e3}, 0, 0},
		{"half way back", 100 * time.Millisecond, "power", []float64{30e3, 5e3, 15e3, 15e3, 3e3}, 2, 1},
		{"an idle rack", 100 * time.Millisecond, "power", []float64{900, 500, 900}, 0, 0},
		{"current", 100 * time.Millisecond, "current", []float64{32, 20, 32}, 1, 1},
		{"small current", 100 * time.Millisecond, "current", []float64{3, 1.5, 3}, 0, 0},
	} {
		counts := transients{quantity: c.quantity}
		least := map[string]float64{"power": minSwingWatts, "current": minSwingAmperes}[c.quantity]
		at := time.Unix(0, 0)
		for _, v := range c.values {
			counts.add(swing{Reading{Quantity: c.quantity, Value: v, At: at}, least})
			at = at.Add(c.every)
		}
		if counts.down != c.down || counts.up != c.up {
			t.Errorf("%s: %d down, %d up; want %d, %d", c.name, counts.down, counts.up, c.down, c.up)
		}
	}
}

// fastDriver is a device with a fast and a full read.
type fastDriver struct {
	fast, full, closed atomic.Int32
	fail               atomic.Bool
}

func (d *fastDriver) Read(context.Context) ([]Reading, error) {
	d.full.Add(1)
	if d.fail.Load() {
		panic("broken driver")
	}
	return []Reading{{Quantity: "power", Value: 1000}, {Quantity: "outlet_power", Part: "1", Value: 500}}, nil
}

func (d *fastDriver) ReadFast(context.Context) ([]Reading, error) {
	if d.fail.Load() {
		return nil, errors.New("broken")
	}
	return []Reading{{Quantity: "power", Value: 1000 + float64(d.fast.Add(1))}}, nil
}

func (d *fastDriver) Close() error { d.closed.Add(1); return nil }

// Most samples are fast reads; the rest of the values comes with the interval. A
// device that fails shows its error, a panic included, and its values end.
func TestSampler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &fastDriver{}
		open := sampled(func(context.Context) (Driver, error) { return inner, nil },
			DeviceConfig{Interval: 10 * time.Second, Deadline: time.Second, Sample: 250 * time.Millisecond}, log.NewNopLogger())
		d, err := open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20*time.Second + 10*time.Millisecond)
		list, err := d.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// 81 samples, three of them full.
		wantText(t, show(list), fmt.Sprintf(" outlet_power[1] 500\n power %d\n power_transients[down] 0\n power_transients[up] 0\n", 1000))
		if inner.full.Load() != 3 || inner.fast.Load() != 78 {
			t.Errorf("%d full, %d fast reads", inner.full.Load(), inner.fast.Load())
		}
		inner.fail.Store(true)
		time.Sleep(time.Second)
		if _, err = d.Read(t.Context()); err == nil || err.Error() != "broken" {
			t.Errorf("got %v", err)
		}
		if _, err = d.Read(t.Context()); err == nil {
			t.Error("old values are returned twice")
		}
		time.Sleep(9 * time.Second)
		_, err = d.Read(t.Context())
		wantErr(t, err, "read panicked: broken driver")
		if err := d.Close(); err != nil || inner.closed.Load() != 1 {
			t.Errorf("closed %d times, %v", inner.closed.Load(), err)
		}
	})
}

func TestSampleConfig(t *testing.T) {
	for text, want := range map[string]string{
		"{device: r01-a, driver: sim, sample: 50ms}":                "sample 50ms is not between 100ms and 1s",
		"{device: r01-a, driver: sim, sample: 2s}":                  "sample 2s is not between",
		"{device: r01-a, driver: sim, interval: 200ms, sample: 1s}": "longer than the interval",
		"{device: r01-a, driver: exec, sample: 1s, exec: {command: /bin/true, format: json, fields: [{name: a, quantity: power}]}}": "driver exec cannot be sampled fast",
		"{device: r01-a, driver: redfish, address: a, sample: 100ms}":                                                               "faster than driver redfish can, 250ms",
	} {
		_, err := New(entries(t, "facility:\n- "+text+"\n"), Deps{
			Store: collector.NewStore(), Logger: log.NewNopLogger(), Device: hallDevice, SimState: func(time.Time) *sim.State { return nil },
		})
		wantErr(t, err, want)
	}
}
