// SPDX-License-Identifier: Apache-2.0

// Package xid knows the XID and SXid codes of NVIDIA's kernel driver: what they
// mean, what to do, how they look in a kernel log, and which lines are one
// episode. It is pure: no clock, no files.
package xid

import (
	_ "embed"
	"maps"
	"slices"
	"sync"
)

// Severity says how bad an event is.
type Severity string

// The severities, worst first.
const (
	Critical Severity = "critical" // work is lost or the GPU is unusable
	Error    Severity = "error"    // a fault whose weight depends on more than the code
	Warning  Severity = "warning"  // plan something
	Info     Severity = "info"     // note it; mostly the application
)

var severities = []Severity{Critical, Error, Warning, Info}

// Entry is what is known about one code, line form or recovery action.
type Entry struct {
	// Name and Meaning are a title and one or two sentences.
	Name     string   `yaml:"name" json:"name"`
	Meaning  string   `yaml:"meaning" json:"meaning"`
	Severity Severity `yaml:"severity" json:"severity"`
	// Immediate and Investigatory are NVIDIA's buckets; empty where it gives none.
	Immediate     string `yaml:"immediate" json:"immediate,omitempty"`
	Investigatory string `yaml:"investigatory" json:"investigatory,omitempty"`
	// Action is what we say to do; IfRepeated when it comes back. Keys of Catalogue.Actions.
	Action     []string `yaml:"action" json:"action"`
	IfRepeated []string `yaml:"if_repeated" json:"if_repeated,omitempty"`
	// Application says that a program usually causes it, not the hardware.
	Application bool `yaml:"application" json:"application"`
	// Consequence says that it usually follows another code.
	Consequence bool `yaml:"consequence" json:"consequence"`
	// Counted codes have a counter from the start, so that the first event is an increase.
	Counted bool   `yaml:"counted" json:"-"`
	Notes   string `yaml:"notes" json:"notes,omitempty"`
	// Sources are keys of Catalogue.Sources.
	Sources []string `yaml:"sources" json:"sources"`
	// ChangedBy names the site's file that changed the entry.
	ChangedBy string `yaml:"-" json:"changed_by,omitempty"`
}

// Catalogue is immutable; see Load and Override.
type Catalogue struct {
	sources  map[string]string
	actions  map[string]string
	xids     map[int]Entry
	sxids    map[int]Entry
	lines    map[string]Entry
	recovery map[string]Entry
	nvlink5  []nvlinkRule
}

//go:embed catalogue.yml
var embedded []byte

var builtin = sync.OnceValues(func() (*Catalogue, error) { return Load("catalogue.yml", embedded) })

// Default is the catalogue of this build.
func Default() (*Catalogue, error) { return builtin() }

// Counted lists the XIDs whose counters start at 0, in ascending order.
func (c *Catalogue) Counted() []int { return c.codes(func(e Entry) bool { return e.Counted }) }

// Codes lists all XIDs in ascending order.
func (c *Catalogue) Codes() []int { return c.codes(func(Entry) bool { return true }) }

// Critical lists the critical XIDs in ascending order.
func (c *Catalogue) Critical() []int {
	return c.codes(func(e Entry) bool { return e.Severity == Critical })
}

func (c *Catalogue) codes(want func(Entry) bool) []int {
	var out []int
	for code, e := range c.xids {
		if want(e) {
			out = append(out, code)
		}
	}
	slices.Sort(out)
	return out
}

// Lookup finds an XID. A code that is not in the catalogue is unknown: nothing
// is guessed from its neighbours.
func (c *Catalogue) Lookup(code int) (Entry, bool) {
	e, ok := c.xids[code]
	return e, ok
}

// LookupSXid finds a code of an NVSwitch.
func (c *Catalogue) LookupSXid(code int) (Entry, bool) {
	e, ok := c.sxids[code]
	return e, ok
}

// Action explains a key of Entry.Action.
func (c *Catalogue) Action(key string) string { return c.actions[key] }

// Source is the document behind a key of Entry.Sources.
func (c *Catalogue) Source(key string) string { return c.sources[key] }

// Override returns a catalogue with the fields that data sets; everything else
// stays. data has the shape of the catalogue; name stands for it in messages
// and in Entry.ChangedBy. A code that is new must be complete.
func (c *Catalogue) Override(name string, data []byte) (*Catalogue, error) {
	next := &Catalogue{
		sources: maps.Clone(c.sources), actions: maps.Clone(c.actions),
		xids: maps.Clone(c.xids), sxids: maps.Clone(c.sxids),
		lines: maps.Clone(c.lines), recovery: maps.Clone(c.recovery),
		nvlink5: c.nvlink5,
	}
	if err := next.merge(name, data, name); err != nil {
		return nil, err
	}
	return next, nil
}
