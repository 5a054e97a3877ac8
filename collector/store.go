// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"math"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// minStale is the shortest time a value is shown after it was measured, and
// staleIntervals the number of sampling intervals it is shown for, whichever is
// longer.
const (
	minStale       = 30 * time.Second
	staleIntervals = 3
)

// Reasons of rackpulse_rejected_samples_total.
const (
	rejectNotFinite     = "not_finite"     // NaN or infinite
	rejectRange         = "range"          // outside Desc.Min..Desc.Max
	rejectStale         = "stale"          // already too old when it was put
	rejectLabels        = "labels"         // label names or their number are wrong
	rejectUnknownDevice = "unknown_device" // Identity knows no such device
	rejectDuplicate     = "duplicate"      // the same series came from an earlier source
	rejectType          = "type_conflict"  // an earlier source gives this name another type
)

type rejection struct{ field, reason string }

// Store holds the latest Snapshot of each source and renders all of them as one
// page. It is a prometheus.Gatherer. Its methods may be called at any time from
// any goroutine and never wait for a device.
type Store struct {
	mu        sync.Mutex
	entries   map[string]*entry // by source name
	statuses  map[string]Status // by source name
	simulated map[string]bool   // by layer
	rejected  map[rejection]uint64
	identity  *identity
	self      entry // rackpulse_source_* and rackpulse_simulated
	tail      entry // rackpulse_rejected_samples_total
	page      *page // nil after any change
	series    int   // number of series on the latest page
}

// NewStore returns an empty Store.
func NewStore() *Store {
	return &Store{
		entries:   map[string]*entry{},
		statuses:  map[string]Status{},
		simulated: map[string]bool{},
		rejected:  map[rejection]uint64{},
		identity:  newIdentity(Identity{}),
	}
}

// Put replaces the snapshot of snap.Source. The snapshot and everything it
// points to must not be changed afterwards. Values that are not finite, outside
// the range gate or already stale are left out and counted.
func (s *Store) Put(snap Snapshot) {
	now := time.Now()
	if snap.At.IsZero() {
		snap.At = now
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[snap.Source]
	if e == nil {
		e = &entry{}
		s.entries[snap.Source] = e
	}
	for field, n := range e.replace(snap, now) {
		s.rejected[field] += n
	}
	for _, r := range snap.Rejected {
		s.rejected[rejection{r.Field, r.Reason}] += r.Count
	}
	s.page = nil
}

// Remove forgets a source: its snapshot and its status.
func (s *Store) Remove(source string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.entries, source)
	delete(s.statuses, source)
	s.page = nil
}

// SetIdentity replaces the labels that are added to the series of this node and
// of its devices. It costs nothing when they did not change.
func (s *Store) SetIdentity(id Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.identity.equal(id) {
		s.identity.origin = id.Origin
		return
	}
	s.identity = newIdentity(id)
	s.page = nil
}

// SetStatus publishes how a source fares, as rackpulse_source_* and on the
// landing page.
func (s *Store) SetStatus(source string, st Status) {
	st.Reason = shortReason(st.Reason)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statuses[source] = st
	s.page = nil
}

// SetSimulated says whether the values of a layer ("gpu" or "facility") come
// from the simulator; rackpulse_simulated{layer} is 1 while they do, else absent.
func (s *Store) SetSimulated(layer string, simulated bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if simulated {
		s.simulated[layer] = true
	} else {
		delete(s.simulated, layer)
	}
	s.page = nil
}

// Gather returns the families of all sources, sorted by name; within a family
// the sources come in the order of their names and the points in theirs. The
// error is always nil. The families are shared with other callers: they may be
// read and encoded, not changed. In particular prometheus.Gatherers is not for
// them, since it sorts labels in place; HandlerConfig.Extra is the way to add
// the families of a registry.
func (s *Store) Gather() ([]*dto.MetricFamily, error) {
	return slices.Clone(s.current(time.Now()).metricFamilies()), nil
}

// current returns the page as it is now.
func (s *Store) current(now time.Time) *page {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.page == nil || now.After(s.page.expires) {
		s.page = s.build(now)
	}
	return s.page
}

// tried reports whether every named source has been read once, well or badly.
func (s *Store) tried(sources []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range sources {
		if !s.statuses[name].tried() {
			return false
		}
	}
	return true
}

// entry is one source's snapshot on its way to the page.
type entry struct {
	snap     Snapshot
	received time.Time
	kept     []*Point // points that passed the gates
	// rows belong to kept if rendered is set, else to an earlier snapshot whose
	// labels can be used again.
	rows     []row
	rendered bool
	identity *identity // the labels in rows were made with
}

// limit is the age at which the entry's points vanish.
func (e *entry) limit() time.Duration {
	if e.snap.Interval > math.MaxInt64/staleIntervals {
		return math.MaxInt64
	}
	return max(staleIntervals*e.snap.Interval, minStale)
}

// age is how old a point is: what its own time said when the store received it, and
// the time since then, which a clock that is set neither lengthens nor shortens.
func (e *entry) age(p *Point, now time.Time) time.Duration {
	at := p.At
	if at.IsZero() {
		at = e.snap.At
	}
	return max(e.received.Sub(at), 0) + now.Sub(e.received)
}

// replace takes a new snapshot and returns what it rejected of it.
func (e *entry) replace(snap Snapshot, now time.Time) map[rejection]uint64 {
	var rejected map[rejection]uint64
	e.snap, e.received, e.rendered = snap, now, false
	e.kept = make([]*Point, 0, len(snap.Points))
	for i := range snap.Points {
		p := &snap.Points[i]
		reason := gate(p)
		if reason == "" && e.age(p, now) > e.limit() {
			reason = rejectStale
		}
		if reason == "" {
			e.kept = append(e.kept, p)
			continue
		}
		if rejected == nil {
			rejected = map[rejection]uint64{}
		}
		rejected[rejection{p.Desc.Name, reason}]++
	}
	return rejected
}

// gate returns why a value is not fit to be shown, or nothing.
func gate(p *Point) string {
	d := p.Desc
	switch {
	case math.IsNaN(p.Value) || math.IsInf(p.Value, 0):
		return rejectNotFinite
	case (d.Min != 0 || d.Max != 0) && (p.Value < d.Min || p.Value > d.Max):
		return rejectRange
	}
	return ""
}
