// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rackpulse/rackpulse/action"
	"github.com/rackpulse/rackpulse/explain"
	"github.com/rackpulse/rackpulse/query"
	"github.com/rackpulse/rackpulse/registry"
	"github.com/rackpulse/rackpulse/rules"
	"github.com/rackpulse/rackpulse/site"
)

// servedExplain is what the registry answers questions with; nil without a store.
// A job is looked for in the agents' series alone: nobody's schedulers are asked
// for a reader of the API.
func servedExplain(q query.Querier, where func() *site.Site) (func(context.Context, registry.Question) (registry.Explanation, error), error) {
	if q == nil {
		return nil, nil
	}
	pack, err := rules.DefaultPack()
	if err != nil {
		return nil, err
	}
	deps, err := explainDeps(pack)
	if err != nil {
		return nil, err
	}
	deps.Querier = q
	return func(ctx context.Context, asked registry.Question) (registry.Explanation, error) {
		own := deps
		own.Site = where()
		req := explain.Request{Node: asked.Node, GPU: asked.GPU, Rack: asked.Rack, Alert: asked.Alert, Labels: asked.Labels, From: asked.From, To: asked.To}
		if asked.Job != "" {
			if err := servedJob(ctx, q, asked, &req); err != nil {
				return nil, err
			}
		}
		r, err := explain.Explain(ctx, own, req)
		if errors.Is(err, explain.ErrStore) {
			err = fmt.Errorf("%w: %w", registry.ErrStore, err)
		}
		if err != nil {
			return nil, err
		}
		return r, nil
	}, nil
}

// servedJob finds the job in the store, and asks about its end unless a start is
// given.
func servedJob(ctx context.Context, q query.Querier, asked registry.Question, req *explain.Request) error {
	seen, err := seenJob(ctx, q, asked.Job, nil, asked.To.Add(-jobLookback), asked.To)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", registry.ErrStore, err)
	case len(seen.nodes) == 0:
		return fmt.Errorf("the store has no series of job %s in the %s before %s", asked.Job, jobLookback, asked.To.UTC().Format(time.RFC3339))
	}
	j := seen.job(asked.Job, asked.To)
	req.Job = question(j, seen.gpus)
	if asked.From.IsZero() && j.Ended {
		req.From, req.To = j.End.Add(-explain.DefaultWindow), j.End.Add(seen.step+afterLag)
		if req.To.After(asked.To) {
			req.To = asked.To
		}
	}
	return nil
}

// job is the job as the series alone tell of it, seen until a time.
func (s *jobSeen) job(id string, until time.Time) *action.Job {
	j := &action.Job{ID: id, Nodes: s.nodes, Start: s.first}
	if s.last.Before(until.Add(-2 * s.step)) {
		j.End, j.Ended = s.last, true
	}
	return j
}
