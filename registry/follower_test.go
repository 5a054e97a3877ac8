// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/ledger"
)

// TestFollowerRedirects asks a registry that does not lead: readers and operators
// are sent to the leader, with path and query, strangers to nobody.
func TestFollowerRedirects(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Auth.TokensFile = tokensFile(t)
	r, err := New(cfg, Deps{Site: example(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var leader atomic.Pointer[ledger.Leader]
	r.leader = func() (ledger.Leader, bool) {
		l := leader.Load()
		if l == nil {
			return ledger.Leader{}, false
		}
		return *l, true
	}
	run := &running{Registry: r, api: httptest.NewServer(r.Handler())}
	defer run.api.Close()
	for _, tt := range []struct {
		leader              ledger.Leader
		method, path, token string
		code                int
		location, body      string
	}{
		{ledger.Leader{}, "GET", "/api/v1/nodes", bobToken, 503, "", "does not lead"},
		{ledger.Leader{Beats: "reg1:9402"}, "GET", "/api/v1/nodes", bobToken, 503, "", "takes beats on reg1:9402"},
		{ledger.Leader{Beats: "reg1:9402", Web: "reg1:9401"}, "GET", "/api/v1/nodes", "", 401, "", "a token is wanted"},
		{ledger.Leader{Beats: "reg1:9402", Web: "reg1:9401"}, "GET", "/api/v1/nodes/a%2Fb?x=1&y=%20", bobToken, 307, "http://reg1:9401/api/v1/nodes/a%2Fb?x=1&y=%20", "the leader is reg1:9401"},
		{ledger.Leader{Beats: "reg1:9402", Web: "reg1:9401"}, "POST", "/api/v1/nodes/gpu001/drain", eveToken, 307, "http://reg1:9401/api/v1/nodes/gpu001/drain", "the leader is reg1:9401"},
		{ledger.Leader{Beats: "reg1:9402", Web: "[2001:db8::1]:9401"}, "GET", "/api/v1/backup", eveToken, 307, "http://[2001:db8::1]:9401/api/v1/backup", ""},
		{ledger.Leader{Beats: "reg1:9402", Web: "reg1:9401"}, "GET", "/-/ready", "", 503, "", "the leader is reg1:9401"},
		{ledger.Leader{Beats: "reg1:9402", Web: "reg1:9401"}, "GET", "/-/healthy", "", 200, "", "healthy"},
		{ledger.Leader{Beats: "reg1:9402", Web: "reg1:9401"}, "GET", "/metrics", "", 200, "", ""},
	} {
		leader.Store(nil)
		if tt.leader.Beats != "" {
			leader.Store(&tt.leader)
		}
		resp, body := run.ask(t, tt.method, tt.path, tt.token, `{"reason":"fan"}`)
		if resp.StatusCode != tt.code || resp.Header.Get("Location") != tt.location || !strings.Contains(body, tt.body) {
			t.Errorf("%s %s with %+v: %d to %q: %s", tt.method, tt.path, tt.leader, resp.StatusCode, resp.Header.Get("Location"), body)
		}
	}
}

// post is a registry's address that notes the tokens it is sent.
type post struct {
	*httptest.Server
	answer func(w http.ResponseWriter, r *http.Request)
	asked  atomic.Int32
	tokens atomic.Int32
}

func newPost(t *testing.T) *post {
	t.Helper()
	p := &post{}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.asked.Add(1)
		if r.Header.Get("Authorization") != "" {
			p.tokens.Add(1)
		}
		p.answer(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

// TestClientFollowsKnown lets a client with a token be sent on: to a registry that
// it was given it goes, with method and body, to another one never.
func TestClientFollowsKnown(t *testing.T) {
	leader, follower, foreign := newPost(t), newPost(t), newPost(t)
	leads := func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.ContentLength <= 0 {
			writeError(w, http.StatusBadRequest, errors.New("no body came"))
			return
		}
		writeJSON(w, http.StatusOK, []Breaker{{Scope: "manual"}})
	}
	leader.answer, foreign.answer = leads, leads
	sendTo := func(to *post) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", to.URL+r.URL.Path)
			writeError(w, http.StatusTemporaryRedirect, errors.New("the leader is elsewhere"))
		}
	}
	follower.answer = sendTo(leader)
	secret, err := config.ReadSecret(writeFile(t, t.TempDir(), "token", eveToken+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	client := func(urls ...string) *Client {
		c, err := NewClient(ClientConfig{URLs: urls, Token: secret})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := client("http://127.0.0.1:1", follower.URL, leader.URL) // nobody is at the first
	for range 2 {
		if open, err := c.HoldBreaker(t.Context(), "why not"); err != nil || len(open) != 1 {
			t.Fatalf("held %+v, %v", open, err)
		}
	}
	if follower.asked.Load() != 1 || leader.asked.Load() != 2 {
		t.Errorf("the follower was asked %d times, the leader %d; the second time the leader is known", follower.asked.Load(), leader.asked.Load())
	}

	follower.answer = sendTo(foreign)
	var refused *StatusError
	if _, err := client(follower.URL).Nodes(t.Context()); !errors.As(err, &refused) || refused.Code != http.StatusTemporaryRedirect ||
		!strings.Contains(err.Error(), "the leader is elsewhere, which is none of the given registries") {
		t.Errorf("sent to a stranger: %v", err)
	}
	if foreign.asked.Load() != 0 {
		t.Error("a stranger was asked")
	}

	// Two that point at each other are left after one hop.
	leader.answer = sendTo(follower)
	follower.answer = sendTo(leader)
	before := leader.asked.Load() + follower.asked.Load()
	if _, err := client(follower.URL, leader.URL).Nodes(t.Context()); err == nil {
		t.Error("nobody leads, and somebody answered")
	}
	if n := leader.asked.Load() + follower.asked.Load() - before; n != 4 {
		t.Errorf("%d requests between two that point at each other", n)
	}
}
