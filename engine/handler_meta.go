// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// maxListed bounds series, label names and label values in one answer.
const maxListed = 20_000

// selection is what series, labels and label values are asked for.
type selection struct {
	start, end time.Time
	matchers   [][]*labels.Matcher
	limit      int
}

func (e *Engine) selection(r *http.Request) (selection, error) {
	s := selection{limit: maxListed}
	var err error
	if s.start, err = formTime(r, "start", time.UnixMilli(0)); err != nil {
		return s, err
	}
	if s.end, err = formTime(r, "end", time.Now()); err != nil {
		return s, err
	}
	if s.end.Before(s.start) {
		return s, badRequest("end timestamp must not be before start time")
	}
	if text := r.Form.Get("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 0 {
			return s, badRequest("limit: %q is not a number", text)
		}
		if limit > 0 {
			s.limit = min(limit, maxListed)
		}
	}
	if s.matchers, err = e.parser.ParseMetricSelectors(r.Form["match[]"]); err != nil {
		return s, badRequest("match[]: %w", err)
	}
	return s, nil
}

// bounded cuts a list and says so.
func bounded[T any](list []T, limit int, remarks annotations.Annotations) ([]T, annotations.Annotations) {
	if len(list) <= limit {
		return list, remarks
	}
	return list[:limit], remarks.Add(errTruncated)
}

// errTruncated carries Prometheus' own words, which Grafana shows.
var errTruncated = errors.New("results truncated due to limit")

func (e *Engine) apiSeries(ctx context.Context, r *http.Request) (any, annotations.Annotations, error) {
	s, err := e.selection(r)
	if err != nil {
		return nil, nil, err
	}
	if len(s.matchers) == 0 {
		return nil, nil, badRequest("no match[] parameter provided")
	}
	q, err := e.db.Querier(s.start.UnixMilli(), s.end.UnixMilli())
	if err != nil {
		return nil, nil, err
	}
	defer q.Close()
	hints := &storage.SelectHints{Start: s.start.UnixMilli(), End: s.end.UnixMilli(), Func: "series", Limit: s.limit + 1}
	found := map[string]labels.Labels{}
	var remarks annotations.Annotations
	for _, matchers := range s.matchers {
		set := q.Select(ctx, false, hints, matchers...)
		for set.Next() && len(found) <= s.limit {
			l := set.At().Labels()
			found[l.String()] = l
		}
		if err := set.Err(); err != nil {
			return nil, nil, err
		}
		remarks.Merge(set.Warnings())
	}
	list := make([]map[string]string, 0, len(found))
	for _, key := range slices.Sorted(maps.Keys(found)) {
		list = append(list, found[key].Map())
	}
	list, remarks = bounded(list, s.limit, remarks)
	return list, remarks, nil
}

func (e *Engine) apiLabels(ctx context.Context, r *http.Request) (any, annotations.Annotations, error) {
	return e.names(r, func(q storage.LabelQuerier, hints *storage.LabelHints, m ...*labels.Matcher) ([]string, annotations.Annotations, error) {
		return q.LabelNames(ctx, hints, m...)
	})
}

func (e *Engine) apiLabelValues(ctx context.Context, r *http.Request) (any, annotations.Annotations, error) {
	name := r.PathValue("name")
	if !model.UTF8Validation.IsValidLabelName(name) {
		return nil, nil, badRequest("invalid label name: %q", name)
	}
	return e.names(r, func(q storage.LabelQuerier, hints *storage.LabelHints, m ...*labels.Matcher) ([]string, annotations.Annotations, error) {
		return q.LabelValues(ctx, name, hints, m...)
	})
}

type lookup func(storage.LabelQuerier, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error)

// names collects label names or values over all matcher sets, sorted.
func (e *Engine) names(r *http.Request, look lookup) (any, annotations.Annotations, error) {
	s, err := e.selection(r)
	if err != nil {
		return nil, nil, err
	}
	q, err := e.db.Querier(s.start.UnixMilli(), s.end.UnixMilli())
	if err != nil {
		return nil, nil, err
	}
	defer q.Close()
	if len(s.matchers) == 0 {
		s.matchers = [][]*labels.Matcher{nil}
	}
	list := []string{}
	var remarks annotations.Annotations
	for _, matchers := range s.matchers {
		found, more, err := look(q, &storage.LabelHints{Limit: s.limit + 1, LimitSmallest: true}, matchers...)
		if err != nil {
			return nil, nil, err
		}
		remarks.Merge(more)
		for _, n := range found {
			list = append(list, string([]byte(n))) // not ours beyond the querier
		}
	}
	slices.Sort(list)
	list, remarks = bounded(slices.Compact(list), s.limit, remarks)
	return list, remarks, nil
}

