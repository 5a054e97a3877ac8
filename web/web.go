// SPDX-License-Identifier: Apache-2.0

// Package web serves the hall as one page: what fires and why, then the racks
// row by row. The page is rendered on the server, works without JavaScript and
// loads nothing from elsewhere.
package web

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"time"

	"github.com/rackpulse/rackpulse/registry"
	"github.com/rackpulse/rackpulse/site"
)

//go:embed page.html.tmpl incidents.html.tmpl assets
var files embed.FS

// viewTimeout bounds how long a page waits for its data.
const viewTimeout = 10 * time.Second

// policy allows our own style sheet and script and nothing else.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Link is one entry of the page's navigation.
type Link struct {
	Name string
	URL  string // absolute, or relative to the page at /
}

// Config says what the page shows.
type Config struct {
	// View reads what is shown; it is called once per request and must be
	// safe for concurrent use.
	View func(ctx context.Context) (*registry.View, error)
	// Title stands in front of the site's name; empty means RackPulse.
	Title string
	// Links lead to other pages, such as dashboards.
	Links []Link
	// Explain says that the registry's /api/v1/explain is offered; racks and
	// nodes link to it.
	Explain bool
	// Evidence is asked for what speaks for and against the cause of an alert;
	// nil: the page of incidents shows none. Its answers are shown again for 30 s.
	Evidence func(ctx context.Context, alert registry.AlertView) (*Evidence, error)
	// Limits are the site's thresholds; nil means site.DefaultLimits.
	Limits *site.Limits
}

type handler struct {
	cfg      Config
	heat     heat
	pages    *template.Template
	evidence evidenceBook
}

// NewHandler serves the page at /, one rack at /rack/ID, what fires and why at
// /incidents, and their style sheet and script under /assets/.
func NewHandler(cfg Config) http.Handler {
	if cfg.Title == "" {
		cfg.Title = "RackPulse"
	}
	if cfg.Limits == nil {
		cfg.Limits = site.DefaultLimits()
	}
	h := &handler{cfg: cfg, heat: newHeat(cfg.Limits)}
	h.pages = template.Must(template.New("").Funcs(funcs).ParseFS(files, "*.html.tmpl"))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", h.all)
	mux.HandleFunc("GET /rack/{id}", h.rack)
	mux.HandleFunc("GET /incidents", h.incidents)
	mux.HandleFunc("GET /assets/{file}", h.asset)
	return mux
}

func (h *handler) all(w http.ResponseWriter, r *http.Request) {
	h.serve(w, r, "", func(*registry.View) bool { return true })
}

func (h *handler) rack(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	h.serve(w, r, "../", func(v *registry.View) bool {
		v.Racks = slices.DeleteFunc(slices.Clone(v.Racks), func(rack registry.RackView) bool { return rack.ID != id })
		v.Alerts = slices.DeleteFunc(slices.Clone(v.Alerts), func(a registry.AlertView) bool { return !slices.Contains(racksOf(a), id) })
		v.Rackless = nil
		return len(v.Racks) > 0
	})
}

// serve reads the view, keeps what narrow leaves of it (false: not found), and
// renders it. root leads from the page to /.
func (h *handler) serve(w http.ResponseWriter, r *http.Request, root string, narrow func(*registry.View) bool) {
	ctx, cancel := context.WithTimeout(r.Context(), viewTimeout)
	defer cancel()
	p := page{Title: h.cfg.Title, Root: root, Links: h.cfg.Links, Explain: h.cfg.Explain, Single: root != ""}
	code := http.StatusOK
	view, err := h.cfg.View(ctx)
	switch {
	case err != nil:
		code = http.StatusServiceUnavailable
		p.Failure = fmt.Sprintf("The state of the hall cannot be read: %v", err)
	default:
		own := *view // the caller's stays as it is
		if !narrow(&own) {
			code = http.StatusNotFound
			p.Failure = fmt.Sprintf("There is no rack %q.", r.PathValue("id"))
		}
		p.fill(&own, h.heat)
	}
	h.write(w, code, "page.html.tmpl", &p)
}

// write renders a page.
func (h *handler) write(w http.ResponseWriter, code int, name string, p any) {
	var body bytes.Buffer
	if err := h.pages.ExecuteTemplate(&body, name, p); err != nil {
		http.Error(w, "rendering the page: "+err.Error(), http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Cache-Control", "no-store")
	h.guard(header)
	w.WriteHeader(code)
	_, _ = w.Write(body.Bytes())
}

func (h *handler) asset(w http.ResponseWriter, r *http.Request) {
	h.guard(w.Header())
	w.Header().Set("Cache-Control", "max-age=300")
	http.ServeFileFS(w, r, files, "assets/"+r.PathValue("file"))
}

func (h *handler) guard(header http.Header) {
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "same-origin")
}
