// SPDX-License-Identifier: Apache-2.0

// Package ledger keeps what must survive a restart of the registry: the state
// of each node's lease, the history of its changes with who caused them and
// why, and the outbox of actions that follow from them. All three change in one
// transaction. Beats are never written: they live in the leader's memory.
package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Kinds of events.
const (
	// KindTransition is a change of a node's lease state, or of its reason.
	KindTransition = "transition"
	// KindAccept says that a set of GPU UUIDs became the expected one.
	KindAccept = "accept"
	// KindAction says what was done, or failed, about an intent.
	KindAction = "action"
	// KindBreaker says that a breaker opened or closed, or that somebody held or
	// reset it.
	KindBreaker = "breaker"
	// KindConflict says that two agents claimed one node or one device.
	KindConflict = "conflict"
)

// States of an intent.
const (
	// IntentPending waits to be sent.
	IntentPending = "pending"
	// IntentHeld is recorded but must not be sent; Note says what holds it.
	IntentHeld = "held"
	// IntentDone was sent, or was overtaken by a later intent; Note says which.
	IntentDone = "done"
)

// Names of the actions an intent can ask for.
const (
	// ActionSuspend asks the scheduler to place no new work on the node.
	ActionSuspend = "suspend"
	// ActionDrain asks for no new work because the node is leaving.
	ActionDrain = "drain"
	// ActionEvict asks for the node's work to be run elsewhere.
	ActionEvict = "evict"
	// ActionResume takes our own marks off the node again.
	ActionResume = "resume"
)

// Errors of a Store.
var (
	// ErrFenced says that the token of a Commit is no longer the leader's.
	ErrFenced = errors.New("fenced: another registry took over the ledger")
	// ErrClosed says that the Store was closed.
	ErrClosed = errors.New("ledger is closed")
	// ErrTooLarge says that a batch is too large for one transaction: nothing of
	// it was written, parts of it may be committed one after the other.
	ErrTooLarge = errors.New("batch is too large for one transaction")
)

// Token proves leadership. Fence grows with each election, so a former leader's
// writes are told from the present one's; it is also the registry epoch that
// agents see.
type Token struct {
	Fence uint64
}

// Event is one entry of the history. It is never changed once written.
type Event struct {
	// ID orders the history. The writer sets it (Token.Fence<<32 plus a
	// counter), so that a repeated Commit writes nothing twice.
	ID   uint64    `json:"id"`
	Time time.Time `json:"time"` // the registry's wall clock
	Kind string    `json:"kind"`
	Node string    `json:"node"`
	From string    `json:"from,omitempty"`
	To   string    `json:"to,omitempty"`
	// Reason is one sentence for people; it names UUIDs, devices, durations.
	Reason string `json:"reason,omitempty"`
	// Actor is "registry", "agent", or the name of an operator.
	Actor string `json:"actor"`
	// Evidence are the facts behind the event, such as missing UUIDs.
	Evidence map[string]string `json:"evidence,omitempty"`
}

