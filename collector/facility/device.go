// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/rackpulse/rackpulse/collector"
	"github.com/rackpulse/rackpulse/site"
)

const (
	// maxReadings bounds what one read of a device may return: a switch with
	// 512 ports has 4608 readings.
	maxReadings = 10_000
	// maxBackoff is the longest wait between two attempts on a failed device.
	maxBackoff = time.Minute
	// closeWait is how long a stop waits for a read that hangs.
	closeWait = time.Second
)

// Families about the devices themselves. The label device keeps them visible
// while the device's other labels are not known yet.
var (
	descUp = &collector.Desc{
		Name: "facility_device_up", Labels: []string{"device", "driver"}, Max: 1,
		Help: "Whether the latest read of the facility device delivered (1) or failed (0).",
	}
	descLastSample = &collector.Desc{
		Name: "facility_last_sample_timestamp_seconds", Labels: []string{"device"},
		Help: "Time of the latest value of the facility device.",
	}
	descRefused = &collector.Desc{
		Name: "rackpulse_facility_refused_readings_total", Labels: []string{"device", "reason"}, Type: collector.Counter,
		Help: "Readings and lines of a facility device that were not understood or do not fit the quantity table, by reason.",
	}
)

// Reasons of rackpulse_facility_refused_readings_total.
const (
	refusedQuantity  = "unknown_quantity"
	refusedPart      = "part"
	refusedKind      = "kind"
	refusedDuplicate = "duplicate"
	refusedTooMany   = "too_many"
	refusedGarbage   = "garbage_line"
)

// staleAfter is the age at which the store drops a value.
func staleAfter(interval time.Duration) time.Duration { return max(3*interval, 30*time.Second) }

// device is one entry of the configuration and, while it runs, its goroutine.
type device struct {
	config DeviceConfig
	plan   Plan
	kind   func(id string) string
	store  *collector.Store
	logger log.Logger

	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended

	// busy holds a token while the driver is in use; driver and stopped belong to
	// its holder.
	busy    chan struct{}
	driver  Driver // nil while the device is not open
	stopped bool

	state   sync.Mutex
	open    bool
	peaks   bool                 // its readings hold peaks
	last    map[string]time.Time // latest value by device id
	refused map[string]uint64    // by reason
}

// again returns a device that has not run yet, to be started in the place of
// this one.
func (d *device) again() *device {
	return newDevice(d.config, d.plan, d.kind, d.store, d.logger)
}

func newDevice(c DeviceConfig, p Plan, kind func(id string) string, store *collector.Store, logger log.Logger) *device {
	return &device{
		config: c, plan: p, kind: kind, store: store, logger: logger, busy: make(chan struct{}, 1),
		last: map[string]time.Time{}, refused: map[string]uint64{},
	}
}

// statusSource is the snapshot's name for what is said about a device.
func statusSource(id string) string { return "facility_device:" + id }

// start runs the device until stop or the end of ctx; it is called once. driver
// is an open one or nil; then the device opens in its goroutine and tries again
// when that fails.
func (d *device) start(ctx context.Context, driver Driver) {
	ctx, d.cancel = context.WithCancel(ctx)
	d.done = make(chan struct{})
	d.driver = driver
	d.setOpen(driver != nil)
	go func() {
		defer close(d.done)
		collector.Poll(ctx, collector.PollConfig{
			Name:       d.config.Device,
			Interval:   d.config.Interval,
			Deadline:   d.config.Deadline,
			MaxBackoff: max(maxBackoff, d.config.Interval),
			Read:       d.read,
			OnStatus:   d.publish,
		}, d.store, d.logger)
		d.release()
	}()
}

// stop ends the goroutine and closes the device. Its values stay in the store.
func (d *device) stop() {
	if d.cancel != nil {
		d.cancel()
		<-d.done
	}
}

// forget takes the device's values and status off the page.
func (d *device) forget() {
	d.store.Remove(d.config.Device)
	d.store.Remove(statusSource(d.config.Device))
}

// release closes the driver. When a read hangs beyond closeWait that is done
// after it came back.
func (d *device) release() {
	finish := func() {
		d.stopped = true
		d.closeDriver()
		<-d.busy
	}
	timer := time.NewTimer(closeWait)
	defer timer.Stop()
	select {
	case d.busy <- struct{}{}:
		finish()
	case <-timer.C:
		level.Warn(d.logger).Log("msg", "a read hangs, the device is closed when it returns")
		go func() {
			d.busy <- struct{}{}
			finish()
		}()
	}
}

// closeDriver needs the token.
func (d *device) closeDriver() {
	if d.driver == nil {
		return
	}
	if err := d.driver.Close(); err != nil {
		level.Warn(d.logger).Log("msg", "closing a device failed", "err", err)
	}
	d.driver = nil
	d.setOpen(false)
}

func (d *device) setOpen(open bool) {
	d.state.Lock()
	defer d.state.Unlock()
	d.open = open
}

func (d *device) isOpen() bool {
	d.state.Lock()
	defer d.state.Unlock()
	return d.open
}

