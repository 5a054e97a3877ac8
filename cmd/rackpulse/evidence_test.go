// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/explain"
)

// TestIncidentsPage plays a cooling loss and looks at the page of incidents as a
// browser does: the cause, what it reaches and mutes, the evidence and the runbook.
func TestIncidentsPage(t *testing.T) {
	virtualConfig{scenario: "cooling-loss", onset: 4 * time.Minute, duration: 11 * time.Minute}.play(t, func(h *virtualHall) {
		w := httptest.NewRecorder()
		h.pages.ServeHTTP(w, httptest.NewRequestWithContext(h.ctx, "GET", "/incidents", nil))
		body := w.Body.String()
		for _, want := range []string{
			`<b>Incidents</b> 1</p>`, `<b>Affected</b> 1 rack, 2 nodes, 16 GPUs</p>`, `<dd class="cause">cooling unit crah1</dd>`,
			`<dt>Muted</dt><dd>CoolingUnitDown (1)</dd>`, `<li>cooling unit crah1: the cooling unit reports that it does not run`, `<h4>What to do</h4>`,
			`/docs/correlations/cooling-fault.md">Runbook</a>`, `api/v1/explain?alert=CoolingFault`,
		} {
			if !strings.Contains(body, want) {
				t.Errorf("the page lacks %s", want)
			}
		}
		if t.Failed() {
			t.Log(body)
		}
	})
}

// TestWebEvidence holds which candidate a page shows, and how much of it.
func TestWebEvidence(t *testing.T) {
	var many []explain.Evidence
	for i := range 9 {
		many = append(many, explain.Evidence{Entity: fmt.Sprintf("rack r%d", i), Text: "warm"})
	}
	r := &explain.Report{NextSteps: []string{"look"}, Missing: []string{"humidity"}, Candidates: []explain.Candidate{
		{Correlation: "load-heat", Evidence: many[:1]},
		{Correlation: "cooling-fault", Evidence: many, Counter: many[:2], NextSteps: []string{"start the standby unit"}},
	}}
	got := webEvidence(r, "cooling-fault")
	if len(got.For) != 7 || got.For[0] != "rack r0: warm" || got.For[6] != "and 3 more" || len(got.Against) != 2 {
		t.Errorf("for %q, against %q", got.For, got.Against)
	}
	if !slices.Equal(got.Next, []string{"start the standby unit"}) || !slices.Equal(got.Missing, r.Missing) {
		t.Errorf("next %q, missing %q", got.Next, got.Missing)
	}
	if got = webEvidence(r, "other"); len(got.For) != 1 || !slices.Equal(got.Next, r.NextSteps) {
		t.Errorf("of another correlation: %+v", got)
	}
	if got = webEvidence(&explain.Report{NextSteps: r.NextSteps}, "x"); len(got.For) != 0 || len(got.Next) != 1 {
		t.Errorf("without candidates: %+v", got)
	}
}
