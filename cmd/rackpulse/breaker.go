// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rackpulse/rackpulse/ledger"
	"github.com/rackpulse/rackpulse/registry"
)

// breakerVerbs talk to a registry about what it does: breakers, outbox, audit.
type breakerVerbs struct {
	reach     nodeVerbs
	scope, id string
	reason    string
	asJSON    bool
	query     ledger.Query
	since     time.Duration
	node      string // of the report
}

func registerBreaker(app *kingpin.Application) []verb {
	v := &breakerVerbs{}
	show := func(cmd *kingpin.CmdClause) *kingpin.CmdClause {
		v.reach.flags(cmd).Flag("json", "Print JSON.").BoolVar(&v.asJSON)
		return cmd
	}
	breaker := app.Command("breaker", "What holds actions on nodes back.")
	list := show(breaker.Command("list", "The open breakers.").Default())
	hold := show(breaker.Command("hold", "Stop all actions but those that give nodes back."))
	hold.Flag("reason", "Why; kept in the audit.").Required().StringVar(&v.reason)
	reset := show(breaker.Command("reset", "Close a breaker; it opens again if there is a reason."))
	reset.Arg("scope", "full, partial, fault, rack, feed or manual.").Required().EnumVar(&v.scope, "full", "partial", "fault", "rack", "feed", "manual")
	reset.Arg("id", "The rack or feed.").StringVar(&v.id)
	reset.Flag("reason", "Why; kept in the audit.").Required().StringVar(&v.reason)
	outbox := show(app.Command("outbox", "Actions asked for and not done, with what holds them."))
	audit := show(app.Command("audit", "What happened to nodes, newest first: who, why, with what evidence and result."))
	audit.Arg("node", "Only this node.").StringVar(&v.query.Node)
	audit.Flag("since", "How far back.").Default("24h").DurationVar(&v.since)
	audit.Flag("limit", "How many entries.").Default("100").IntVar(&v.query.Limit)
	report := show(app.Command("report", "What was done about nodes, and what would have been in mode hard: whether to go from observe to soft and on to hard."))
	report.Arg("node", "Only this node.").StringVar(&v.node)
	report.Flag("since", "How far back.").Default("24h").DurationVar(&v.since)
	breakers := func(do func(context.Context, *registry.Client) ([]registry.Breaker, error)) func(context.Context, stdio) error {
		return func(ctx context.Context, std stdio) error { return v.breakers(ctx, std, do) }
	}
	return []verb{
		{list, breakers(func(ctx context.Context, c *registry.Client) ([]registry.Breaker, error) { return c.Breakers(ctx) })},
		{hold, breakers(func(ctx context.Context, c *registry.Client) ([]registry.Breaker, error) {
			return c.HoldBreaker(ctx, signed(v.reason))
		})},
		{reset, breakers(func(ctx context.Context, c *registry.Client) ([]registry.Breaker, error) {
			return c.ResetBreaker(ctx, v.scope, v.id, signed(v.reason))
		})},
		{outbox, v.outbox},
		{audit, v.audit},
		{report, v.report},
	}
}

// table prints rows under a head, or v as JSON.
func (v *breakerVerbs) table(std stdio, value any, head string, rows []string) error {
	if v.asJSON {
		enc := json.NewEncoder(std.out)
		enc.SetIndent("", "  ")
		return enc.Encode(value)
	}
	w := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, head)
	for _, row := range rows {
		fmt.Fprintln(w, row)
	}
	return w.Flush()
}

func (v *breakerVerbs) breakers(ctx context.Context, std stdio, do func(context.Context, *registry.Client) ([]registry.Breaker, error)) error {
	c, err := v.reach.client()
	if err != nil {
		return err
	}
	open, err := do(ctx, c)
	if err != nil {
		return err
	}
	rows := make([]string, 0, len(open))
	for _, b := range open {
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%d of %d\t%s\t%s", b.Scope, orDash(b.ID), age(b.Since, time.Now()), b.Silent, b.Of, orDash(b.HeldBy), b.Reason))
	}
	if len(open) == 0 && !v.asJSON {
		_, err := fmt.Fprintln(std.out, "no breaker is open")
		return err
	}
	return v.table(std, open, "SCOPE\tID\tOPEN FOR\tNODES\tHELD BY\tREASON", rows)
}

func (v *breakerVerbs) outbox(ctx context.Context, std stdio) error {
	c, err := v.reach.client()
	if err != nil {
		return err
	}
	intents, err := c.Outbox(ctx)
	if err != nil {
		return err
	}
	rows := make([]string, 0, len(intents))
	for _, in := range intents {
		steps := ""
		for _, s := range in.Steps {
			done := "failed " + fmt.Sprint(s.Attempts) + "x"
			switch {
			case s.Hard:
				done = "done"
			case s.Soft:
				done = "marked"
			}
			steps += s.Target + ":" + done + " "
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s", in.Node, in.Action, age(in.Created, time.Now()), in.State, orDash(steps), orDash(in.Note), in.Reason))
	}
	return v.table(std, intents, "NODE\tACTION\tASKED FOR\tSTATE\tTARGETS\tHELD BY\tWHY", rows)
}

func (v *breakerVerbs) audit(ctx context.Context, std stdio) error {
	c, err := v.reach.client()
	if err != nil {
		return err
	}
	v.query.Since = time.Now().Add(-v.since)
	events, err := c.Events(ctx, v.query)
	if err != nil {
		return err
	}
	rows := make([]string, 0, len(events))
	for _, e := range events {
		what := e.Kind
		switch {
		case e.Kind == ledger.KindTransition:
			what = orDash(e.From) + " -> " + e.To
		case e.Kind == ledger.KindAction:
			what = fmt.Sprintf("%s %s: %s", e.Evidence["action"], e.Evidence["target"], e.Evidence["result"])
		case e.Kind == ledger.KindBreaker:
			what = fmt.Sprintf("breaker %s %s: %s", e.Evidence["scope"], e.Evidence["id"], e.To)
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%s", e.Time.Local().Format(time.DateTime), orDash(e.Node), what, e.Actor, e.Reason))
	}
	return v.table(std, events, "TIME\tNODE\tWHAT\tWHO\tWHY", rows)
}
