// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-kit/log/level"

	"github.com/rackpulse/rackpulse/ledger"
)

// stepOf is the step of a target, made if need be.
func stepOf(in *ledger.Intent, target string) *ledger.Step {
	for i := range in.Steps {
		if in.Steps[i].Target == target {
			return &in.Steps[i]
		}
	}
	in.Steps = append(in.Steps, ledger.Step{Target: target})
	return &in.Steps[len(in.Steps)-1]
}

// apply calls a target and records how it went.
func (r *Runner) apply(ctx context.Context, in *ledger.Intent, j *job, t Named, step *ledger.Step, hard bool) bool {
	o := Order{ID: in.ID, Node: in.Node, Action: in.Action, Hard: hard, Reason: in.Reason, Actor: in.Actor, Created: in.Created}
	if r.Place != nil {
		o.Rack, o.Class = r.Place(in.Node)
	}
	callCtx, cancel := context.WithTimeout(ctx, applyTimeout)
	note, err := t.Apply(callCtx, o)
	cancel()
	step.At = time.Now().UTC().Round(0)
	result := "done"
	if err != nil {
		result, note = "failed", err.Error()
		j.tries++
		step.Attempts = j.tries
	} else {
		j.tries = 0
		step.Attempts, step.Soft, step.Hard = 0, true, hard
	}
	news := note != step.Note || err == nil
	step.Note = note
	r.results.WithLabelValues(t.Name, in.Action, result).Inc()
	if err != nil {
		level.Warn(r.Logger).Log("msg", "action failed, it is tried again", "node", in.Node, "action", in.Action, "target", t.Name, "attempts", step.Attempts, "err", err)
	} else {
		level.Info(r.Logger).Log("msg", "acted on a node", "node", in.Node, "action", in.Action, "hard", hard, "target", t.Name, "result", note)
	}
	if !news {
		return false
	}
	in.State, in.Note = ledger.IntentPending, ""
	if r.done(in) {
		in.State, in.Note = ledger.IntentDone, "done"
	}
	r.report(ctx, *in, ledger.Event{Reason: note, Actor: actor(in), Evidence: map[string]string{
		"action": in.Action, "target": t.Name, "result": result, "hard": fmt.Sprint(hard), "why": in.Reason, "intent": fmt.Sprint(in.ID),
	}})
	return err == nil
}

// done says whether nothing is left to do about an intent.
func (r *Runner) done(in *ledger.Intent) bool {
	for _, t := range r.Targets {
		i := slices.IndexFunc(in.Steps, func(s ledger.Step) bool { return s.Target == t.Name })
		if i < 0 || !in.Steps[i].Soft || wantsHard(in.Action) && !in.Steps[i].Hard {
			return false
		}
	}
	return true
}

// held notes what holds an intent, when that changes, and not too often.
func (r *Runner) held(ctx context.Context, in *ledger.Intent, j *job, why string) {
	r.mu.Lock()
	now := time.Now()
	tell := why != "" && why != j.note && now.Sub(j.noted) >= noteInterval
	if tell {
		j.note, j.noted = why, now
	}
	r.mu.Unlock()
	if !tell {
		return
	}
	in.State, in.Note = ledger.IntentHeld, why
	r.report(ctx, *in, ledger.Event{Reason: "held: " + why, Actor: actor(in), Evidence: map[string]string{
		"action": in.Action, "result": "held", "why": in.Reason, "intent": fmt.Sprint(in.ID),
	}})
}

// report records; what the ledger does not take now waits in its queue.
func (r *Runner) report(ctx context.Context, in ledger.Intent, e ledger.Event) {
	in.Steps = slices.Clone(in.Steps)
	if err := r.Outbox.Report(ctx, in, e); err != nil {
		level.Error(r.Logger).Log("msg", "result of an action is not in the ledger yet", "node", in.Node, "err", err)
	}
}

// actor is who caused an intent.
func actor(in *ledger.Intent) string {
	if in.Actor == "" {
		return "registry"
	}
	return in.Actor
}