type apiAlert struct {
	Labels      labels.Labels `json:"labels"`
	Annotations labels.Labels `json:"annotations"`
	State       string        `json:"state"`
	ActiveAt    time.Time     `json:"activeAt"`
	Value       string        `json:"value"`
}

func activeAlerts(rule *rules.AlertingRule) []apiAlert {
	active := rule.ActiveAlerts()
	alerts := make([]apiAlert, 0, len(active))
	for _, a := range active {
		alerts = append(alerts, apiAlert{Labels: a.Labels, Annotations: a.Annotations, State: a.State.String(),
			ActiveAt: a.ActiveAt.UTC(), Value: strconv.FormatFloat(a.Value, 'e', -1, 64)})
	}
	return alerts
}

func (e *Engine) apiAlerts(context.Context, *http.Request) (any, annotations.Annotations, error) {
	alerts := []apiAlert{}
	for _, g := range e.groups() {
		for _, rule := range g.AlertingRules() {
			alerts = append(alerts, activeAlerts(rule)...)
		}
	}
	return map[string]any{"alerts": alerts}, nil, nil
}

type apiGroup struct {
	Name           string    `json:"name"`
	File           string    `json:"file"`
	Rules          []apiRule `json:"rules"`
	Interval       float64   `json:"interval"` // seconds
	Limit          int       `json:"limit"`
	EvaluationTime float64   `json:"evaluationTime"` // seconds
	LastEvaluation time.Time `json:"lastEvaluation"`
}

type apiRule struct {
	Name           string         `json:"name"`
	Query          string         `json:"query"`
	Type           string         `json:"type"` // alerting or recording
	State          string         `json:"state,omitempty"`
	Duration       *float64       `json:"duration,omitempty"`      // seconds; alerting only
	KeepFiringFor  *float64       `json:"keepFiringFor,omitempty"` // seconds; alerting only
	Labels         labels.Labels  `json:"labels"`
	Annotations    *labels.Labels `json:"annotations,omitempty"` // alerting only
	Alerts         *[]apiAlert    `json:"alerts,omitempty"`      // alerting only
	Health         string         `json:"health"`
	LastError      string         `json:"lastError,omitempty"`
	EvaluationTime float64        `json:"evaluationTime"` // seconds
	LastEvaluation time.Time      `json:"lastEvaluation"`
}

func (e *Engine) apiRules(_ context.Context, r *http.Request) (any, annotations.Annotations, error) {
	want := r.Form.Get("type")
	if want != "" && want != "alert" && want != "record" {
		return nil, nil, badRequest("type: %q: want alert or record", want)
	}
	groups := []apiGroup{}
	for _, g := range e.groups() {
		group := apiGroup{Name: g.Name(), File: g.File(), Rules: []apiRule{}, Interval: g.Interval().Seconds(), Limit: g.Limit(),
			EvaluationTime: g.GetEvaluationTime().Seconds(), LastEvaluation: g.GetLastEvaluation().UTC()}
		for _, rule := range g.Rules() {
			described := describe(rule)
			if want == "" || want+"ing" == described.Type {
				group.Rules = append(group.Rules, described)
			}
		}
		groups = append(groups, group)
	}
	return map[string]any{"groups": groups}, nil, nil
}

func describe(rule rules.Rule) apiRule {
	d := apiRule{Name: rule.Name(), Query: rule.Query().String(), Type: "recording", Labels: rule.Labels(), Health: string(rule.Health()),
		EvaluationTime: rule.GetEvaluationDuration().Seconds(), LastEvaluation: rule.GetEvaluationTimestamp().UTC()}
	if err := rule.LastError(); err != nil {
		d.LastError = err.Error()
	}
	if a, ok := rule.(*rules.AlertingRule); ok {
		hold, keep, notes, alerts := a.HoldDuration().Seconds(), a.KeepFiringFor().Seconds(), a.Annotations(), activeAlerts(a)
		d.Type, d.State, d.Duration, d.KeepFiringFor, d.Annotations, d.Alerts = "alerting", a.State().String(), &hold, &keep, &notes, &alerts
	}
	return d
}
