// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/lease/leasepb"
	"github.com/rackpulse/rackpulse/ledger"
)

// Tokens of the tests.
const (
	eveToken  = "eve-operates-0123456789"
	bobToken  = "bob-reads-0123456789abc"
	gpu1Token = "gpu001-beats-0123456789"
)

func tokensFile(t *testing.T) string {
	t.Helper()
	sum := sha256.Sum256([]byte(bobToken))
	return writeFile(t, t.TempDir(), "tokens.yml", fmt.Sprintf(`
- {token: %s, role: operate, name: eve}
- {token_sha256: %s, role: read, name: bob}
- {token: %s, role: node, node: gpu001}
- {token: gpu001-next-token-0123456789, role: node, node: gpu001}
- {token: gpu002-beats-0123456789, role: node, node: gpu002}
`, eveToken, hex.EncodeToString(sum[:]), gpu1Token))
}

func TestTokensFile(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"empty", "", ""},
		{"good", "- {token: 0123456789abcdef, role: read, name: a}", ""},
		{"short", "\n- {token: hunter2, role: read, name: a}", "t.yml:2: token of 7 characters, want at least 16"},
		{"neither", "- {role: read, name: a}", "t.yml:1: want token or token_sha256, one of them"},
		{"both", "- {token: 0123456789abcdef, token_sha256: ab, role: read, name: a}", "one of them"},
		{"bad sum", "- {token_sha256: abcd, role: read, name: a}", "token_sha256: want 64 hexadecimal digits"},
		{"role", "- {token: 0123456789abcdef, role: admin, name: a}", `role "admin", want read, operate or node`},
		{"no name", "- {token: 0123456789abcdef, role: operate}", "name is missing"},
		{"taken name", "- {token: 0123456789abcdef, role: operate, name: registry}", `name "registry" is what the ledger calls the program itself`},
		{"line in name", `- {token: 0123456789abcdef, role: operate, name: "a\nb"}`, "name holds control characters"},
		{"node of a reader", "- {token: 0123456789abcdef, role: read, name: a, node: gpu001}", "node is for role node only"},
		{"no node", "- {token: 0123456789abcdef, role: node}", "role node wants node"},
		{"twice", "- {token: 0123456789abcdef, role: read, name: a}\n- {token: 0123456789abcdef, role: node, node: n}", "t.yml:2: this token is given twice"},
		{"unknown key", "- {token: 0123456789abcdef, rolle: read}", `t.yml:1: unknown key "rolle"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseTokens("t.yml", []byte(tt.text+"\n"))
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v\nwant %s", err, tt.want)
			}
			if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "0123456789abcdef")) {
				t.Errorf("shows a token: %v", err)
			}
		})
	}
	path := tokensFile(t)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := loadTokens(path); err == nil || !strings.Contains(err.Error(), "run: chmod o-r "+path) {
		t.Errorf("open file: %v", err)
	}
}

// TestAPIRoles is the table of docs/api.md: who may do what.
func TestAPIRoles(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Auth.TokensFile = tokensFile(t)
	r := start(t, cfg, Deps{})
	drain := `{"reason":"fan"}`
	for _, tt := range []struct {
		method, path, token string
		want                int
	}{
		{"GET", "/api/v1/nodes", "", 401},
		{"GET", "/api/v1/nodes", "guess", 401},
		{"GET", "/api/v1/nodes", gpu1Token, 401}, // a node's token is for beats only
		{"GET", "/api/v1/nodes", bobToken, 200},
		{"GET", "/api/v1/nodes", eveToken, 200},
		{"GET", "/api/v1/nodes/gpu001", "", 401},
		{"GET", "/api/v1/events", "", 401},
		{"GET", "/api/v1/outbox", "", 401},
		{"GET", "/api/v1/site", "", 401},
		{"GET", "/api/v1/view", "", 401},
		{"GET", "/api/v1/sd/agents", "", 401},
		{"GET", "/api/v1/sd/exporters?job=a&port=1", "", 401},
		{"GET", "/api/v1/sd/agents", bobToken, 200},
		{"POST", "/api/v1/nodes/gpu001/drain", "", 401},
		{"POST", "/api/v1/nodes/gpu001/drain", bobToken, 403},
		{"POST", "/api/v1/nodes/gpu001/drain", gpu1Token, 401},
		{"POST", "/api/v1/nodes/gpu001/drain", eveToken, 409}, // it never beat
		{"POST", "/-/reload", eveToken, 403},                  // not enabled
		{"GET", "/-/healthy", "", 200},
		{"GET", "/-/ready", "", 200},
		{"GET", "/metrics", "", 200},
	} {
		code, body := r.request(t, tt.method, tt.path, tt.token, drain)
		if code != tt.want {
			t.Errorf("%s %s as %q: %d, want %d: %s", tt.method, tt.path, tt.token, code, tt.want, body)
		}
	}

	// A browser sends basic authentication: the password is the token.
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, r.api.URL+"/api/v1/nodes", nil)
	req.SetBasicAuth("anyone", bobToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("basic authentication: %d", resp.StatusCode)
	}

	// But not on behalf of another site.
	req, _ = http.NewRequestWithContext(t.Context(), http.MethodPost, r.api.URL+"/api/v1/nodes/gpu001/drain", strings.NewReader(drain))
	req.SetBasicAuth("anyone", eveToken)
	req.Header.Set("Origin", "https://evil.example")
	if resp, err = http.DefaultClient.Do(req); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("cross origin: %d", resp.StatusCode)
	}

	_, page := r.request(t, "GET", "/metrics", "", "")
	for _, want := range []string{
		// Eight reads and one change came without a token; the guess and a
		// node's token, twice, are unknown here.
		`rackpulse_registry_refused_requests_total{reason="no_token"} 9`,
		`rackpulse_registry_refused_requests_total{reason="unknown_token"} 3`,
		`rackpulse_registry_refused_requests_total{reason="role"} 1`,
		`rackpulse_registry_refused_requests_total{reason="cross_origin"} 1`,
		`rackpulse_registry_refused_requests_total{reason="no_tokens_file"} 0`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("no %s in metrics", want)
		}
	}
}

func TestWithoutTokensFile(t *testing.T) {
	reloads := 0
	r := start(t, testConfig(t.TempDir()), Deps{Reload: func(context.Context) error { reloads++; return nil }})
	if code, _ := r.request(t, "GET", "/api/v1/nodes", "", ""); code != http.StatusOK {
		t.Errorf("read: %d", code)
	}
	code, body := r.request(t, "POST", "/api/v1/nodes/gpu001/drain", "anything", `{"reason":"x"}`)
	if code != http.StatusForbidden || !strings.Contains(body, "no auth.tokens_file is configured") {
		t.Errorf("operate: %d %s", code, body)
	}
	if code, _ := r.request(t, "POST", "/-/reload", "", ""); code != http.StatusOK || reloads != 1 {
		t.Errorf("reload: %d, %d reloads", code, reloads)
	}
	if code, _ := r.request(t, "GET", "/-/reload", "", ""); code != http.StatusMethodNotAllowed {
		t.Errorf("GET reload: %d", code)
	}
}

func TestBadBodies(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Auth.TokensFile = tokensFile(t)
	r := start(t, cfg, Deps{})
	base := "/api/v1/nodes/gpu001/"
	for _, tt := range []struct {
		path, body string
		code       int
		want       string
	}{
		{base + "drain", "", 400, "the body is empty"},
		{base + "drain", "{", 400, "body: unexpected EOF"},
		{base + "drain", `{"reason":"x"} {}`, 400, "more than one value"},
		{base + "drain", `{"reson":"x"}`, 400, `unknown field "reson"`},
		{base + "drain", `{}`, 400, "reason is missing"},
		{base + "drain", `{"reason":"  "}`, 400, "reason is missing"},
		{base + "drain", `{"reason":"a\nb"}`, 400, "reason holds control characters"},
		{base + "drain", `{"reason":"` + strings.Repeat("x", 257) + `"}`, 400, "reason of 257 bytes, 256 are the most"},
		{base + "drain", `{"reason":"` + strings.Repeat("x", 1<<20) + `"}`, 413, "the body is larger than 1048576 bytes"},
		{base + "drain", `{"reason":"x","duration":"1h"}`, 400, "duration is for maintenance"},
		{base + "drain", `{"reason":"x","uuids":"current"}`, 400, "uuids are for accept"},
		{base + "accept", `{"reason":"x"}`, 400, "uuids are missing"},
		{base + "accept", `{"reason":"x","uuids":"all"}`, 400, `"all", want \"current\" or a list`},
		{base + "accept", `{"reason":"x","uuids":[]}`, 400, "the list is empty"},
		{base + "maintenance", `{"reason":"x"}`, 400, "duration"},
		{base + "maintenance", `{"reason":"x","duration":"soon"}`, 400, `want one such as 2h30m`},
		{"/api/v1/nodes/nobody/drain", `{"reason":"x"}`, 404, "node is not in the site file"},
		{base + "explode", `{"reason":"x"}`, 404, "no POST /api/v1/nodes/gpu001/explode"},
		{base + "drain", `{"reason":"x"}`, 409, "node never beat"},
	} {
		code, body := r.request(t, http.MethodPost, tt.path, eveToken, tt.body)
		var e apiError
		if err := json.Unmarshal([]byte(body), &e); err != nil {
			t.Errorf("%s: the answer is no JSON: %s", tt.path, body)
		}
		if want := strings.ReplaceAll(tt.want, `\"`, `"`); code != tt.code || !strings.Contains(e.Error, want) {
			t.Errorf("%s %.40s: %d %q, want %d %q", tt.path, tt.body, code, e.Error, tt.code, want)
		}
	}
	for _, tt := range []struct {
		path string
		code int
	}{
		{"/api/v1/nodes/nobody", 404}, {"/api/v1/nothing", 404}, {"/api/v1/events?limit=0", 400}, {"/api/v1/events?limit=10001", 400},
		{"/api/v1/events?since=yesterday", 400}, {"/api/v1/events?since=1h&limit=5", 200}, {"/api/v1/events?since=2026-03-01T12:00:00Z", 200},
		{"/api/v1/sd/exporters", 400}, {"/api/v1/sd/exporters?job=a%20b", 400}, {"/api/v1/sd/exporters?job=a&port=70000", 400},
	} {
		code, body := r.request(t, http.MethodGet, tt.path, bobToken, "")
		if code != tt.code {
			t.Errorf("GET %s: %d, want %d: %s", tt.path, code, tt.code, body)
		}
	}
}

