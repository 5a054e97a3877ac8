// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/annotations"
)

const (
	maxConcurrent = 4       // HTTP queries at a time; more of them wait
	maxForm       = 1 << 20 // bytes of a posted form
	maxPoints     = 11_000  // steps of a range query, as in Prometheus
	maxRemarks    = 10      // warnings and infos in an answer
	// apiVersion is the Prometheus whose API this is a part of.
	apiVersion = "3.16.0"
)

// envelope is the frame of every answer of the Prometheus HTTP API.
type envelope struct {
	Status    string   `json:"status"`
	Data      any      `json:"data,omitempty"`
	ErrorType string   `json:"errorType,omitempty"`
	Error     string   `json:"error,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`
	Infos     []string `json:"infos,omitempty"`
}

// apiError is an error with the type and status code of the Prometheus HTTP API.
type apiError struct {
	kind string
	code int
	err  error
}

// Error implements error.
func (e *apiError) Error() string { return e.err.Error() }

func badRequest(format string, args ...any) error {
	return &apiError{"bad_data", http.StatusBadRequest, fmt.Errorf(format, args...)}
}

// answerFunc answers one endpoint; the query is over when it returns, so its
// data must not need the storage any more.
type answerFunc func(ctx context.Context, r *http.Request) (any, annotations.Annotations, error)

// Handler serves the part of the Prometheus HTTP API that Grafana, promtool
// and amtool read: query, query_range, series, labels, label values, alerts,
// rules and status/buildinfo, under /api/v1/.
func (e *Engine) Handler() http.Handler {
	mux := http.NewServeMux()
	for path, answer := range map[string]answerFunc{
		"query": e.apiQuery, "query_range": e.apiRange, "series": e.apiSeries, "labels": e.apiLabels,
	} {
		mux.HandleFunc("GET /api/v1/"+path, e.endpoint(answer))
		mux.HandleFunc("POST /api/v1/"+path, e.endpoint(answer))
	}
	for path, answer := range map[string]answerFunc{
		"label/{name}/values": e.apiLabelValues, "alerts": e.apiAlerts, "rules": e.apiRules, "status/buildinfo": apiBuildInfo,
	} {
		mux.HandleFunc("GET /api/v1/"+path, e.endpoint(answer))
	}
	return mux
}

// endpoint bounds, runs and encodes one request.
func (e *Engine) endpoint(answer answerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := r.ParseForm(); err != nil {
			respond(w, envelope{}, badRequest("form: %w", err))
			return
		}
		ctx, leave, err := e.use(r.Context())
		if err != nil {
			respond(w, envelope{}, &apiError{"unavailable", http.StatusServiceUnavailable, err})
			return
		}
		defer leave()
		ctx, cancel := context.WithTimeout(ctx, queryTimeout)
		defer cancel()
		select {
		case e.slots <- struct{}{}:
			defer func() { <-e.slots }()
		case <-ctx.Done():
			respond(w, envelope{}, &apiError{"unavailable", http.StatusServiceUnavailable, errors.New("too many queries at a time")})
			return
		}
		data, remarks, err := answer(ctx, r)
		warnings, infos := remarks.AsStrings(r.Form.Get("query"), maxRemarks, maxRemarks)
		respond(w, envelope{Data: data, Warnings: warnings, Infos: infos}, err)
	}
}

func respond(w http.ResponseWriter, env envelope, err error) {
	env.Status = "success"
	if err == nil {
		var body []byte
		if body, err = json.Marshal(env); err == nil {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(body)
			return
		}
	}
	e := classify(err)
	body, _ := json.Marshal(envelope{Status: "error", ErrorType: e.kind, Error: e.Error()}) // strings only: cannot fail
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.code)
	_, _ = w.Write(body)
}

// classify gives an error the type and code Prometheus gives it.
func classify(err error) *apiError {
	var known *apiError
	var canceled promql.ErrQueryCanceled
	var timeout promql.ErrQueryTimeout
	var parse parser.ParseErrors
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &parse):
		return &apiError{"bad_data", http.StatusBadRequest, err}
	case errors.As(err, &canceled), errors.Is(err, context.Canceled):
		return &apiError{"canceled", http.StatusServiceUnavailable, err}
	case errors.As(err, &timeout), errors.Is(err, context.DeadlineExceeded):
		return &apiError{"timeout", http.StatusServiceUnavailable, err}
	default:
		return &apiError{"execution", http.StatusUnprocessableEntity, err}
	}
}

