// SPDX-License-Identifier: Apache-2.0

// Package action carries the outbox of the registry to schedulers and other
// systems: it marks nodes, takes work away, and takes its own marks off again.
// Whether anything may be done at all is decided elsewhere, right before each
// step: by the lease's breakers, the mode and the witnesses. docs/actions.md is
// its manual.
package action

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-kit/log"

	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/ledger"
)

// Order is what a target is asked to make so of one node.
type Order struct {
	// ID is the intent's; with Target and Hard it makes the idempotency key.
	ID   uint64
	Node string
	// Rack and Class are the node's in the site file; empty: none.
	Rack, Class string
	// Action is one of the ledger's: suspend, drain, evict, resume.
	Action string
	// Hard asks for the part that takes work away, besides the marks.
	Hard bool
	// Reason is one sentence for people.
	Reason  string
	Actor   string
	Created time.Time
}

// MarkPrefix begins the reason of every mark that is ours.
const MarkPrefix = "rackpulse:"

// maxMark bounds a mark, bytes: schedulers keep short reasons only.
const maxMark = 200

// Mark is the reason by which the mark is known to be ours.
func (o *Order) Mark() string {
	text := fmt.Sprintf("%s%d: %s", MarkPrefix, o.ID, strings.Join(strings.Fields(o.Reason), " "))
	return strings.ToValidUTF8(text[:min(len(text), maxMark)], "")
}

// Ours says whether a reason that was read back is of a mark of ours.
func Ours(reason string) bool { return strings.HasPrefix(reason, MarkPrefix) }

// Target is one system that nodes are marked in. Its methods may be called by
// several goroutines, for one node by one at a time.
type Target interface {
	// Apply makes the order so, whatever was before, and reads back what it
	// did: it may be called again after an answer that was lost. What others
	// marked is left alone; the note says so, and what was found and done. An
	// error means that it should be tried again.
	Apply(ctx context.Context, o Order) (note string, err error)
	// Close gives connections back.
	Close() error
}

// Deps are what a target needs of its surroundings.
type Deps struct {
	Logger log.Logger
	// Resolve takes a file name of the configuration to where it lies.
	Resolve func(file string) string
}

// Factory makes a target of its part of the configuration. Errors name the key.
type Factory func(part config.Part, deps Deps) (Target, error)

var (
	factoriesMu sync.Mutex
	factories   = map[string]Factory{}
)

// register makes a kind of target known; a second one of the name is a bug.
func register(name string, f Factory) {
	factoriesMu.Lock()
	defer factoriesMu.Unlock()
	if _, ok := factories[name]; ok {
		panic("action: two targets are named " + name)
	}
	factories[name] = f
}

// Names are the kinds of targets there are, sorted.
func Names() []string {
	factoriesMu.Lock()
	defer factoriesMu.Unlock()
	out := make([]string, 0, len(factories))
	for name := range factories {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// maxTargets bounds the targets of a registry.
const maxTargets = 16

// Named is a target with the name under which its steps are kept.
type Named struct {
	Name string
	Target
}

// Open makes the targets of a configuration. Two of a kind are told apart by
// their key name.
func Open(parts []config.Part, deps Deps) ([]Named, error) {
	if len(parts) > maxTargets {
		return nil, fmt.Errorf("%d targets, at most %d are taken", len(parts), maxTargets)
	}
	var out []Named
	fail := func(err error) ([]Named, error) {
		for _, t := range out {
			err = errors.Join(err, t.Close())
		}
		return nil, err
	}
	for _, part := range parts {
		t, err := open(part, deps)
		if err != nil {
			return fail(fmt.Errorf("%s: %w", part.Position(), err))
		}
		out = append(out, t)
		for _, other := range out[:len(out)-1] {
			if other.Name == t.Name {
				return fail(fmt.Errorf("%s: two targets are named %q: give one a name of its own", part.Position(), t.Name))
			}
		}
	}
	return out, nil
}

// head are the keys that every target has.
type head struct {
	Action string `yaml:"action"`
	Name   string `yaml:"name"`
}

// open makes one target.
func open(part config.Part, deps Deps) (Named, error) {
	var h map[string]any
	if err := part.Decode(&h); err != nil {
		return Named{}, err
	}
	kind, _ := h["action"].(string)
	factoriesMu.Lock()
	f := factories[kind]
	factoriesMu.Unlock()
	if f == nil {
		return Named{}, fmt.Errorf("action %q is none of %s", kind, strings.Join(Names(), ", "))
	}
	name := kind
	if text, ok := h["name"].(string); ok && text != "" {
		name = text
	}
	t, err := f(part, deps)
	if err != nil {
		return Named{}, fmt.Errorf("action %s: %w", kind, err)
	}
	return Named{Name: name, Target: t}, nil
}

// wantsHard says whether an intent has a part that takes work away.
func wantsHard(action string) bool {
	return action == ledger.ActionEvict || action == ledger.ActionDrain
}
