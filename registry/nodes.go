// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-kit/log/level"

	"github.com/rackpulse/rackpulse/lease"
	"github.com/rackpulse/rackpulse/site"
)

// operateTimeout bounds the wait for the ledger to hold a change.
const operateTimeout = 15 * time.Second

// Node is one node of the site with its lease. What is not known is left out.
type Node struct {
	Node  string `json:"node"`
	Rack  string `json:"rack_id,omitempty"`
	Class string `json:"class,omitempty"`
	// State is a lease state; empty when the node never beat.
	State       string    `json:"state,omitempty"`
	Since       time.Time `json:"since,omitzero"`
	Reason      string    `json:"reason,omitempty"`
	LeaseUp     *bool     `json:"lease_up,omitempty"`
	Schedulable bool      `json:"schedulable"`
	// Until is the end of a maintenance, or of the grace after a restart.
	Until    time.Time `json:"until,omitzero"`
	HeldBy   string    `json:"held_by,omitempty"`
	Beating  bool      `json:"beating"`
	LastBeat time.Time `json:"last_beat,omitzero"`
	// SkewSeconds is the node's clock less the registry's.
	SkewSeconds *float64 `json:"skew_seconds,omitempty"`
	// GPUs are the UUIDs it shows, Accepted those that are expected, Missing
	// and Extra the difference.
	GPUs           []string  `json:"gpus,omitempty"`
	Accepted       []string  `json:"accepted,omitempty"`
	AcceptedBy     string    `json:"accepted_by,omitempty"`
	AcceptedAt     time.Time `json:"accepted_at,omitzero"`
	AcceptedReason string    `json:"accepted_reason,omitempty"`
	Missing        []string  `json:"missing,omitempty"`
	Extra          []string  `json:"extra,omitempty"`
	// Inventory is fresh, stale or unavailable.
	Inventory string   `json:"inventory,omitempty"`
	Breaches  []string `json:"breaches,omitempty"`
	Flaps     uint32   `json:"flaps,omitempty"`
	Conflicts uint32   `json:"conflicts,omitempty"`
	Agent     *Agent   `json:"agent,omitempty"`
	// Devices are the facility devices that its agent polls.
	Devices []string `json:"devices,omitempty"`
}

// Agent is what an agent told of itself.
type Agent struct {
	Version string     `json:"version,omitempty"`
	BootID  string     `json:"boot_id,omitempty"`
	Roles   []string   `json:"roles,omitempty"`
	Address string     `json:"address,omitempty"` // of its metrics
	Facts   site.Facts `json:"facts"`
}

// nodeOf joins a node of the site with its lease, which is nil when it has none.
func nodeOf(n *site.Node, st *lease.NodeStatus) Node {
	out := Node{Node: n.ID, Rack: n.Rack, Class: n.Class}
	if st == nil {
		return out
	}
	out.State, out.Since, out.Reason = st.State.String(), st.Since.UTC(), st.Reason
	out.LeaseUp, out.Schedulable, out.Until, out.HeldBy = st.LeaseUp, st.Schedulable, st.Until.UTC(), st.HeldBy
	out.Beating, out.LastBeat = st.Beating, st.LastBeat.UTC()
	if st.Skew != nil {
		skew := st.Skew.Seconds()
		out.SkewSeconds = &skew
	}
	out.GPUs, out.Accepted, out.Missing, out.Extra = st.GPUs, st.Expected, st.Missing, st.Extra
	out.AcceptedBy, out.AcceptedAt, out.AcceptedReason = st.AcceptedBy, st.AcceptedAt.UTC(), st.AcceptedReason
	if len(st.GPUs) > 0 || st.Inventory != lease.Fresh {
		out.Inventory = st.Inventory.String()
	}
	out.Breaches, out.Flaps, out.Conflicts = st.Breaches, st.Flaps, st.Conflicts
	if a := st.Agent; a != nil {
		out.Agent = &Agent{Version: a.Version, BootID: a.BootID, Roles: a.Roles, Address: a.Advertise, Facts: a.Facts}
	}
	return out
}

// nodes lists the site's nodes in its order.
func (r *Registry) nodes() []Node {
	s := r.site.Load()
	leases := r.leases()
	devices := map[string][]string{}
	for _, d := range r.lease.Devices() {
		devices[d.Agent] = append(devices[d.Agent], d.ID)
	}
	out := make([]Node, len(s.Nodes))
	for i := range s.Nodes {
		out[i] = nodeOf(&s.Nodes[i], leases[s.Nodes[i].ID])
		out[i].Devices = devices[s.Nodes[i].ID]
	}
	return out
}

// leases are the leases by node.
func (r *Registry) leases() map[string]*lease.NodeStatus {
	list := r.lease.Nodes()
	out := make(map[string]*lease.NodeStatus, len(list))
	for i := range list {
		out[list[i].Node] = &list[i]
	}
	return out
}

func (r *Registry) serveNodes(w http.ResponseWriter, _ *http.Request) {
	if !r.Ready() {
		writeError(w, http.StatusServiceUnavailable, r.notReady())
		return
	}
	writeJSON(w, http.StatusOK, r.nodes())
}

func (r *Registry) serveNode(w http.ResponseWriter, req *http.Request) {
	id := req.PathValue("node")
	n, ok := r.site.Load().Node(id)
	switch {
	case !ok:
		writeError(w, http.StatusNotFound, fmt.Errorf("node %q: %w", id, lease.ErrUnknownNode))
	case !r.Ready():
		writeError(w, http.StatusServiceUnavailable, r.notReady())
	default:
		writeJSON(w, http.StatusOK, r.node(n))
	}
}

