// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	promconfig "github.com/prometheus/common/config"

	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/ledger"
	"github.com/rackpulse/rackpulse/site"
)

const (
	// clientTimeout bounds one request of a Client: a change waits up to 15 s
	// for the ledger.
	clientTimeout = 30 * time.Second
	// maxAnswer bounds an answer, bytes: 10,000 nodes at 3 kB, twice.
	maxAnswer = 64 << 20
	// maxBackup bounds a backup, bytes: 100,000 events at 1 kB, ten times.
	maxBackup = 1 << 30
	// maxErrorText bounds what is shown of an answer that is not the API's.
	maxErrorText = 200
)

// ClientConfig says how to reach a registry.
type ClientConfig struct {
	// URLs are the bases of one registry, or of several that share a ledger, such
	// as "http://registry:9401". They are asked in turn until one leads.
	URLs []string
	// Token is sent with each request; the zero Secret: none.
	Token config.Secret
	TLS   ClientTLS
}

// Client speaks the registry's HTTP API. Its errors carry the registry's words.
type Client struct {
	bases []*url.URL
	first atomic.Int32 // the base that answered last
	token config.Secret
	http  *http.Client
}

// StatusError is an answer that is not a success.
type StatusError struct {
	// Code is the HTTP status.
	Code int
	// Text is what the registry said.
	Text string
}

// Error implements error.
func (e *StatusError) Error() string { return fmt.Sprintf("registry: %s (HTTP %d)", e.Text, e.Code) }

// NewClient makes a Client; nothing is dialled yet. A redirect to the leader is
// followed if it is one of the URLs: to others it would carry the token.
func NewClient(cfg ClientConfig) (*Client, error) {
	c := &Client{token: cfg.Token}
	for _, text := range cfg.URLs {
		base, err := url.Parse(text)
		if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
			return nil, fmt.Errorf("registry url %q: want http://HOST:PORT or https://HOST", text)
		}
		if base.User != nil {
			return nil, errors.New("registry url: holds a user; give the token instead")
		}
		c.bases = append(c.bases, base)
	}
	if len(c.bases) == 0 {
		return nil, errors.New("no registry url")
	}
	h := promconfig.DefaultHTTPClientConfig
	h.TLSConfig, h.FollowRedirects = cfg.TLS.config(), false
	client, err := promconfig.NewClientFromConfig(h, "rackpulse-registry")
	if err != nil {
		return nil, fmt.Errorf("registry client: %w", err)
	}
	client.Timeout = clientTimeout
	c.http = client
	return c, nil
}

// Nodes lists the site's nodes with their leases, in the order of the site file.
func (c *Client) Nodes(ctx context.Context) ([]Node, error) {
	var out []Node
	err := c.do(ctx, http.MethodGet, nil, nil, &out, "nodes")
	return out, err
}

// Node returns one node.
func (c *Client) Node(ctx context.Context, node string) (*Node, error) {
	var out Node
	return &out, c.do(ctx, http.MethodGet, nil, nil, &out, "nodes", node)
}

// Agents lists our own targets as Prometheus discovers them: agents and registry.
func (c *Client) Agents(ctx context.Context) ([]TargetGroup, error) {
	var out []TargetGroup
	return out, c.do(ctx, http.MethodGet, nil, nil, &out, "sd", "agents")
}

// Accept makes uuids the expected GPUs of a node; nil: those that it shows now.
func (c *Client) Accept(ctx context.Context, node string, uuids []string, reason string) (*Node, error) {
	list := uuidList(uuids)
	return c.change(ctx, node, "accept", change{Reason: reason, UUIDs: &list})
}

// Drain takes a node out of service until Resume, over its restarts.
func (c *Client) Drain(ctx context.Context, node, reason string) (*Node, error) {
	return c.change(ctx, node, "drain", change{Reason: reason})
}

// Leave says that a node leaves, or has left, for good.
func (c *Client) Leave(ctx context.Context, node, reason string) (*Node, error) {
	return c.change(ctx, node, "leave", change{Reason: reason})
}

// Resume ends a drain or a maintenance.
func (c *Client) Resume(ctx context.Context, node, reason string) (*Node, error) {
	return c.change(ctx, node, "resume", change{Reason: reason})
}

// Clear lets a quarantined node back.
func (c *Client) Clear(ctx context.Context, node, reason string) (*Node, error) {
	return c.change(ctx, node, "clear", change{Reason: reason})
}

// Breakers lists the open breakers.
func (c *Client) Breakers(ctx context.Context) ([]Breaker, error) {
	var out []Breaker
	return out, c.do(ctx, http.MethodGet, nil, nil, &out, "breakers")
}

