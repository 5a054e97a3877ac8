// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-kit/log"

	"github.com/rackpulse/rackpulse/collector"
	"github.com/rackpulse/rackpulse/sim"
)

// TestReload: unchanged devices run on, changed ones are opened before the old
// ones are closed, removed ones vanish, new ones start.
func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		r, store, stop := runningRunner(t, scriptedEntries(t, "r01-a same", "ups1 old", "main leaving"))
		defer stop()
		b.onRead("new", fixed(Reading{Quantity: "ups_load", Value: 0.5}))
		time.Sleep(time.Second)
		b.happened()
		if err := r.Apply(scriptedEntries(t, "tor1 fresh", "ups1 new", "r01-a same")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := b.happened(); got != "open new, close old, close leaving, open fresh" && got != "open new, close leaving, close old, open fresh" {
			t.Errorf("journal: %s", got)
		}
		if got := fmt.Sprint(r.Devices()); got != "[tor1 ups1 r01-a]" {
			t.Errorf("devices %s", got)
		}
		time.Sleep(time.Second)
		wantLines(t, store, `ups_load_ratio{ups="ups1"} 0.5`, `pdu_power_watt{pdu_id="r01-a",rack_id="r01"} 1000`)
		noLines(t, store, `facility_device_up{device="main"`, `rackpulse_source_up{source="main"`)
		if err := r.Apply(scriptedEntries(t, "tor1 fresh", "ups1 new", "r01-a same")); err != nil {
			t.Fatal(err)
		}
		if got := b.happened(); got != "" {
			t.Errorf("an equal configuration did something: %s", got)
		}
	})
}

// TestReloadInvalid: one bad entry changes nothing at all.
func TestReloadInvalid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		r, store, stop := runningRunner(t, scriptedEntries(t, "r01-a same", "ups1 old"))
		defer stop()
		time.Sleep(time.Second)
		b.happened()
		bad := append(scriptedEntries(t, "r01-a changed", "main new"), DeviceConfig{Device: "x", Driver: "snmpp"}, DeviceConfig{Driver: "sim"})
		err := r.Apply(bad)
		wantErr(t, err, `facility[2] x: unknown driver "snmpp"; known are exec, `, "facility[3] : device is missing")
		time.Sleep(20 * time.Second)
		if got := b.happened(); got != "" {
			t.Errorf("journal %s", got)
		}
		wantLines(t, store, `pdu_power_watt{pdu_id="r01-a",rack_id="r01"} 1000`)
		if got := fmt.Sprint(r.Devices()); got != "[r01-a ups1]" {
			t.Errorf("devices %s", got)
		}
	})
}

// TestReloadExclusive: what can be open only once is closed first; when the new
// one does not open, all is as it was.
func TestReloadExclusive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		r, store, stop := runningRunner(t, scriptedEntries(t, "r01-a one line1", "ups1 other"))
		defer stop()
		time.Sleep(time.Second)
		b.happened()

		b.onOpen("two", errors.New("cable is out"))
		err := r.Apply(scriptedEntries(t, "r01-a two line1", "ups1 another", "main new"))
		wantErr(t, err, "device r01-a: open: cable is out; the old configuration stays")
		time.Sleep(time.Second)
		// "another" was opened in good time and is closed again; "other" came back.
		if got := b.happened(); got != "open another, close one, close other, fail two, close another, open one, open other" &&
			got != "open another, close other, close one, fail two, close another, open one, open other" &&
			got != "open another, close one, close other, fail two, close another, open other, open one" &&
			got != "open another, close other, close one, fail two, close another, open other, open one" {
			t.Errorf("journal %s", got)
		}
		if got := fmt.Sprint(r.Devices()); got != "[r01-a ups1]" {
			t.Errorf("devices %s", got)
		}
		wantLines(t, store, `facility_device_up{device="r01-a",driver="scripted",pdu_id="r01-a",rack_id="r01"} 1`)

		b.onOpen("two", nil)
		if err := r.Apply(scriptedEntries(t, "r01-a two line1", "ups1 other")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := b.happened(); got != "close one, open two" {
			t.Errorf("journal %s", got)
		}
	})
}

// TestReloadFailedDevice: a device that did not work anyway does not hold up a
// reload, since the change may be its cure.
func TestReloadFailedDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.onOpen("wrong", errors.New("absent"))
		b.onOpen("alsowrong", errors.New("absent"))
		r, store, stop := runningRunner(t, scriptedEntries(t, "r01-a wrong line1"))
		defer stop()
		time.Sleep(time.Second)
		if err := r.Apply(scriptedEntries(t, "r01-a alsowrong line1")); err != nil {
			t.Fatal(err)
		}
		if err := r.Apply(scriptedEntries(t, "r01-a right line1")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		wantLines(t, store, `pdu_power_watt{pdu_id="r01-a",rack_id="r01"} 1000`)
	})
}

// TestReloadFailsBeforeClose: a changed device that does not open leaves the
// open one alone.
func TestReloadFailsBeforeClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.onOpen("wrong", errors.New("absent"))
		r, _, stop := runningRunner(t, scriptedEntries(t, "r01-a right"))
		defer stop()
		time.Sleep(time.Second)
		b.happened()
		wantErr(t, r.Apply(scriptedEntries(t, "r01-a wrong")), "device r01-a: open: absent")
		time.Sleep(time.Second)
		if got := b.happened(); got != "fail wrong" {
			t.Errorf("journal %s", got)
		}
	})
}

