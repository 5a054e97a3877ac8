// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rackpulse/rackpulse/registry"
)

// report prints what was done about nodes, and what would have been.
func (v *breakerVerbs) report(ctx context.Context, std stdio) error {
	c, err := v.reach.client()
	if err != nil {
		return err
	}
	r, err := c.Report(ctx, time.Now().Add(-v.since), v.node)
	if err != nil {
		return err
	}
	if !v.asJSON {
		writeTotals(std.out, r)
		if len(r.Episodes) == 0 {
			return nil
		}
		fmt.Fprintln(std.out)
	}
	rows := make([]string, 0, len(r.Episodes))
	for i := range r.Episodes {
		rows = append(rows, episodeRow(&r.Episodes[i]))
	}
	return v.table(std, r, "NODE\tRACK\tFROM\tFOR\tWORST\tDONE\tWOULD BE\tBACK AFTER\tHELD BY\tWITNESS\tWHY", rows)
}

// writeTotals prints the numbers of a report.
func writeTotals(w io.Writer, r *registry.Report) {
	mode := r.Mode
	for _, class := range slices.Sorted(maps.Keys(r.Modes)) {
		mode += fmt.Sprintf(", %s of class %s", r.Modes[class], class)
	}
	t := &r.Totals
	fmt.Fprintf(w, "%s to %s, mode %s now: %d troubles, nodes in trouble: %d\n", r.Since.Local().Format(time.DateTime), r.Until.Local().Format(time.DateTime), mode, t.Episodes, t.Nodes)
	fmt.Fprintf(w, "  given no new work:      %d, and %d would have been\n", t.Marked, t.WouldMark)
	fmt.Fprintf(w, "  work taken away:        %d, and %d would have been\n", t.Evicted, t.WouldEvict)
	fmt.Fprintf(w, "    of lost nodes: false, for they were back by themselves within 5m: %d; back later: %d; back after a boot: %d; not back: %d\n", t.FalseEvictions, t.Back, t.Rebooted, t.Gone)
	fmt.Fprintf(w, "  lost, their work left:  %d\n", t.Held)
	for _, b := range r.Breakers {
		end := b.Until
		if end.IsZero() {
			end = r.Until
		}
		fmt.Fprintf(w, "  breaker %s: open for %s from %s: %s\n", strings.TrimSpace(b.Scope+" "+b.ID), end.Sub(b.From).Round(time.Second), b.From.Local().Format(time.DateTime), b.Reason)
	}
	if r.LeftOut > 0 {
		fmt.Fprintf(w, "  %d older troubles are counted, not listed\n", r.LeftOut)
	}
}

// episodeRow is one trouble as a row of the table.
func episodeRow(e *registry.Episode) string {
	depth := func(text string, at time.Time) string {
		if text == "" {
			return "-"
		}
		return fmt.Sprintf("%s after %s", text, at.Sub(e.From).Round(time.Second))
	}
	lasted := time.Duration(e.Seconds * float64(time.Second)).Round(time.Second).String()
	if e.Until.IsZero() {
		lasted += ", goes on"
	}
	back := "-"
	if !e.BackAt.IsZero() {
		back = e.BackAt.Sub(e.From).Round(time.Second).String()
		switch {
		case e.False:
			back += ", FALSE"
		case e.Boot != "":
			back += ", " + e.Boot + " boot"
		}
	}
	return strings.Join([]string{
		e.Node, orDash(e.Rack), e.From.Local().Format(time.DateTime), lasted, e.State, depth(e.Did, e.DidAt), depth(e.Would, e.WouldAt),
		back, orDash(e.HeldBy), orDash(e.Witness), e.Reason,
	}, "\t")
}
