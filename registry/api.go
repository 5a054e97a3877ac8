// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rackpulse/rackpulse/ledger"
)

const (
	// maxBody bounds the body of a request, bytes.
	maxBody = 1 << 20
	// maxReason bounds the reason of a change, bytes.
	maxReason = 256
	// maxEvents is the most events of one answer.
	maxEvents = 10000
)

// errNotReady is the answer while the leases are not restored.
var errNotReady = errors.New("this registry does not lead, or has not restored its leases yet")

// apiError is the body of every answer that is not a success.
type apiError struct {
	Error string `json:"error"`
}

// Handler serves the API, discovery, metrics and the probes of health. Reading
// asks for a token with role read or operate where there is a tokens file;
// metrics and probes are open.
func (r *Registry) Handler() http.Handler {
	mux := http.NewServeMux()
	read := func(path string, h http.HandlerFunc) { mux.Handle("GET "+path, r.Protect(h)) }
	read("/api/v1/nodes", r.serveNodes)
	read("/api/v1/nodes/{node}", r.serveNode)
	read("/api/v1/events", r.serveEvents)
	read("/api/v1/outbox", r.serveOutbox)
	read("/api/v1/report", r.serveReport)
	read("/api/v1/site", r.serveSite)
	read("/api/v1/view", r.serveView)
	read("/api/v1/explain", r.serveExplain)
	read("/api/v1/sd/agents", r.serveAgents)
	read("/api/v1/sd/exporters", r.serveExporters)
	read("/api/v1/breakers", r.serveBreakers)
	mux.HandleFunc("POST /api/v1/alerts", r.serveAlerts)
	mux.HandleFunc("GET /api/v1/backup", r.serveBackup)
	mux.HandleFunc("POST /api/v1/breakers/hold", r.holdBreaker)
	mux.HandleFunc("POST /api/v1/breakers/reset", r.resetBreaker)
	for name, do := range operations {
		mux.HandleFunc("POST /api/v1/nodes/{node}/"+name, func(w http.ResponseWriter, req *http.Request) {
			r.operate(w, req, name, do)
		})
	}
	mux.HandleFunc("/api/", func(w http.ResponseWriter, req *http.Request) {
		writeError(w, http.StatusNotFound, fmt.Errorf("no %s %s; docs/api.md lists what there is", req.Method, req.URL.Path))
	})
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "healthy") })
	mux.HandleFunc("GET /-/ready", r.serveReady)
	mux.HandleFunc("POST /-/reload", r.serveReload)
	gatherer := r.deps.Gatherer
	if gatherer == nil {
		own := prometheus.NewRegistry()
		own.MustRegister(r)
		gatherer = own
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}))
	return r.refuseCrossOrigin(r.sendOn(mux))
}

// Protect asks for role read before next, where there is a tokens file. Where
// there are several registries only the leader answers; the others redirect to
// it. It is for pages beside the API.
func (r *Registry) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case !r.guard.mayRead(w, req):
		case r.follows():
			r.redirect(w, req)
		default:
			next.ServeHTTP(w, req)
		}
	})
}

// refuseCrossOrigin keeps other sites from using a browser's stored password.
func (r *Registry) refuseCrossOrigin(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		r.guard.refused.add(refusedOrigin)
		writeError(w, http.StatusForbidden, errors.New("a browser sent this on behalf of another site"))
	}))
	return protection.Handler(next)
}

