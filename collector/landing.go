// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"bytes"
	_ "embed"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

//go:embed landing.html
var landingHTML string

var landingTemplate = template.Must(template.New("landing").Parse(landingHTML))

// landingPage lists the sources with their state.
type landingPage struct {
	store   *Store
	version string
}

type landingView struct {
	Version    string
	Node, Rack string
	Origin     string
	Simulated  string
	Sources    []sourceView
}

type sourceView struct {
	Name string
	Status
	Tried bool
}

// SinceText is when the state took its present value.
func (v sourceView) SinceText() string { return timeText(v.Since) }

// LastText is the time of the latest good snapshot.
func (v sourceView) LastText() string { return timeText(v.LastSample) }

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.DateTime + "Z")
}

// ServeHTTP implements http.Handler.
func (l landingPage) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	view := l.store.landing()
	view.Version = l.version
	var page bytes.Buffer
	if err := landingTemplate.Execute(&page, view); err != nil {
		answer(w, http.StatusInternalServerError, err.Error())
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(page.Bytes()) // the client may be gone
}

// landing collects what the landing page shows.
func (s *Store) landing() landingView {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := landingView{
		Node:      s.identity.source.Node["node"],
		Rack:      s.identity.source.Node["rack_id"],
		Origin:    s.identity.origin,
		Simulated: strings.Join(slices.Sorted(maps.Keys(s.simulated)), ", "),
	}
	for _, name := range slices.Sorted(maps.Keys(s.statuses)) {
		st := s.statuses[name]
		v.Sources = append(v.Sources, sourceView{name, st, st.tried()})
	}
	return v
}
