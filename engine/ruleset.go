// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
)

const (
	// Prometheus' defaults of the flags rules.alert.*.
	resendDelay     = time.Minute
	outageTolerance = time.Hour
	forGracePeriod  = 10 * time.Minute
)

// memoryLoader is a rules.GroupLoader over rule files held in memory.
type memoryLoader struct {
	files  map[string][]byte
	parser parser.Parser
	logger *slog.Logger
}

// Load implements rules.GroupLoader.
func (l memoryLoader) Load(name string, ignoreUnknown bool, scheme model.ValidationScheme) (*rulefmt.RuleGroups, []error) {
	content, ok := l.files[name]
	if !ok {
		return nil, []error{fmt.Errorf("%s: no such rule file", name)}
	}
	groups, errs := rulefmt.Parse(content, ignoreUnknown, scheme, l.parser, l.logger)
	for i, err := range errs {
		errs[i] = fmt.Errorf("%s: %w", name, err)
	}
	return groups, errs
}

// Parse implements rules.GroupLoader.
func (l memoryLoader) Parse(expr string) (parser.Expr, error) { return l.parser.ParseExpr(expr) }

// loadRules makes the manager and checks every file with it. The groups it
// loads here are the ones of EvalAt: nothing is restored into them.
func (e *Engine) loadRules() error {
	loader := memoryLoader{files: e.cfg.RuleFiles, parser: e.parser, logger: e.logger}
	e.manager = rules.NewManager(&rules.ManagerOptions{
		ExternalURL:  e.url,
		QueryFunc:    rules.EngineQueryFunc(e.promql, e.db),
		NotifyFunc:   e.notify.send(e.url.String()),
		Context:      e.rulesCtx,
		AppendableV2: e.db, Queryable: e.db,
		Logger:      e.logger,
		ResendDelay: resendDelay, OutageTolerance: outageTolerance, ForGracePeriod: forGracePeriod,
		GroupLoader: loader, Parser: e.parser,
	})
	for _, name := range e.ruleFileNames() {
		loaded, errs := e.manager.LoadGroups(e.cfg.EvalInterval, e.external, e.url.String(), nil, false, name)
		if len(errs) > 0 {
			return fmt.Errorf("rules: %w", errors.Join(errs...))
		}
		file, errs := loader.Load(name, false, model.UTF8Validation)
		if len(errs) > 0 {
			return fmt.Errorf("rules: %w", errors.Join(errs...))
		}
		for _, g := range file.Groups {
			group := loaded[rules.GroupKey(name, g.Name)]
			for _, rule := range group.AlertingRules() {
				rule.SetRestored(true) // else ALERTS_FOR_STATE is not written
			}
			e.virtual = append(e.virtual, group)
		}
	}
	return nil
}

func (e *Engine) ruleFileNames() []string {
	return slices.Sorted(maps.Keys(e.cfg.RuleFiles))
}

// EvalAt evaluates all rule groups that are due once, in the order of files and
// groups, at time t: virtual time for tests and benchmarks. A group is due at its
// first time and whenever its interval has passed. Times must not go back. An
// engine is driven either by EvalAt or by Run. It returns the errors of the
// rules that failed; the others have been evaluated.
func (e *Engine) EvalAt(ctx context.Context, t time.Time) error {
	if err := e.drive(virtualTime); err != nil {
		return err
	}
	ctx, leave, err := e.use(ctx)
	if err != nil {
		return err
	}
	defer leave()
	var errs []error
	for _, g := range e.virtual {
		if t.Sub(g.GetLastEvalTimestamp()) < g.Interval() {
			continue
		}
		rules.DefaultEvalIterationFunc(ctx, g, t)
		for _, r := range g.Rules() {
			if err := r.LastError(); err != nil {
				errs = append(errs, fmt.Errorf("%s: group %s: rule %s: %w", g.File(), g.Name(), r.Name(), err))
			}
		}
	}
	return errors.Join(errs...)
}

// groups lists the rule groups with their state, by file and position or name.
func (e *Engine) groups() []*rules.Group {
	e.mu.Lock()
	running := e.mode == realTime
	e.mu.Unlock()
	if running {
		return e.manager.RuleGroups()
	}
	return e.virtual
}
