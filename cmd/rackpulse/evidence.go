// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rackpulse/rackpulse/explain"
	"github.com/rackpulse/rackpulse/registry"
	"github.com/rackpulse/rackpulse/web"
)

// maxEvidenceLines is how many observations of a kind a page shows.
const maxEvidenceLines = 6

// evidenceOf is what the page of incidents asks for an alert; nil where the
// registry explains nothing.
func evidenceOf(reg *registry.Registry) func(context.Context, registry.AlertView) (*web.Evidence, error) {
	if !reg.Explains() {
		return nil
	}
	return func(ctx context.Context, a registry.AlertView) (*web.Evidence, error) {
		got, err := reg.Explain(ctx, registry.Question{Alert: a.Name, Labels: a.Labels, To: time.Now().UTC()})
		if err != nil {
			return nil, err
		}
		report, ok := got.(*explain.Report)
		if !ok {
			return nil, fmt.Errorf("an explanation of type %T", got)
		}
		return webEvidence(report, a.Correlation), nil
	}
}

// webEvidence takes of a report what is said about the cause of a correlation: its
// best candidate of it, else the best there is.
func webEvidence(r *explain.Report, correlation string) *web.Evidence {
	out := &web.Evidence{Next: r.NextSteps, Missing: shown(r.Missing)}
	if len(r.Candidates) == 0 {
		return out
	}
	c := &r.Candidates[max(0, slices.IndexFunc(r.Candidates, func(c explain.Candidate) bool { return c.Correlation == correlation }))]
	for _, list := range []struct {
		from []explain.Evidence
		to   *[]string
	}{{c.Evidence, &out.For}, {c.Counter, &out.Against}} {
		for _, e := range list.from {
			*list.to = append(*list.to, e.String())
		}
		*list.to = shown(*list.to)
	}
	if len(c.NextSteps) > 0 {
		out.Next = c.NextSteps
	}
	return out
}

// shown cuts a list to what a page shows, and says how much more there is.
func shown(list []string) []string {
	if len(list) <= maxEvidenceLines {
		return list
	}
	return append(slices.Clone(list[:maxEvidenceLines]), fmt.Sprintf("and %d more", len(list)-maxEvidenceLines))
}