type queryData struct {
	ResultType parser.ValueType `json:"resultType"`
	Result     json.RawMessage  `json:"result"`
}

func (e *Engine) apiQuery(ctx context.Context, r *http.Request) (any, annotations.Annotations, error) {
	at, err := formTime(r, "time", time.Now())
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel, err := formTimeout(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	defer cancel()
	q, err := e.promql.NewInstantQuery(ctx, e.db, nil, r.Form.Get("query"), at)
	if err != nil {
		return nil, nil, badRequest("query: %w", err)
	}
	return execute(ctx, q)
}

func (e *Engine) apiRange(ctx context.Context, r *http.Request) (any, annotations.Annotations, error) {
	start, err := formTime(r, "start", time.Time{})
	if err != nil {
		return nil, nil, err
	}
	end, err := formTime(r, "end", time.Time{})
	if err != nil {
		return nil, nil, err
	}
	step, err := formDuration(r, "step")
	switch {
	case err != nil:
		return nil, nil, err
	case step < time.Millisecond:
		return nil, nil, badRequest("step: want at least 1ms")
	case end.Before(start):
		return nil, nil, badRequest("end timestamp must not be before start time")
	case end.Sub(start)/step > maxPoints:
		return nil, nil, badRequest("exceeded maximum resolution of %d points per series; use a larger step", maxPoints)
	}
	ctx, cancel, err := formTimeout(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	defer cancel()
	q, err := e.promql.NewRangeQuery(ctx, e.db, nil, r.Form.Get("query"), start, end, step)
	if err != nil {
		return nil, nil, badRequest("query: %w", err)
	}
	return execute(ctx, q)
}

// execute runs a query and encodes its result, which is the engine's again
// when the query is closed.
func execute(ctx context.Context, q promql.Query) (any, annotations.Annotations, error) {
	defer q.Close()
	res := q.Exec(ctx)
	if res.Err != nil {
		return nil, res.Warnings, res.Err
	}
	encoded, err := json.Marshal(res.Value)
	if err != nil {
		return nil, res.Warnings, err
	}
	return queryData{ResultType: res.Value.Type(), Result: encoded}, res.Warnings, nil
}

func apiBuildInfo(context.Context, *http.Request) (any, annotations.Annotations, error) {
	return map[string]string{
		"version": apiVersion, "revision": "", "branch": "rackpulse", "buildUser": "", "buildDate": "", "goVersion": runtime.Version(),
	}, nil, nil
}

// formTime reads a time in unix seconds or RFC 3339. A zero def means that the
// parameter must be given.
func formTime(r *http.Request, name string, def time.Time) (time.Time, error) {
	text := r.Form.Get(name)
	if text == "" {
		if def.IsZero() {
			return def, badRequest("%s: missing", name)
		}
		return def, nil
	}
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		if math.IsNaN(seconds) || math.Abs(seconds) > math.MaxInt64/1e6 {
			return def, badRequest("%s: %q is out of range", name, text)
		}
		return time.UnixMilli(int64(math.Round(seconds * 1000))).UTC(), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return def, badRequest("%s: %q is neither unix seconds nor RFC 3339", name, text)
	}
	return t, nil
}

// formDuration reads seconds or a Prometheus duration such as 1m30s.
func formDuration(r *http.Request, name string) (time.Duration, error) {
	text := r.Form.Get(name)
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		if ns := seconds * float64(time.Second); !math.IsNaN(ns) && math.Abs(ns) < math.MaxInt64 {
			return time.Duration(ns), nil
		}
		return 0, badRequest("%s: %q is out of range", name, text)
	}
	d, err := model.ParseDuration(text)
	if err != nil {
		return 0, badRequest("%s: %q is neither seconds nor a duration", name, text)
	}
	return time.Duration(d), nil
}

func formTimeout(ctx context.Context, r *http.Request) (context.Context, context.CancelFunc, error) {
	if r.Form.Get("timeout") == "" {
		return ctx, func() {}, nil
	}
	timeout, err := formDuration(r, "timeout")
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	return ctx, cancel, nil
}
