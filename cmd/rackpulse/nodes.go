// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/user"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/registry"
)

// nodeVerbs talk to a registry about nodes.
type nodeVerbs struct {
	urls      []string
	tokenFile string
	caFile    string
	asJSON    bool
	watch     bool
	node      string
	reason    string
	uuids     []string
	duration  time.Duration
}

func registerNodes(app *kingpin.Application) []verb {
	v := &nodeVerbs{}
	change := func(name, help string) *kingpin.CmdClause {
		cmd := v.flags(app.Command(name, help))
		cmd.Arg("node", "Node.").Required().StringVar(&v.node)
		cmd.Flag("reason", "Why; kept in the audit.").Required().StringVar(&v.reason)
		return cmd
	}
	list := v.flags(app.Command("nodes", "Lease board: every node of the site with its state."))
	list.Flag("json", "Print JSON.").BoolVar(&v.asJSON)
	list.Flag("watch", "Print it anew every two seconds.").BoolVar(&v.watch)
	accept := change("accept", "Take the GPUs that a node shows now as those it should have.")
	accept.Flag("uuid", "Accept exactly these; may be repeated.").StringsVar(&v.uuids)
	drain := change("drain", "Give a node no new work.")
	resume := change("resume", "End a drain or a maintenance.")
	clear := change("clear", "Let a quarantined node back.")
	leave := change("leave", "Say that a node leaves, or has left, for good.")
	maintenance := change("maintenance", "Let a node be silent for a while.")
	maintenance.Flag("for", "How long.").Default("1h").DurationVar(&v.duration)
	return []verb{
		{list, v.list},
		{accept, v.change(func(ctx context.Context, c *registry.Client) (*registry.Node, error) {
			return c.Accept(ctx, v.node, v.uuids, v.reason)
		})},
		{drain, v.change(func(ctx context.Context, c *registry.Client) (*registry.Node, error) {
			return c.Drain(ctx, v.node, v.reason)
		})},
		{resume, v.change(func(ctx context.Context, c *registry.Client) (*registry.Node, error) {
			return c.Resume(ctx, v.node, v.reason)
		})},
		{clear, v.change(func(ctx context.Context, c *registry.Client) (*registry.Node, error) {
			return c.Clear(ctx, v.node, v.reason)
		})},
		{leave, v.change(func(ctx context.Context, c *registry.Client) (*registry.Node, error) {
			return c.Leave(ctx, v.node, v.reason)
		})},
		{maintenance, v.change(func(ctx context.Context, c *registry.Client) (*registry.Node, error) {
			return c.Maintenance(ctx, v.node, v.duration, v.reason)
		})},
	}
}

// flags adds those that say how to reach the registry.
func (v *nodeVerbs) flags(cmd *kingpin.CmdClause) *kingpin.CmdClause {
	cmd.Flag("registry.url", "The registry's address; repeated for several registries, of which one leads.").Default("http://localhost:9401").StringsVar(&v.urls)
	cmd.Flag("token-file", "File with the API token.").StringVar(&v.tokenFile)
	cmd.Flag("ca-file", "Certificate authority of the registry's certificate.").StringVar(&v.caFile)
	return cmd
}

// signed adds who runs this to a reason: the token says who may, this which
// person it was.
func signed(reason string) string {
	u, err := user.Current()
	if err != nil {
		return reason
	}
	return reason + " (" + u.Username + ")"
}

func (v *nodeVerbs) client() (*registry.Client, error) {
	cfg := registry.ClientConfig{URLs: v.urls, TLS: registry.ClientTLS{CAFile: v.caFile}}
	if v.tokenFile != "" {
		token, err := config.ReadSecret(v.tokenFile)
		if err != nil {
			return nil, err
		}
		cfg.Token = token
	}
	return registry.NewClient(cfg)
}

func (v *nodeVerbs) list(ctx context.Context, std stdio) error {
	c, err := v.client()
	if err != nil {
		return err
	}
	if !v.watch {
		return v.listOnce(ctx, std, c)
	}
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		fmt.Fprint(std.out, "\x1b[H\x1b[2J") // ANSI: cursor home, clear
		if err := v.listOnce(ctx, std, c); err != nil {
			fmt.Fprintln(std.out, err) // the registry may be back in a moment
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// watchInterval is how often a live table is printed.
const watchInterval = 2 * time.Second

func (v *nodeVerbs) listOnce(ctx context.Context, std stdio, c *registry.Client) error {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return err
	}
	if v.asJSON {
		enc := json.NewEncoder(std.out)
		enc.SetIndent("", "  ")
		return enc.Encode(nodes)
	}
	return writeNodes(std, nodes, time.Now())
}

// writeNodes prints the lease board.
func writeNodes(std stdio, nodes []registry.Node, now time.Time) error {
	w := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tRACK\tSTATE\tFOR\tLEASE\tNEW WORK\tLAST BEAT\tGPUS\tREASON")
	for _, n := range nodes {
		state, up := n.State, "-"
		if state == "" {
			state = "never beat"
		}
		if n.LeaseUp != nil {
			up = map[bool]string{true: "up", false: "down"}[*n.LeaseUp]
		}
		work := map[bool]string{true: "yes", false: "no"}[n.Schedulable]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", n.Node, orDash(n.Rack), state, age(n.Since, now), up, work, age(n.LastBeat, now), len(n.GPUs), orDash(n.Reason))
	}
	return w.Flush()
}

func orDash(s string) string {
	if strings.TrimSpace(s) == "" {
		return "-"
	}
	return s
}

// change runs one change and prints the node as it is then.
func (v *nodeVerbs) change(do func(context.Context, *registry.Client) (*registry.Node, error)) func(context.Context, stdio) error {
	return func(ctx context.Context, std stdio) error {
		c, err := v.client()
		if err != nil {
			return err
		}
		v.reason = signed(v.reason)
		n, err := do(ctx, c)
		if err != nil {
			return err
		}
		return writeNodes(std, []registry.Node{*n}, time.Now())
	}
}
