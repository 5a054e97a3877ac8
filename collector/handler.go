// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"fmt"
	stdlog "log"
	"net/http"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// defaultMaxScrapes is node_exporter's default of --web.max-requests.
const defaultMaxScrapes = 40

// HandlerConfig is what an agent's pages are made of.
type HandlerConfig struct {
	Store *Store
	// Extra, if set, adds its families, sorted by name as those of a registry are,
	// to /metrics: process, runtime, build_info. Where the Store has a family of
	// the same name, that one is shown alone.
	Extra prometheus.Gatherer
	// Sources, if set, names the sources now configured. The agent is ready once
	// each has been read once.
	Sources func() []string
	// Version is shown on the landing page.
	Version string
	// MaxScrapes bounds the scrapes at one time; 0 means 40. More get a 503.
	MaxScrapes int
	// Reload and Acquire are called by POST /-/reload and /-/acquire. They are nil
	// unless lifecycle requests are enabled: 403.
	Reload, Acquire func(context.Context) error
	// Release is called by POST /-/release?for=DURATION; 0 without a duration.
	Release func(context.Context, time.Duration) error
	Logger  log.Logger
}

// NewHandler returns the pages of an agent: /, /metrics, /-/healthy (200 while
// it serves), /-/ready and the lifecycle requests.
func NewHandler(cfg HandlerConfig) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metricsHandler(cfg))
	mux.Handle("GET /{$}", landingPage{cfg.Store, cfg.Version})
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "healthy")
	})
	mux.HandleFunc("GET /-/ready", func(w http.ResponseWriter, _ *http.Request) {
		if cfg.Sources != nil && !cfg.Store.tried(cfg.Sources()) {
			answer(w, http.StatusServiceUnavailable, "not every source has been read once")
			return
		}
		answer(w, http.StatusOK, "ready")
	})
	mux.Handle("POST /-/reload", lifecycle(cfg.Reload, cfg.Logger))
	mux.Handle("POST /-/release", releaseHandler(cfg.Release, cfg.Logger))
	mux.Handle("POST /-/acquire", lifecycle(cfg.Acquire, cfg.Logger))
	return http.NewCrossOriginProtection().Handler(mux)
}

// metricsHandler offers the text format, protobuf, and OpenMetrics to those that take
// nothing else.
func metricsHandler(cfg HandlerConfig) http.Handler {
	maxScrapes := cfg.MaxScrapes
	if maxScrapes <= 0 {
		maxScrapes = defaultMaxScrapes
	}
	all := merged{cfg.Store, cfg.Extra}
	opts := promhttp.HandlerOpts{
		ErrorLog:      stdlog.New(log.NewStdlibAdapter(level.Error(cfg.Logger)), "", 0),
		ErrorHandling: promhttp.ContinueOnError,
	}
	open := opts
	open.EnableOpenMetrics = true
	return &pageHandler{merged: all, slots: make(chan struct{}, maxScrapes), logger: cfg.Logger,
		other: promhttp.HandlerFor(all, opts), openMetrics: promhttp.HandlerFor(all, open)}
}

// merged joins a Store's families with others. It takes the place of
// prometheus.Gatherers, which checks and sorts the labels of each series anew.
type merged struct {
	store *Store
	extra prometheus.Gatherer // may be nil
}

// Gather implements prometheus.Gatherer.
func (m merged) Gather() ([]*dto.MetricFamily, error) {
	page := m.store.current(time.Now())
	all, err := m.families(page)
	own := page.metricFamilies()
	families := make([]*dto.MetricFamily, len(all))
	for i, f := range all {
		if families[i] = f.other; f.other == nil {
			families[i], own = own[0], own[1:]
		}
	}
	return families, err
}

// families returns the families of both in the order of their names, that of the
// page alone where both have one. The error is the others': some may be missing.
func (m merged) families(page *page) (all []*family, err error) {
	var extra []*dto.MetricFamily
	if m.extra != nil {
		extra, err = m.extra.Gather()
	}
	own := page.families
	all = make([]*family, 0, len(own)+len(extra))
	for _, f := range extra {
		for len(own) > 0 && own[0].name < f.GetName() {
			all, own = append(all, own[0]), own[1:]
		}
		if len(own) == 0 || own[0].name != f.GetName() {
			all = append(all, &family{name: f.GetName(), other: f})
		}
	}
	return append(all, own...), err
}

// lifecycle answers a request that changes the agent; f is nil when those are
// not enabled.
func lifecycle(f func(context.Context) error, logger log.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f == nil {
			answer(w, http.StatusForbidden, "lifecycle requests are not enabled; start with --web.enable-lifecycle")
			return
		}
		level.Info(logger).Log("msg", "lifecycle request", "path", r.URL.Path, "remote", r.RemoteAddr)
		if err := f(r.Context()); err != nil {
			level.Error(logger).Log("msg", "lifecycle request failed", "path", r.URL.Path, "err", err)
			answer(w, http.StatusInternalServerError, err.Error())
			return
		}
		answer(w, http.StatusOK, "done")
	})
}

// releaseHandler is lifecycle for a release, which may have an end.
func releaseHandler(f func(context.Context, time.Duration) error, logger log.Logger) http.Handler {
	if f == nil {
		return lifecycle(nil, logger)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var d time.Duration
		if text := r.URL.Query().Get("for"); text != "" {
			var err error
			if d, err = time.ParseDuration(text); err != nil || d <= 0 {
				answer(w, http.StatusBadRequest, fmt.Sprintf("for: %q is no duration above 0, such as 10m", text))
				return
			}
		}
		lifecycle(func(ctx context.Context) error { return f(ctx, d) }, logger).ServeHTTP(w, r)
	})
}

func answer(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	// The client may be gone; there is nobody left to tell.
	_, _ = w.Write([]byte(text + "\n"))
}