// HoldBreaker stops all actions but those that give nodes back.
func (c *Client) HoldBreaker(ctx context.Context, reason string) ([]Breaker, error) {
	var out []Breaker
	return out, c.do(ctx, http.MethodPost, nil, breakerChange{Reason: reason}, &out, "breakers", "hold")
}

// ResetBreaker closes an open breaker; it opens again if there is a reason.
func (c *Client) ResetBreaker(ctx context.Context, scope, id, reason string) ([]Breaker, error) {
	var out []Breaker
	return out, c.do(ctx, http.MethodPost, nil, breakerChange{Scope: scope, ID: id, Reason: reason}, &out, "breakers", "reset")
}

// Maintenance puts a node into maintenance for d, at most 24 h.
func (c *Client) Maintenance(ctx context.Context, node string, d time.Duration, reason string) (*Node, error) {
	return c.change(ctx, node, "maintenance", change{Reason: reason, Duration: d.String()})
}

// Events returns events, newest first.
func (c *Client) Events(ctx context.Context, q ledger.Query) ([]ledger.Event, error) {
	params := url.Values{}
	if q.Node != "" {
		params.Set("node", q.Node)
	}
	if !q.Since.IsZero() {
		params.Set("since", q.Since.Format(time.RFC3339Nano))
	}
	if q.Limit > 0 {
		params.Set("limit", strconv.Itoa(q.Limit))
	}
	var out []ledger.Event
	err := c.do(ctx, http.MethodGet, params, nil, &out, "events")
	return out, err
}

// Outbox returns the intents that are not done, oldest first.
func (c *Client) Outbox(ctx context.Context) ([]ledger.Intent, error) {
	var out []ledger.Intent
	err := c.do(ctx, http.MethodGet, nil, nil, &out, "outbox")
	return out, err
}

// Report returns what was done about nodes since a time, and what would have been;
// an empty node stands for all.
func (c *Client) Report(ctx context.Context, since time.Time, node string) (*Report, error) {
	var out Report
	params := url.Values{"since": {since.Format(time.RFC3339Nano)}}
	if node != "" {
		params.Set("node", node)
	}
	return &out, c.do(ctx, http.MethodGet, params, nil, &out, "report")
}

// Backup copies the whole ledger to w; ledger.CheckBackup tells whether it came
// whole.
func (c *Client) Backup(ctx context.Context, w io.Writer) error {
	resp, err := c.send(ctx, http.MethodGet, nil, nil, "backup")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer)) // what came of it
		return statusError(resp.StatusCode, data)
	}
	n, err := io.Copy(w, io.LimitReader(resp.Body, maxBackup))
	if err == nil && n == maxBackup {
		err = fmt.Errorf("it is larger than %d bytes", maxBackup)
	}
	if err != nil {
		return fmt.Errorf("registry: read the backup: %w", err)
	}
	return nil
}

// View returns what the pages show.
func (c *Client) View(ctx context.Context) (*View, error) {
	var out View
	return &out, c.do(ctx, http.MethodGet, nil, nil, &out, "view")
}

// Site returns the site as the registry has it, under the built-in limits: the
// API does not tell a site's own ones.
func (c *Client) Site(ctx context.Context) (*site.Site, error) {
	var out json.RawMessage
	if err := c.do(ctx, http.MethodGet, nil, nil, &out, "site"); err != nil {
		return nil, err
	}
	return site.Parse("site of the registry", out)
}

func (c *Client) change(ctx context.Context, node, name string, body change) (*Node, error) {
	var out Node
	return &out, c.do(ctx, http.MethodPost, nil, body, &out, "nodes", node, name)
}

// do sends one request and decodes the answer into out.
func (c *Client) do(ctx context.Context, method string, params url.Values, body, out any, path ...string) error {
	resp, err := c.send(ctx, method, params, body, path...)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("registry: read the answer: %w", err)
	case len(data) > maxAnswer:
		return fmt.Errorf("registry: the answer is larger than %d bytes", maxAnswer)
	case resp.StatusCode != http.StatusOK:
		return statusError(resp.StatusCode, data)
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("registry: the answer of %s is not the API's: %w", resp.Request.URL.Redacted(), err)
	}
	return nil
}

// statusError makes the error of an answer; a proxy's page is shown in part.
func statusError(code int, body []byte) error {
	var e apiError
	if json.Unmarshal(body, &e) == nil && e.Error != "" {
		if code == http.StatusTemporaryRedirect {
			e.Error += ", which is none of the given registries: give it, too"
		}
		return &StatusError{Code: code, Text: e.Error}
	}
	text := strings.Join(strings.Fields(string(body[:min(len(body), maxErrorText)])), " ")
	if text == "" {
		text = http.StatusText(code)
	}
	return &StatusError{Code: code, Text: text}
}