// read opens the device if need be and reads it once.
func (d *device) read(ctx context.Context) (collector.Snapshot, error) {
	d.busy <- struct{}{}
	defer func() { <-d.busy }()
	if d.stopped {
		return collector.Snapshot{}, context.Canceled
	}
	if d.driver == nil {
		driver, err := d.plan.Open(ctx)
		if err != nil {
			return collector.Snapshot{}, fmt.Errorf("open: %w", err)
		}
		d.driver = driver
		d.setOpen(true)
	}
	list, err := d.driver.Read(ctx)
	if g, ok := d.driver.(interface{ garbageLines() int }); ok {
		d.note(nil, map[string]int{refusedGarbage: g.garbageLines()})
	}
	if errors.Is(err, ErrGone) {
		d.closeDriver()
	}
	snap, refusal := d.snapshot(list, time.Now())
	if err = errors.Join(err, refusal); err == nil && len(snap.Points) == 0 {
		err = errors.New("the device has no value now")
	}
	for _, c := range crossCheck(list) {
		id := cmp.Or(c.Device, d.config.Device)
		if c.Implausible {
			level.Debug(d.logger).Log("msg", "values contradict each other", "of", id, "check", c.Check, "values", c.Text)
		}
		snap.Points = append(snap.Points, collector.Point{Desc: descImplausible, Subject: id, Values: []string{id, c.Check}, Value: truth(c.Implausible)})
	}
	return snap, err
}

// snapshot turns readings into points. Those that do not fit are left out; the
// error names the first.
func (d *device) snapshot(list []Reading, now time.Time) (collector.Snapshot, error) {
	points := make([]collector.Point, 0, min(len(list), maxReadings))
	seen := make(map[[3]string]bool, len(list))
	last := map[string]time.Time{}
	refused := map[string]int{}
	var first error
	refuse := func(reason string, err error) {
		refused[reason]++
		if first == nil {
			first = err
		}
	}
	for i, r := range list {
		if i == maxReadings {
			refuse(refusedTooMany, fmt.Errorf("more than %d readings", maxReadings))
			break
		}
		p, reason, err := d.point(r)
		if err == nil {
			key := [3]string{p.Subject, p.Desc.Name, strings.Join(p.Values, " ")}
			if seen[key] {
				reason, err = refusedDuplicate, fmt.Errorf("quantity %s %s of %s came twice", r.Quantity, key[2], p.Subject)
			}
			seen[key] = true
		}
		if err != nil {
			refuse(reason, err)
			continue
		}
		if p.At.IsZero() || p.At.After(now) {
			p.At = now
		}
		if p.At.After(last[p.Subject]) {
			last[p.Subject] = p.At
		}
		points = append(points, p)
	}
	d.note(last, refused)
	d.notePeaks(list)
	at := now
	if len(last) > 0 {
		at = slices.MaxFunc(slices.Collect(maps.Values(last)), time.Time.Compare)
	}
	return collector.Snapshot{Source: d.config.Device, At: at, Interval: d.config.Interval, Points: points}, first
}

// point checks one reading against the quantity table.
func (d *device) point(r Reading) (p collector.Point, reason string, err error) {
	if r.Device == "" {
		r.Device = d.config.Device
	}
	q, err := lookup(r.Quantity)
	if err != nil {
		return p, refusedQuantity, err
	}
	if err := q.allows(d.kind(r.Device)); err != nil {
		return p, refusedKind, fmt.Errorf("device %s: %w", r.Device, err)
	}
	part, err := q.part(r.Part)
	if err != nil {
		return p, refusedPart, err
	}
	p = collector.Point{Desc: q.Desc, Subject: r.Device, Value: r.Value, At: r.At}
	if q.PartLabel != "" {
		p.Values = []string{part}
	}
	if q.TextLabel != "" {
		if err := q.checkLabel(q.TextLabel, r.Text); err != nil {
			return p, refusedPart, err
		}
		p.Values = append(p.Values, r.Text)
	}
	return p, "", nil
}

func (d *device) note(last map[string]time.Time, refused map[string]int) {
	d.state.Lock()
	defer d.state.Unlock()
	for id, at := range last {
		d.last[id] = at
	}
	for reason, n := range refused {
		if n > 0 {
			d.refused[reason] += uint64(n)
		}
	}
}

// notePeaks remembers whether the device tells what happens between two reads.
func (d *device) notePeaks(list []Reading) {
	peaks := slices.ContainsFunc(list, func(r Reading) bool { return r.Quantity == "phase_current_peak" || r.Quantity == "power_transients" })
	d.state.Lock()
	defer d.state.Unlock()
	d.peaks = d.peaks || peaks
}

// publish shows how the device fares, and the devices behind it.
func (d *device) publish(st collector.Status) {
	if !st.Up && st.Consecutive == 0 {
		return // not read yet
	}
	now := time.Now()
	d.state.Lock()
	defer d.state.Unlock()
	ids := append([]string{d.config.Device}, d.plan.Serves...)
	for _, id := range slices.Sorted(maps.Keys(d.last)) {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	var points []collector.Point
	for i, id := range ids {
		up := 0.0
		if st.Up && (i == 0 || now.Sub(d.last[id]) <= staleAfter(d.config.Interval)) {
			up = 1
		}
		points = append(points, collector.Point{Desc: descUp, Subject: id, Values: []string{id, d.config.Driver}, Value: up})
		if at := d.last[id]; !at.IsZero() {
			points = append(points, collector.Point{Desc: descLastSample, Subject: id, Values: []string{id}, Value: float64(at.UnixMilli()) / 1000})
		}
	}
	if d.kind(d.config.Device) == site.KindPDU {
		points = append(points, collector.Point{Desc: descObservable, Subject: d.config.Device, Values: []string{d.config.Device}, Value: truth(d.peaks)})
	}
	for _, reason := range slices.Sorted(maps.Keys(d.refused)) {
		points = append(points, collector.Point{Desc: descRefused, Subject: d.config.Device, Values: []string{d.config.Device, reason}, Value: float64(d.refused[reason])})
	}
	d.store.Put(collector.Snapshot{
		Source: statusSource(d.config.Device),
		At:     now,
		// Statuses come as rarely as the back-off allows; they must not go stale.
		Interval: max(maxBackoff, d.config.Interval) + d.config.Deadline,
		Points:   points,
	})
}
