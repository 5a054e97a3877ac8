// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// notReady says why this registry does not answer, and who does.
func (r *Registry) notReady() error {
	if r.leader != nil {
		if l, ok := r.leader(); ok {
			return fmt.Errorf("this registry is not leading; the leader is %s", l)
		}
	}
	return errNotReady
}

// follows says whether this is one of several registries and does not lead.
func (r *Registry) follows() bool { return r.leader != nil && !r.Ready() }

// sendOn lets the leader answer what asks for the API, for reading and for
// changes alike. Probes, metrics and the reload are each registry's own.
func (r *Registry) sendOn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case !strings.HasPrefix(req.URL.Path, "/api/") || !r.follows():
			next.ServeHTTP(w, req)
		case r.guard.mayRead(w, req):
			r.redirect(w, req)
		}
	})
}

// redirect answers in the leader's place: 307, which keeps method and body, to
// the same path there, or 503 while nobody is known to lead or it told no
// address. The leader is taken to speak as this registry was spoken to, with TLS
// or without.
func (r *Registry) redirect(w http.ResponseWriter, req *http.Request) {
	l, ok := r.leader()
	if !ok || l.Web == "" {
		writeError(w, http.StatusServiceUnavailable, r.notReady())
		return
	}
	to := url.URL{Scheme: "http", Host: l.Web, Path: req.URL.Path, RawPath: req.URL.RawPath, RawQuery: req.URL.RawQuery}
	if req.TLS != nil {
		to.Scheme = "https"
	}
	w.Header().Set("Location", to.String())
	writeError(w, http.StatusTemporaryRedirect, r.notReady())
}