// NodeRecord is what the registry must know of a node after a restart.
type NodeRecord struct {
	Node   string    `json:"node"`
	State  string    `json:"state"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
	// Was is the state to return to from MAINT or RESTORED.
	Was string `json:"was,omitempty"`
	// Until is the end of a maintenance; zero otherwise.
	Until time.Time `json:"until,omitzero"`
	// Held names who put the node into DRAINING or MAINT when that was an
	// operator; such a state outlives the agent's restarts.
	Held string `json:"held,omitempty"`
	// Epoch counts the node's transitions; intents carry it.
	Epoch uint64 `json:"epoch"`
	// AgentEpoch is the epoch of the agent that beat last.
	AgentEpoch uint64 `json:"agent_epoch,omitempty"`
	// Flaps counts how often the node was suspect and came back.
	Flaps uint32 `json:"flaps,omitempty"`
	// Marked says that an intent asked for something that is not undone yet.
	Marked bool `json:"marked,omitempty"`
	// Cycles counts the returns after a loss within the hour from CycleAt.
	Cycles  uint8     `json:"cycles,omitempty"`
	CycleAt time.Time `json:"cycle_at,omitzero"`
	// LastBeat is when the last beat before this record was accepted.
	LastBeat time.Time `json:"last_beat,omitzero"`
	// Accepted are the expected GPU UUIDs, sorted, with who accepted them, when
	// and why; nil: none accepted yet.
	Accepted       []string  `json:"accepted,omitempty"`
	AcceptedBy     string    `json:"accepted_by,omitempty"`
	AcceptedAt     time.Time `json:"accepted_at,omitzero"`
	AcceptedReason string    `json:"accepted_reason,omitempty"`
}

// Intent is one entry of the outbox: an action that follows from a transition.
type Intent struct {
	// ID is the ID of the event it follows from.
	ID     uint64 `json:"id"`
	Action string `json:"action"`
	Node   string `json:"node"`
	// Epoch is the node's epoch at that event: an intent with an older epoch
	// than the node's newest intent is out of date.
	Epoch   uint64    `json:"epoch"`
	State   string    `json:"state"`
	Created time.Time `json:"created"`
	Reason  string    `json:"reason,omitempty"`
	// Note says what holds it, or how it ended.
	Note string `json:"note,omitempty"`
	// Actor is who caused it, as in its event.
	Actor string `json:"actor,omitempty"`
	// Steps are what was done about it so far, one for each target.
	Steps []Step `json:"steps,omitempty"`
	// Rehearsed is how far it would have been carried so far if its node's class
	// were in mode hard; nothing of it was done.
	Rehearsed Step `json:"rehearsed,omitzero"`
	// Simulated says that its evidence came from a simulated node: it must
	// never be sent.
	Simulated bool `json:"simulated,omitempty"`
}

// Step is what one target has done about an intent.
type Step struct {
	// Target is the target's name, such as "slurm".
	Target string `json:"target"`
	// Soft says that the reversible part is done, Hard that all of it is.
	Soft bool `json:"soft,omitempty"`
	Hard bool `json:"hard,omitempty"`
	// Attempts counts the failed tries since the last success, at the time of
	// the note.
	Attempts int `json:"attempts,omitempty"`
	// Note is the result, or the last error.
	Note string    `json:"note,omitempty"`
	At   time.Time `json:"at,omitzero"`
}

// Record is one thing more that must survive a restart or a fail-over. Who writes
// it knows what its data is.
type Record struct {
	// Kind is one of the Record constants, ID tells those of a kind apart.
	Kind string `json:"kind"`
	ID   string `json:"id"`
	// Data is JSON; none in a Batch removes the record.
	Data json.RawMessage `json:"data,omitempty"`
}

// Kinds of records.
const (
	// RecordAgent says where an agent is reached.
	RecordAgent = "agent"
	// RecordHold says that somebody holds all actions.
	RecordHold = "hold"
)

// key is the record's key in a Store.
func (r *Record) key() string { return r.Kind + "/" + r.ID }

// State is what Load returns.
type State struct {
	Nodes []NodeRecord
	// Records are all there are, by kind and ID.
	Records []Record
	// Intents are those that are not done, oldest first.
	Intents []Intent
}

// Batch is one transaction. Node records, records and intents replace those with
// the same node, kind and ID, or ID; an intent also ends (IntentDone) the pending and held ones of
// the same node with a lower ID. Events are added.
type Batch struct {
	Nodes   []NodeRecord
	Records []Record
	Events  []Event
	Intents []Intent
}

// Query selects events. The zero Query means the newest 100 of all nodes.
type Query struct {
	// Node is a node id; empty: all nodes.
	Node string
	// Since is the earliest time of an event; zero: no bound.
	Since time.Time
	// Limit bounds the answer; 0 means 100, and 10,000 is the most.
	Limit int
}

// Store is a place for the ledger. Implementations are safe for concurrent use.
type Store interface {
	// Campaign waits until this process leads, or ctx ends. lost is closed when
	// the leadership ends.
	Campaign(ctx context.Context) (token Token, lost <-chan struct{}, err error)
	// Load returns the node records, the records, the open intents and the revision
	// they were read at.
	Load(ctx context.Context) (State, uint64, error)
	// Commit writes the batch whole or not at all, durably. It returns
	// ErrFenced when the token is not the leader's, and ErrTooLarge. Repeating
	// the last batch is harmless.
	Commit(ctx context.Context, token Token, batch Batch) error
	// Watch sends the events committed after the revision, in order, until ctx
	// ends or the store closes; then the channel is closed.
	Watch(ctx context.Context, rev uint64) <-chan Event
	// Events answers a query, newest first.
	Events(ctx context.Context, q Query) ([]Event, error)
	// Dump calls put with all node records, then the records, then the open
	// intents, then the events, oldest first, as they are at one moment. It ends with put's error.
	Dump(ctx context.Context, put func(Entry) error) error
	// Close gives the ledger up; it ends the leadership and all watches.
	Close() error
}

// Leader says how others reach the registry that leads.
type Leader struct {
	// Beats is the host:port that it takes beats on.
	Beats string `json:"beats"`
	// Web is the host:port of its API; empty: it told none.
	Web string `json:"web,omitempty"`
}

// String names the leader for people.
func (l Leader) String() string {
	if l.Web == "" {
		return "the registry that takes beats on " + l.Beats
	}
	return l.Web
}

// overtake returns i as it is to be kept where its node's open intent has the ID
// before (0: there is none), and whether it takes that one's place.
func overtake(before uint64, i Intent) (Intent, bool) {
	if before <= i.ID {
		return i, true
	}
	if i.State != IntentDone {
		i.State, i.Note = IntentDone, overtaken(before)
	}
	return i, false
}

func overtaken(by uint64) string { return fmt.Sprintf("overtaken by %d", by) }

// deliver sends the events of a watch that has sent those up to rev. It returns
// the new rev, and false when ctx or the store ended.
func deliver(ctx context.Context, closed <-chan struct{}, out chan<- Event, events []Event, rev uint64) (uint64, bool) {
	for i := range events {
		select {
		case out <- events[i]:
			rev = events[i].ID
		case <-ctx.Done():
			return rev, false
		case <-closed:
			return rev, false
		}
	}
	return rev, true
}

// nextFence is the fence of the next leadership: above all former ones, those of
// a restored history included.
func nextFence(last, lastEvent uint64) uint64 { return max(last, lastEvent>>32) + 1 }

const (
	// defaultEvents and defaultAge bound the history where nothing else is said.
	defaultEvents = 100000
	defaultAge    = 90 * 24 * time.Hour
	defaultLimit  = 100
	maxLimit      = 10000
)

// limit is the number of events that q asks for.
func (q Query) limit() int {
	switch {
	case q.Limit <= 0:
		return defaultLimit
	case q.Limit > maxLimit:
		return maxLimit
	}
	return q.Limit
}

// matches says whether q selects e.
func (q Query) matches(e *Event) bool {
	return (q.Node == "" || q.Node == e.Node) && !e.Time.Before(q.Since)
}
