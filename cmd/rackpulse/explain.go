// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rackpulse/rackpulse/explain"
	"github.com/rackpulse/rackpulse/query"
	"github.com/rackpulse/rackpulse/registry"
	"github.com/rackpulse/rackpulse/rules"
	"github.com/rackpulse/rackpulse/site"
	"github.com/rackpulse/rackpulse/xid"
)

// The exit statuses of explain besides 0.
const (
	exitUnknown = exitCode(2)
	exitFailed  = exitCode(3)
)

// afterLag is how much later than a time given with --at is looked: scrapes,
// evaluations and leases need it to show what happened then.
const afterLag = 2 * time.Minute

// sources says where the verbs that ask read from.
type sources struct {
	prometheus string
	siteFile   string
	registry   nodeVerbs // its flags reach a registry
}

func (s *sources) flags(cmd *kingpin.CmdClause) {
	cmd.Flag("prometheus.url", "Prometheus, Thanos, Mimir, VictoriaMetrics or a standalone; may hold user:password@.").Default("http://localhost:9090").StringVar(&s.prometheus)
	cmd.Flag("site.file", "Site file.").StringVar(&s.siteFile)
	cmd.Flag("registry.url", "Registry to take the site from; without one and without a site file, --prometheus.url is tried, as a standalone is both.").StringsVar(&s.registry.urls)
	cmd.Flag("token-file", "File with the API token of the registry.").StringVar(&s.registry.tokenFile)
	cmd.Flag("ca-file", "Certificate authority of the registry's certificate.").StringVar(&s.registry.caFile)
}

// open returns the store and the site.
func (s *sources) open(ctx context.Context) (query.Querier, *site.Site, error) {
	q, err := query.NewHTTP(query.Config{URL: s.prometheus})
	if err != nil {
		return nil, nil, err
	}
	if s.siteFile != "" {
		one, err := site.Load(s.siteFile)
		return q, one, err
	}
	guessed := len(s.registry.urls) == 0
	if guessed {
		s.registry.urls = []string{s.prometheus}
	}
	c, err := s.registry.client()
	if err == nil {
		var one *site.Site
		if one, err = c.Site(ctx); err == nil {
			return q, one, nil
		}
	}
	var status *registry.StatusError
	if guessed && (!errors.As(err, &status) || status.Code == 404) {
		return nil, nil, fmt.Errorf("no site: give --site.file or --registry.url (%w)", err)
	}
	return nil, nil, err
}

// explainVerb is "rackpulse explain".
type explainVerb struct {
	from           sources
	req            explain.Request
	at, begin, end string
	window         time.Duration
	packDir        string
	asJSON, asMD   bool
	brief, failed  bool
	job            jobFlags
}

func registerExplain(app *kingpin.Application) []verb {
	v := &explainVerb{}
	cmd := app.Command("explain", "Ranked causes of what happened to a node, GPU, rack or job, or behind an alert. Exit status 0: a cause is named, 2: unknown, 3: no answer was possible.")
	cmd.Flag("node", "Node.").StringVar(&v.req.Node)
	cmd.Flag("gpu", "UUID of a GPU.").StringVar(&v.req.GPU)
	cmd.Flag("rack", "Rack.").StringVar(&v.req.Rack)
	cmd.Flag("alert", "Name of an alert that fired.").StringVar(&v.req.Alert)
	v.job.flags(cmd)
	cmd.Flag("failed", "With --job: say nothing of one that runs, or ended well; for epilogs.").BoolVar(&v.failed)
	cmd.Flag("at", "When it happened: a time such as 2026-03-01T12:00:00Z, Unix seconds, or how long ago, such as 10m. Default: now, or when the job ended.").StringVar(&v.at)
	cmd.Flag("window", "How far back from --at, or from a job's end, to look.").Default(explain.DefaultWindow.String()).DurationVar(&v.window)
	cmd.Flag("from", "Start of the time to explain, in place of --at and --window.").StringVar(&v.begin)
	cmd.Flag("to", "End of the time to explain; default: now.").StringVar(&v.end)
	cmd.Flag("pack", "Folder of correlations in place of the built-in ones.").ExistingDirVar(&v.packDir)
	cmd.Flag("json", "Print JSON.").BoolVar(&v.asJSON)
	cmd.Flag("markdown", "Print Markdown.").BoolVar(&v.asMD)
	cmd.Flag("brief", "Print one line, as for the epilog of a job.").BoolVar(&v.brief)
	v.from.flags(cmd)
	return []verb{{cmd, v.run}}
}

