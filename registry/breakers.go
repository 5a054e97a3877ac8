// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-kit/log/level"
)

// Breaker is one open breaker, as the API shows it.
type Breaker struct {
	// Scope is full, partial, fault, rack, feed or manual; ID the rack or feed.
	Scope string    `json:"scope"`
	ID    string    `json:"id,omitempty"`
	Since time.Time `json:"since"`
	// Silent of Of nodes count against it.
	Silent int    `json:"silent"`
	Of     int    `json:"of"`
	Reason string `json:"reason"`
	HeldBy string `json:"held_by,omitempty"`
}

// breakerChange is the body of a change of a breaker.
type breakerChange struct {
	Scope  string `json:"scope,omitempty"`
	ID     string `json:"id,omitempty"`
	Reason string `json:"reason"`
}

func (r *Registry) breakers() []Breaker {
	out := []Breaker{}
	for _, b := range r.lease.Breakers() {
		out = append(out, Breaker{Scope: b.Scope, ID: b.ID, Since: b.Since.UTC(), Silent: b.Silent, Of: b.Of, Reason: b.Reason, HeldBy: b.HeldBy})
	}
	return out
}

func (r *Registry) serveBreakers(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, r.breakers())
}

func (r *Registry) holdBreaker(w http.ResponseWriter, req *http.Request) {
	r.changeBreaker(w, req, func(ctx context.Context, c *breakerChange, actor string) error {
		if c.Scope != "" || c.ID != "" {
			return fmt.Errorf("%w: a hold is of everything, it has no scope or id", errBadRequest)
		}
		return r.lease.HoldBreaker(ctx, c.Reason, actor)
	})
}

func (r *Registry) resetBreaker(w http.ResponseWriter, req *http.Request) {
	r.changeBreaker(w, req, func(ctx context.Context, c *breakerChange, actor string) error {
		return r.lease.ResetBreaker(ctx, c.Scope, c.ID, c.Reason, actor)
	})
}

// changeBreaker carries a change out and answers with what is open then.
func (r *Registry) changeBreaker(w http.ResponseWriter, req *http.Request, do func(context.Context, *breakerChange, string) error) {
	actor, ok := r.guard.mayOperate(w, req)
	if !ok {
		return
	}
	var c breakerChange
	if !r.readBody(w, req, &c) {
		return
	}
	if err := checkText("reason", c.Reason); err != nil {
		writeError(w, http.StatusBadRequest, err)
		return
	}
	if !r.Ready() {
		writeError(w, http.StatusServiceUnavailable, r.notReady())
		return
	}
	ctx, cancel := context.WithTimeout(req.Context(), operateTimeout)
	defer cancel()
	if err := do(ctx, &c, actor); err != nil {
		writeError(w, statusOf(err), err)
		return
	}
	level.Info(r.deps.Logger).Log("msg", "breaker changed", "path", req.URL.Path, "scope", c.Scope, "id", c.ID, "actor", actor, "reason", c.Reason)
	writeJSON(w, http.StatusOK, r.breakers())
}