// TestReloadAround: a reload before Run and one after its end only change what
// is configured.
func TestReloadAround(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		store := collector.NewStore()
		r, err := New(nil, Deps{Store: store, Logger: log.NewNopLogger()})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Apply(scriptedEntries(t, "r01-a x")); err != nil {
			t.Error(err)
		}
		if got := b.happened(); got != "" {
			t.Errorf("journal %s", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { r.Run(ctx); close(done) }()
		time.Sleep(time.Second)
		if got := b.happened(); got != "open x" {
			t.Errorf("journal %s", got)
		}
		cancel()
		<-done
		if err := r.Apply(scriptedEntries(t, "r01-a y")); err != nil {
			t.Error(err)
		}
		if got := b.happened(); got != "close x" {
			t.Errorf("journal %s", got)
		}
	})
}

func TestConfigErrors(t *testing.T) {
	newBench(t)
	one := func(settings string) string {
		return "facility:\n- {device: r01-a, driver: textfile" + settings + "}\n"
	}
	ok := ", textfile: {path: /x}"
	for text, want := range map[string]string{
		one(ok + ", interval: 50ms"):                                "interval 50ms is not between 100ms",
		one(ok + ", interval: 48h"):                                 "interval 48h0m0s",
		one(ok + ", interval: 1s, deadline: 2s"):                    "deadline 2s is not between 0 and the interval 1s",
		one(ok + ", kind: toaster"):                                 `kind "toaster" is none of`,
		one(", textfil: {path: /x}"):                                `agent.yml:2: unknown key "textfil"; the settings of a driver belong in a block named after it, here "textfile"`,
		one(", textfile: {path: /x, size: 3}"):                      `unknown key "size"`,
		one(", textfile: {pth: /x}"):                                `unknown key "pth"`,
		"facility: [{driver: textfile}]":                            "device is missing",
		"facility: [{device: r01-a}]":                               "driver is missing",
		one(ok) + "- {device: r01-a, driver: textfile" + ok + "}\n": "device r01-a is read by the entries of r01-a and r01-a",
	} {
		_, err := New(entries(t, text), Deps{Store: collector.NewStore(), Logger: log.NewNopLogger(), Device: hallDevice})
		wantErr(t, err, want)
	}
	shared := scriptedEntries(t, "r01-a x /dev/ttyS0", "ups1 y /dev/ttyS0")
	_, err := New(shared, Deps{Store: collector.NewStore(), Logger: log.NewNopLogger()})
	wantErr(t, err, "/dev/ttyS0 is used by the entries of r01-a and ups1")
	served := entries(t, fmt.Sprintf("facility:\n- {device: r01-a, driver: scripted, profile: %s, scripted: {serves: [r01-out]}}\n- {device: r01-out, driver: scripted, profile: %[1]s}\n", t.Name()))
	_, err = New(served, Deps{Store: collector.NewStore(), Logger: log.NewNopLogger()})
	wantErr(t, err, "device r01-out is read by the entries of r01-a and r01-out")
	kind := entries(t, "facility:\n- {device: r77-x, kind: pdu, driver: exec, exec: {command: /x, format: json, fields: [{name: a, quantity: leak}]}}\n")
	_, err = New(kind, Deps{Store: collector.NewStore(), Logger: log.NewNopLogger()})
	wantErr(t, err, "facility[0] r77-x: exec: fields[0] (a): device r77-x: quantity leak belongs to a sensor or cooling_unit, not to a pdu")
}

func TestConfigDefaults(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "15s 10s",
		", interval: 2s":                "2s 2s",
		", interval: 1m":                "1m0s 10s",
		", interval: 1m, deadline: 45s": "1m0s 45s",
		", interval: 100ms":             "100ms 100ms",
	} {
		c := entries(t, "facility:\n- {device: r01-a, driver: sim"+text+"}\n")[0]
		if err := c.check(); err != nil || fmt.Sprint(c.Interval, " ", c.Deadline) != want {
			t.Errorf("%q: %s %s %v, want %s", text, c.Interval, c.Deadline, err, want)
		}
	}
}

// TestSimulatedMark: values of a simulated hall never pass for real ones.
func TestSimulatedMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := collector.NewStore()
		store.SetIdentity(hallIdentity())
		state := simHall()
		r, err := New([]DeviceConfig{{Device: "r01-a", Driver: "sim"}}, Deps{
			Store: store, Logger: log.NewNopLogger(), Device: hallDevice,
			SimState: func(time.Time) *sim.State { return state },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { r.Run(ctx); close(done) }()
		time.Sleep(time.Second)
		wantLines(t, store, `rackpulse_simulated{layer="facility"} 1`, `pdu_current_ampere{pdu_id="r01-a",rack_id="r01"} 10.5`)
		if err := r.Apply(nil); err != nil {
			t.Fatal(err)
		}
		noLines(t, store, "rackpulse_simulated", "pdu_", "facility_")
		cancel()
		<-done
	})
}