func TestReloadAuth(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Auth.TokensFile = tokensFile(t)
	r := start(t, cfg, Deps{})
	write := func(text string) {
		if err := os.WriteFile(cfg.Auth.TokensFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(token string) int {
		code, _ := r.request(t, "GET", "/api/v1/nodes", token, "")
		return code
	}
	moved := changed(t, "- {id: ws01, class: workstation}", "- {id: ws02, class: workstation}")
	write("- {token: short, role: read, name: ann}\n")
	if err := r.Reload(moved); err == nil {
		t.Error("a bad file was taken")
	}
	if _, ok := r.Site().Node("ws02"); ok || read(bobToken) != http.StatusOK {
		t.Error("a bad file changed the site or who may read")
	}
	write("- {token: ann-reads-0123456789, role: read, name: ann}\n")
	if err := r.Reload(changed(t, "site: {id: ams1}", "site: {id: ams2}")); err == nil || read(bobToken) != http.StatusOK {
		t.Errorf("a bad site changed who may read: %v", err)
	}
	if err := r.Reload(moved); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.Site().Node("ws02"); !ok {
		t.Error("the new site is not in force")
	}
	if read(bobToken) != http.StatusUnauthorized || read("ann-reads-0123456789") != http.StatusOK {
		t.Error("the new tokens are not in force")
	}
}

// TestOperations goes through the changes with a node that beats.
func TestOperations(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Auth.TokensFile = writeFile(t, t.TempDir(), "tokens.yml", "- {token: "+eveToken+", role: operate, name: eve}\n")
	r := start(t, cfg, Deps{})
	a := gpuNode(t, r, "gpu001", "10.1.0.1:9400")
	a.mustBeat(t, leasepb.State_READY)
	client := r.client(t, eveToken)
	ctx := t.Context()

	if n, err := client.Drain(ctx, "gpu001", "fan replaced"); err != nil || n.State != "DRAINING" || n.HeldBy != "eve" || n.Schedulable {
		t.Errorf("drain: %+v, %v", n, err)
	}
	if _, err := client.Resume(ctx, "gpu001", "fan is new"); err != nil {
		t.Errorf("resume: %v", err)
	}
	a.mustBeat(t, leasepb.State_READY)
	if n, err := client.Maintenance(ctx, "gpu001", 2*time.Hour, "firmware"); err != nil || n.State != "MAINT" || time.Until(n.Until) < 119*time.Minute {
		t.Errorf("maintenance: %+v, %v", n, err)
	}
	if _, err := client.Maintenance(ctx, "gpu001", 25*time.Hour, "too long"); err == nil || !strings.Contains(err.Error(), "up to 24h") {
		t.Errorf("long maintenance: %v", err)
	}
	if _, err := client.Resume(ctx, "gpu001", "done"); err != nil {
		t.Errorf("resume: %v", err)
	}
	a.mustBeat(t, leasepb.State_READY)

	// One GPU is swapped: degraded until an operator accepts it.
	a.beat.GpuUuids = append(uuidsOf("gpu001", 7), "GPU-new")
	a.mustBeat(t, leasepb.State_DEGRADED)
	n, err := client.Node(ctx, "gpu001")
	if err != nil || fmt.Sprint(n.Missing, n.Extra) != "[GPU-gpu001-7] [GPU-new]" {
		t.Errorf("swapped: %+v, %v", n, err)
	}
	if n, err = client.Accept(ctx, "gpu001", nil, "board swapped"); err != nil || n.State != "READY" || n.AcceptedBy != "eve" || n.AcceptedReason != "board swapped" || len(n.Missing) != 0 {
		t.Errorf("accept: %+v, %v", n, err)
	}
	if n, err = client.Accept(ctx, "gpu001", []string{"GPU-a", "GPU-b"}, "as ordered"); err != nil || fmt.Sprint(n.Accepted) != "[GPU-a GPU-b]" {
		t.Errorf("accept a list: %+v, %v", n, err)
	}
	if n, err = client.Leave(ctx, "gpu001", "sold"); err != nil || n.State != "DRAINING" {
		t.Errorf("leave: %+v, %v", n, err)
	}
	r.checkAudit(t, client)
}

// checkAudit looks for the changes of TestOperations in the ledger.
func (r *running) checkAudit(t *testing.T, client *Client) {
	t.Helper()
	events, err := client.Events(t.Context(), ledger.Query{Node: "gpu001"})
	if err != nil {
		t.Fatal(err)
	}
	var audit []string
	for _, e := range events {
		if e.Actor == "eve" {
			audit = append(audit, e.Kind+" "+e.To+" "+e.Reason)
		}
	}
	for _, want := range []string{
		"transition DRAINING fan replaced", "transition JOINING fan is new", "transition MAINT firmware, for 2h0m0s",
		"accept  board swapped", "accept  as ordered", "transition DRAINING sold",
	} {
		if !strings.Contains(strings.Join(audit, "\n"), want) {
			t.Errorf("no %q in the audit:\n%s", want, strings.Join(audit, "\n"))
		}
	}
	outbox, err := client.Outbox(t.Context())
	if err != nil || len(outbox) != 1 || outbox[0].Node != "gpu001" || outbox[0].Action != "drain" || outbox[0].State != "held" {
		t.Errorf("outbox %+v, %v", outbox, err)
	}
	if _, err := r.client(t, "").Nodes(t.Context()); err == nil || err.Error() != "registry: a token is wanted (HTTP 401)" {
		t.Errorf("without a token: %v", err)
	}
}

func TestClientErrors(t *testing.T) {
	for _, bad := range []string{"", "reg1:9401", "ftp://reg1", "http://u:p@reg1"} {
		if _, err := NewClient(ClientConfig{URLs: []string{bad}}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	if err := statusError(502, []byte("<html>\n<h1>Bad gateway</h1>")); err.Error() != "registry: <html> <h1>Bad gateway</h1> (HTTP 502)" {
		t.Error(err)
	}
	if err := statusError(503, nil); err.Error() != "registry: Service Unavailable (HTTP 503)" {
		t.Error(err)
	}
	c, err := NewClient(ClientConfig{URLs: []string{"http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Nodes(t.Context()); err == nil || err == io.EOF {
		t.Errorf("nobody there: %v", err)
	}
}
