// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"io/fs"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	promrules "github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
)

// store is a Prometheus in virtual time: its own storage, query engine and rule
// groups, evaluated when told.
type store struct {
	tb     testing.TB
	db     *tsdb.DB
	engine *promql.Engine
	groups []*promrules.Group
	now    time.Time
	refs   map[string]storage.SeriesRef // by series, of the last scrape
}

// fileLoader loads rule files from a file system.
type fileLoader struct{ fs.FS }

func (l fileLoader) Load(name string, ignore bool, scheme model.ValidationScheme) (*rulefmt.RuleGroups, []error) {
	data, err := fs.ReadFile(l.FS, name)
	if err != nil {
		return nil, []error{err}
	}
	return rulefmt.Parse(data, ignore, scheme, promParser, slog.New(slog.DiscardHandler))
}

func (fileLoader) Parse(query string) (parser.Expr, error) { return promParser.ParseExpr(query) }

func newStore(tb testing.TB, start time.Time) *store {
	return newStoreOf(tb, start, Generated(), "correlations.rules.yml", "coverage.rules.yml")
}

// newStoreOf evaluates the named rule files, in their order.
func newStoreOf(tb testing.TB, start time.Time, files fs.FS, names ...string) *store {
	tb.Helper()
	log := slog.New(slog.DiscardHandler)
	opts := tsdb.DefaultOptions()
	opts.WALSegmentSize = -1 // none
	db, err := tsdb.Open(tb.TempDir(), log, nil, opts, nil)
	if err != nil {
		tb.Fatal(err)
	}
	engine := promql.NewEngine(promql.EngineOpts{Logger: log, MaxSamples: 50e6, Timeout: time.Minute, Parser: promParser})
	tb.Cleanup(func() {
		_ = engine.Close() // a test's engine
		_ = db.Close()     // a test's storage
	})
	s := &store{tb: tb, db: db, engine: engine, now: start, refs: map[string]storage.SeriesRef{}}
	manager := promrules.NewManager(&promrules.ManagerOptions{
		QueryFunc: promrules.EngineQueryFunc(engine, db), Context: tb.Context(), AppendableV2: db, Queryable: db, Logger: log,
		NotifyFunc: func(context.Context, string, ...*promrules.Alert) {}, GroupLoader: fileLoader{files}, Parser: promParser,
	})
	for _, name := range names {
		groups, errs := manager.LoadGroups(15*time.Second, labels.EmptyLabels(), "", nil, false, name)
		if len(errs) > 0 {
			tb.Fatal(errs)
		}
		for _, g := range groups {
			for _, r := range g.AlertingRules() {
				r.SetRestored(true)
			}
			s.groups = append(s.groups, g)
		}
	}
	return s
}

// page is one scrape: values by series, written like name{label="value"}.
type page map[string]float64

// scrape writes a page at the present time; what was in the last page and is not
// in this one becomes stale, as after a real scrape.
func (s *store) scrape(p page) {
	s.tb.Helper()
	app := s.db.AppenderV2(s.tb.Context())
	ms := s.now.UnixMilli()
	next := make(map[string]storage.SeriesRef, len(p))
	write := func(series string, v float64) storage.SeriesRef {
		ref := s.refs[series]
		ls := labels.EmptyLabels()
		if ref == 0 {
			var err error
			if ls, err = promParser.ParseMetric(series); err != nil {
				s.tb.Fatal(err)
			}
		}
		ref, err := app.Append(ref, ls, 0, ms, v, nil, nil, storage.AOptions{})
		if err != nil {
			s.tb.Fatalf("%s: %v", series, err)
		}
		return ref
	}
	for series, v := range p {
		next[series] = write(series, v)
	}
	for series := range s.refs {
		if _, ok := p[series]; !ok {
			write(series, math.Float64frombits(value.StaleNaN))
		}
	}
	if err := app.Commit(); err != nil {
		s.tb.Fatal(err)
	}
	s.refs = next
}

// eval evaluates the groups that are due at the present time.
func (s *store) eval() {
	for _, g := range s.groups {
		if s.due(g) {
			g.Eval(s.tb.Context(), s.now)
		}
	}
}

// due says that a group is evaluated at the present time.
func (s *store) due(g *promrules.Group) bool {
	return s.now.Unix()%int64(g.Interval().Seconds()) == 0
}

// check fails on rules that ended with an error.
func (s *store) check() {
	s.tb.Helper()
	for _, g := range s.groups {
		for _, r := range g.Rules() {
			if err := r.LastError(); err != nil {
				s.tb.Errorf("rule %s: %v", r.Name(), err)
			}
		}
	}
}

// firing lists the firing alerts as "Name id", without what goes to nobody.
func (s *store) firing() []string {
	var out []string
	for _, g := range s.groups {
		for _, r := range g.AlertingRules() {
			for _, a := range r.ActiveAlerts() {
				quiet := a.Labels.Get("role") == "inhibitor" || a.Labels.Get("correlation") == "coverage"
				if a.State != promrules.StateFiring || quiet {
					continue
				}
				id := a.Labels.Get(labels.AlertName)
				for _, l := range []string{"cooling_unit", "feed", "rack_id", "pdu_id", "node", "gpu", "device", "source", "signal"} {
					if v := a.Labels.Get(l); v != "" && !strings.HasSuffix(id, " "+v) {
						id += " " + v
					}
				}
				out = append(out, id)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
