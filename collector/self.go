// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// maxReason bounds a reason in bytes.
const maxReason = 160

// Status is how a source fares.
type Status struct {
	// Up says that the latest read delivered.
	Up bool
	// Reason says why it is down, or what is remarkable while it is up. It is
	// cut to one line of 160 bytes when shown.
	Reason string
	// Since is when Up took its present value.
	Since time.Time
	// LastSample is the time of the latest good snapshot; zero: none yet.
	LastSample time.Time
	// Consecutive is the number of failed reads in a row.
	Consecutive int
	// Errors counts failed reads, Abandoned those of them that did not come
	// back at their deadline.
	Errors, Abandoned uint64
	// Duration is how long the latest read took that came back; zero: none yet.
	Duration time.Duration
}

// tried reports whether the source has been read at all.
func (st Status) tried() bool { return st.Up || st.Consecutive > 0 }

// The families about the agent's own sources.
var (
	descSourceUp = &Desc{
		Name: "rackpulse_source_up", Labels: []string{"source"},
		Help: "Whether the latest read of the source delivered (1) or failed (0).",
	}
	descSourceInfo = &Desc{
		Name: "rackpulse_source_info", Labels: []string{"source", "reason"},
		Help: "Why the source is up or down, always 1.",
	}
	descReadDuration = &Desc{
		Name: "rackpulse_source_read_duration_seconds", Labels: []string{"source"},
		Help: "How long the latest read of the source took.",
	}
	descReadErrors = &Desc{
		Name: "rackpulse_source_read_errors_total", Labels: []string{"source"}, Type: Counter,
		Help: "Reads of the source that failed, those that missed their deadline included.",
	}
	descAbandoned = &Desc{
		Name: "rackpulse_source_abandoned_reads_total", Labels: []string{"source"}, Type: Counter,
		Help: "Reads of the source that did not come back at their deadline.",
	}
	descSimulated = &Desc{
		Name: "rackpulse_simulated", Labels: []string{"layer"},
		Help: "Present, with value 1, while the values of the layer come from the simulator.",
	}
	descRejected = &Desc{
		Name: "rackpulse_rejected_samples_total", Labels: []string{"field", "reason"}, Type: Counter,
		Help: "Samples that were not fit to be shown, by metric name and reason.",
	}
)

// selfSnapshot turns the state of the sources into points.
func selfSnapshot(statuses map[string]Status, simulated map[string]bool, now time.Time) Snapshot {
	points := make([]Point, 0, 5*len(statuses)+len(simulated))
	for _, name := range slices.Sorted(maps.Keys(statuses)) {
		st, source := statuses[name], []string{name}
		reason := st.Reason
		if reason == "" {
			reason = "ok"
		}
		points = append(points,
			Point{Desc: descSourceUp, Values: source, Value: boolValue(st.Up)},
			Point{Desc: descSourceInfo, Values: []string{name, reason}, Value: 1},
			Point{Desc: descReadErrors, Values: source, Value: float64(st.Errors)},
			Point{Desc: descAbandoned, Values: source, Value: float64(st.Abandoned)},
		)
		if st.Duration > 0 {
			points = append(points, Point{Desc: descReadDuration, Values: source, Value: st.Duration.Seconds()})
		}
	}
	for _, layer := range slices.Sorted(maps.Keys(simulated)) {
		points = append(points, Point{Desc: descSimulated, Values: []string{layer}, Value: 1})
	}
	return Snapshot{At: now, Interval: neverStale, Points: points}
}

// rejectedSnapshot turns the counts of rejected samples into points.
func rejectedSnapshot(rejected map[rejection]uint64, now time.Time) Snapshot {
	points := make([]Point, 0, len(rejected))
	for r, n := range rejected {
		points = append(points, Point{Desc: descRejected, Values: []string{r.field, r.reason}, Value: float64(n)})
	}
	slices.SortFunc(points, func(a, b Point) int { return slices.Compare(a.Values, b.Values) })
	return Snapshot{At: now, Interval: neverStale, Points: points}
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// shortReason makes a text fit for a label: one line, bounded.
func shortReason(reason string) string {
	reason = strings.Join(strings.Fields(reason), " ")
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	return reason
}
