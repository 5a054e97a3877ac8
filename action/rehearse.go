// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"fmt"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
)

// dryInterval is the least time between two notes of what would hold an intent.
const dryInterval = 5 * time.Minute

// ResultWould is the result of an action that was rehearsed only, in the evidence
// of its event.
const ResultWould = "would"

// dryNews says whether rehearsing an intent could tell something that is not
// noted yet. mu is held.
func (r *Runner) dryNews(in ledger.Intent, j *job) bool {
	if rehearsed(&in) {
		return false
	}
	v, mode := r.Outbox.Rehearse(in, ledger.WitnessSilent)
	switch {
	case mode == "" || v.Over:
		return false
	case v.Soft && !in.Rehearsed.Soft || v.Hard && wantsHard(in.Action) || v.Ask:
		return true
	}
	return j.dryDue(v.Reason)
}

// dryDue says whether it is time to note what would hold the intent: that has
// changed, and the last note is old enough.
func (j *job) dryDue(reason string) bool {
	return reason != j.dryNote && time.Since(j.dryAt) >= dryInterval
}

// rehearsed says whether the rehearsal of an intent has come to its end.
func rehearsed(in *ledger.Intent) bool {
	return in.Action == ledger.ActionResume || in.Rehearsed.Hard || in.Rehearsed.Soft && !wantsHard(in.Action)
}

// rehearse notes how far an intent would be carried in mode hard, by the same
// rules and the same witnesses at the same moment, and what would hold it. It
// calls no target. The limit on the number of actions in a minute is left out.
func (r *Runner) rehearse(ctx context.Context, in *ledger.Intent, j *job) {
	if rehearsed(in) {
		return
	}
	mode := ""
	v, _, words := r.weigh(ctx, in.Node, func(w ledger.Witness) ledger.Verdict {
		var v ledger.Verdict
		v, mode = r.Outbox.Rehearse(*in, w)
		return v
	})
	if mode == "" || v.Over {
		return
	}
	e := ledger.Event{Actor: actor(in), Evidence: map[string]string{
		"action": in.Action, "result": ResultWould, "mode": mode, "why": in.Reason, "intent": fmt.Sprint(in.ID),
	}}
	if words != "" {
		e.Evidence["witness"] = words
	}
	hard := v.Hard && wantsHard(in.Action)
	switch {
	case hard:
		e.Reason = "would take its work away"
	case v.Soft && !in.Rehearsed.Soft:
		e.Reason = "would give it no new work"
	default:
		r.dryHeld(ctx, in, j, v, e)
		return
	}
	e.Evidence["hard"] = fmt.Sprint(hard)
	in.Rehearsed = ledger.Step{Target: ResultWould, Soft: true, Hard: hard, Note: e.Reason, At: time.Now().UTC().Round(0)}
	r.report(ctx, *in, e)
}

// dryHeld notes what would hold an intent, when that changes, and not too often.
func (r *Runner) dryHeld(ctx context.Context, in *ledger.Intent, j *job, v ledger.Verdict, e ledger.Event) {
	r.mu.Lock()
	tell := v.Reason != "" && j.dryDue(v.Reason)
	if tell {
		j.dryNote, j.dryAt = v.Reason, time.Now()
	}
	r.mu.Unlock()
	if tell {
		e.Reason, e.Evidence["result"] = "would be held: "+v.Reason, "would be held"
		r.report(ctx, *in, e)
	}
}