func (r *Registry) node(n *site.Node) Node {
	out := nodeOf(n, r.leases()[n.ID])
	for _, d := range r.lease.Devices() {
		if d.Agent == n.ID {
			out.Devices = append(out.Devices, d.ID)
		}
	}
	return out
}

// change is the body of a change to a node.
type change struct {
	// Reason is why; the ledger keeps it.
	Reason string `json:"reason"`
	// UUIDs are the GPUs to accept: a list, or "current".
	UUIDs *uuidList `json:"uuids,omitempty"`
	// Duration of a maintenance, such as "2h30m".
	Duration string `json:"duration,omitempty"`
}

// currentUUIDs stands for the GPUs that the node shows.
const currentUUIDs = "current"

// uuidList is a list of UUIDs, nil for those that the node shows now.
type uuidList []string

// UnmarshalJSON implements json.Unmarshaler.
func (l *uuidList) UnmarshalJSON(data []byte) error {
	var word string
	if json.Unmarshal(data, &word) == nil {
		if word != currentUUIDs {
			return fmt.Errorf("uuids: %q, want %q or a list", word, currentUUIDs)
		}
		*l = nil
		return nil
	}
	list := []string{}
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("uuids: want %q or a list", currentUUIDs)
	}
	if len(list) == 0 {
		return errors.New("uuids: the list is empty")
	}
	*l = list
	return nil
}

// MarshalJSON implements json.Marshaler.
func (l uuidList) MarshalJSON() ([]byte, error) {
	if l == nil {
		return json.Marshal(currentUUIDs)
	}
	return json.Marshal([]string(l))
}

// errBadRequest marks errors of the request itself.
var errBadRequest = errors.New("bad request")

// operation is one change to a node.
type operation func(ctx context.Context, s *lease.Server, node, actor string, c *change) error

// operations are the changes by their name in the path.
var operations = map[string]operation{
	"accept": func(ctx context.Context, s *lease.Server, node, actor string, c *change) error {
		if c.UUIDs == nil {
			return fmt.Errorf("%w: uuids are missing: %q or a list", errBadRequest, currentUUIDs)
		}
		return s.Accept(ctx, node, *c.UUIDs, c.Reason, actor)
	},
	"drain": func(ctx context.Context, s *lease.Server, node, actor string, c *change) error {
		return s.Drain(ctx, node, c.Reason, actor)
	},
	"leave": func(ctx context.Context, s *lease.Server, node, actor string, c *change) error {
		return s.Leave(ctx, node, c.Reason, actor)
	},
	"clear": func(ctx context.Context, s *lease.Server, node, actor string, c *change) error {
		return s.Clear(ctx, node, c.Reason, actor)
	},
	"resume": func(ctx context.Context, s *lease.Server, node, actor string, c *change) error {
		return s.Resume(ctx, node, c.Reason, actor)
	},
	"maintenance": func(ctx context.Context, s *lease.Server, node, actor string, c *change) error {
		d, err := time.ParseDuration(c.Duration)
		if err != nil {
			return fmt.Errorf("%w: duration %q, want one such as 2h30m", errBadRequest, c.Duration)
		}
		return s.Maintenance(ctx, node, d, c.Reason, actor)
	},
}

// operate carries out a change and answers with the node as it is then.
func (r *Registry) operate(w http.ResponseWriter, req *http.Request, name string, do operation) {
	actor, ok := r.guard.mayOperate(w, req)
	if !ok {
		return
	}
	var c change
	if !r.readBody(w, req, &c) {
		return
	}
	if err := c.check(name); err != nil {
		writeError(w, http.StatusBadRequest, err)
		return
	}
	if !r.Ready() {
		writeError(w, http.StatusServiceUnavailable, r.notReady())
		return
	}
	id := req.PathValue("node")
	ctx, cancel := context.WithTimeout(req.Context(), operateTimeout)
	defer cancel()
	if err := do(ctx, r.lease, id, actor, &c); err != nil {
		level.Warn(r.deps.Logger).Log("msg", "change refused", "change", name, "node", id, "actor", actor, "err", err)
		writeError(w, statusOf(err), err)
		return
	}
	r.views.forget()
	level.Info(r.deps.Logger).Log("msg", "node changed", "change", name, "node", id, "actor", actor, "reason", c.Reason)
	n, ok := r.site.Load().Node(id)
	if !ok { // removed from the site meanwhile
		writeError(w, http.StatusNotFound, fmt.Errorf("node %q: %w", id, lease.ErrUnknownNode))
		return
	}
	writeJSON(w, http.StatusOK, r.node(n))
}

// check refuses a body that does not fit the change.
func (c *change) check(name string) error {
	if err := checkText("reason", c.Reason); err != nil {
		return err
	}
	if c.UUIDs != nil && name != "accept" {
		return fmt.Errorf("uuids are for accept, not for %s", name)
	}
	if c.Duration != "" && name != "maintenance" {
		return fmt.Errorf("duration is for maintenance, not for %s", name)
	}
	return nil
}

// statusOf is the HTTP status of an error of the lease server.
func statusOf(err error) int {
	switch {
	case errors.Is(err, lease.ErrUnknownNode), errors.Is(err, lease.ErrNoBreaker):
		return http.StatusNotFound
	case errors.Is(err, lease.ErrNoLease), errors.Is(err, lease.ErrState):
		return http.StatusConflict
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return http.StatusGatewayTimeout // it stands, but is not written yet
	}
	return http.StatusBadRequest
}