func (v *explainVerb) run(ctx context.Context, std stdio) error {
	r, err := v.ask(ctx, time.Now())
	switch {
	case errors.Is(err, errEndedWell):
		return nil
	case err == nil:
		err = v.print(std, r)
	}
	switch {
	case err != nil:
		fmt.Fprintf(std.err, "rackpulse: %v\n", err)
		return exitFailed
	case !r.Named:
		return exitUnknown
	}
	return nil
}

// errEndedWell ends a question with --failed about a job that did not fail.
var errEndedWell = errors.New("the job did not fail")

func (v *explainVerb) ask(ctx context.Context, now time.Time) (*explain.Report, error) {
	if err := v.times(now); err != nil {
		return nil, err
	}
	pack, err := rules.DefaultPack()
	if v.packDir != "" {
		pack, err = rules.ReadPack(os.DirFS(v.packDir))
	}
	if err != nil {
		return nil, err
	}
	d, err := explainDeps(pack)
	if err != nil {
		return nil, err
	}
	if d.Querier, d.Site, err = v.from.open(ctx); err != nil {
		return nil, err
	}
	if v.job.id != "" {
		if err := v.askJob(ctx, d.Querier, now); err != nil {
			return nil, err
		}
	}
	return explain.Explain(ctx, d, v.req)
}

// explainDeps are what explanations need besides a store and a site.
func explainDeps(pack *rules.Pack) (explain.Deps, error) {
	catalogue, err := xid.Default()
	return explain.Deps{Pack: pack, XID: xidTexts(catalogue)}, err
}

// askJob finds the job, and asks about its end unless another time is given.
func (v *explainVerb) askJob(ctx context.Context, q query.Querier, now time.Time) error {
	at := time.Time{}
	if v.at != "" || v.begin != "" || v.end != "" {
		at = v.req.To
	}
	j, gpus, err := v.job.find(ctx, q, at, now)
	if err != nil {
		return err
	}
	if v.failed && !j.Failed {
		if j.State == "COMPLETING" {
			return fmt.Errorf("job %s is still completing: ask again", j.ID)
		}
		return errEndedWell
	}
	v.req.Job = question(j, gpus)
	if at.IsZero() && !j.End.IsZero() {
		v.req.From, v.req.To = v.around(j.End, now)
	}
	return nil
}

// around is the window of what happened at a time.
func (v *explainVerb) around(at, now time.Time) (from, to time.Time) {
	if to = at.Add(afterLag); to.After(now) {
		to = now
	}
	return at.Add(-v.window), to
}

// times fills the request's window from the flags.
func (v *explainVerb) times(now time.Time) error {
	if v.begin == "" && v.end == "" {
		at, err := when("at", v.at, now, now)
		if err != nil {
			return err
		}
		v.req.From, v.req.To = v.around(at, now)
		return nil
	}
	if v.at != "" {
		return errors.New("give either --at or --from and --to")
	}
	var err error
	if v.req.To, err = when("to", v.end, now, now); err != nil {
		return err
	}
	v.req.From, err = when("from", v.begin, now, v.req.To.Add(-v.window))
	return err
}

// when reads a time, Unix seconds, or how long before now.
func when(flag, text string, now, none time.Time) (time.Time, error) {
	if text == "" || text == "now" {
		if text == "now" {
			return now, nil
		}
		return none, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.UTC(), nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 && n < 1<<40 {
		return time.Unix(n, 0).UTC(), nil
	}
	return time.Time{}, fmt.Errorf("--%s %q: want a time such as 2026-03-01T12:00:00Z, Unix seconds, or a duration such as 10m", flag, text)
}

// xidTexts makes the catalogue's entries readable for explanations.
func xidTexts(c *xid.Catalogue) func(int) (explain.XID, bool) {
	return func(code int) (explain.XID, bool) {
		e, ok := c.Lookup(code)
		out := explain.XID{Name: e.Name, Meaning: e.Meaning, Severity: string(e.Severity), Benign: e.Application || e.Consequence}
		for _, key := range e.Action {
			out.Do = append(out.Do, c.Action(key))
		}
		return out, ok
	}
}

func (v *explainVerb) print(std stdio, r *explain.Report) error {
	switch {
	case v.asJSON:
		return writeJSON(std.out, r)
	case v.asMD:
		return r.Markdown(std.out)
	case v.brief:
		return r.Brief(std.out)
	}
	return r.Text(std.out)
}