func (r *Registry) serveReady(w http.ResponseWriter, _ *http.Request) {
	if !r.Ready() {
		http.Error(w, r.notReady().Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

func (r *Registry) serveReload(w http.ResponseWriter, req *http.Request) {
	if r.deps.Reload == nil {
		writeError(w, http.StatusForbidden, errors.New("not enabled; start with --web.enable-lifecycle"))
		return
	}
	if r.guard.tokens.Load().file {
		if _, ok := r.guard.mayOperate(w, req); !ok {
			return
		}
	}
	if err := r.deps.Reload(req.Context()); err != nil {
		writeError(w, http.StatusInternalServerError, err)
		return
	}
	fmt.Fprintln(w, "reloaded")
}

func (r *Registry) serveEvents(w http.ResponseWriter, req *http.Request) {
	q := ledger.Query{Node: req.FormValue("node")}
	var err error
	if q.Since, err = parseSince(req.FormValue("since"), time.Now()); err != nil {
		writeError(w, http.StatusBadRequest, err)
		return
	}
	if text := req.FormValue("limit"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 || q.Limit > maxEvents {
			writeError(w, http.StatusBadRequest, fmt.Errorf("limit %q is not within 1 and %d", text, maxEvents))
			return
		}
	}
	events, err := r.store.Events(req.Context(), q)
	if err != nil {
		r.fail(w, req, err)
		return
	}
	if events == nil {
		events = []ledger.Event{}
	}
	writeJSON(w, http.StatusOK, events)
}

// parseSince reads a time, or a duration before now; "" is no bound.
func parseSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("since %q: want a time such as 2026-03-01T12:00:00Z or a duration such as 1h", text)
	}
	return t, nil
}

func (r *Registry) serveOutbox(w http.ResponseWriter, req *http.Request) {
	st, _, err := r.store.Load(req.Context())
	if err != nil {
		r.fail(w, req, err)
		return
	}
	if st.Intents == nil {
		st.Intents = []ledger.Intent{}
	}
	writeJSON(w, http.StatusOK, st.Intents)
}

func (r *Registry) serveView(w http.ResponseWriter, req *http.Request) {
	v, err := r.View(req.Context())
	if err != nil {
		r.fail(w, req, err)
		return
	}
	writeJSON(w, http.StatusOK, v)
}

// fail answers with an error of our own making and logs it.
func (r *Registry) fail(w http.ResponseWriter, req *http.Request, err error) {
	level.Error(r.deps.Logger).Log("msg", "request failed", "path", req.URL.Path, "err", err)
	writeError(w, http.StatusInternalServerError, err)
}

// readBody decodes the JSON body of a request into v, strictly.
func (r *Registry) readBody(w http.ResponseWriter, req *http.Request, v any) bool {
	return r.decode(w, req, v, true)
}

// readForeign is readBody for what others define: keys that are not known are
// left out.
func (r *Registry) readForeign(w http.ResponseWriter, req *http.Request, v any) bool {
	return r.decode(w, req, v, false)
}

func (r *Registry) decode(w http.ResponseWriter, req *http.Request, v any, strict bool) bool {
	dec := json.NewDecoder(http.MaxBytesReader(w, req.Body, maxBody))
	if strict {
		dec.DisallowUnknownFields()
	}
	err := dec.Decode(v)
	if err == nil && dec.More() {
		err = errors.New("more than one value")
	}
	var large *http.MaxBytesError
	switch {
	case err == nil:
		return true
	case errors.As(err, &large):
		r.guard.refused.add(refusedTooLarge)
		writeError(w, http.StatusRequestEntityTooLarge, fmt.Errorf("the body is larger than %d bytes", maxBody))
	case errors.Is(err, io.EOF):
		writeError(w, http.StatusBadRequest, errors.New("the body is empty; want a JSON object"))
	default:
		writeError(w, http.StatusBadRequest, fmt.Errorf("body: %w", err))
	}
	return false
}

// checkText refuses texts that are empty, long, or would break a line.
func checkText(what, text string) error {
	switch {
	case strings.TrimSpace(text) == "":
		return fmt.Errorf("%s is missing", what)
	case len(text) > maxReason:
		return fmt.Errorf("%s of %d bytes, %d are the most", what, len(text), maxReason)
	case strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Errorf("%s holds control characters", what)
	}
	return nil
}

// writeJSON answers with v.
func writeJSON(w http.ResponseWriter, code int, v any) {
	data, err := json.Marshal(v)
	if err != nil { // a number that JSON has no word for
		code, data = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	// A client that went away is no fault of ours.
	_, _ = w.Write(append(data, '\n'))
}

// writeError answers with an error.
func writeError(w http.ResponseWriter, code int, err error) {
	writeJSON(w, code, apiError{Error: err.Error()})
}
