// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// answered is an explanation whose forms say which they are.
type answered struct {
	Asked string `json:"asked"`
}

func (a answered) Text(w io.Writer) error     { _, err := fmt.Fprint(w, "text "+a.Asked); return err }
func (a answered) Markdown(w io.Writer) error { _, err := fmt.Fprint(w, "# "+a.Asked); return err }
func (a answered) Brief(w io.Writer) error    { _, err := fmt.Fprint(w, "brief "+a.Asked); return err }

func (a answered) Because() []string { return []string{"evidence " + a.Asked} }
func (a answered) Next() []string    { return []string{"look"} }

func TestExplainServed(t *testing.T) {
	var asked atomic.Pointer[Question]
	r := start(t, testConfig(t.TempDir()), Deps{Explain: func(ctx context.Context, q Question) (Explanation, error) {
		asked.Store(&q)
		if _, ok := ctx.Deadline(); !ok {
			t.Error("no deadline")
		}
		switch q.Node {
		case "store":
			return nil, fmt.Errorf("%w: down", ErrStore)
		case "slow":
			return nil, context.DeadlineExceeded
		case "none":
			return nil, errors.New("site has no node")
		case "huge":
			return answered{strings.Repeat("x", maxExplanation)}, nil
		}
		return answered{q.Node + q.Job}, nil
	}})
	r.explainer.rate.SetLimit(1e6)
	get := func(path, accept string) (int, string, http.Header) {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, r.api.URL+"/api/v1/explain?"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if accept != "" {
			req.Header.Set("Accept", accept)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body), resp.Header
	}
	for _, tc := range []struct {
		path, accept string
		code         int
		want, media  string
	}{
		{"node=gpu001", "", 200, `{"asked":"gpu001"}`, "application/json"},
		{"node=gpu001", "*/*", 200, `{"asked":"gpu001"}`, "application/json"},
		{"node=gpu001", "text/markdown, */*;q=0.1", 200, "# gpu001", "text/markdown; charset=utf-8"},
		{"node=gpu001", "text/html,application/xhtml+xml", 200, "text gpu001", "text/plain; charset=utf-8"},
		{"job=ml/train-0&format=brief", "application/json", 200, "brief ml/train-0", "text/plain; charset=utf-8"},
		{"node=gpu001&format=xml", "", 400, "none of json", "application/json"},
		{"", "", 400, "give one of", "application/json"},
		{"node=a&rack=b", "", 400, "give one of", "application/json"},
		{"node=" + strings.Repeat("a", 300), "", 400, "300 bytes", "application/json"},
		{"node=a&at=10m&from=1h", "", 400, "either at or from", "application/json"},
		{"node=a&at=noon", "", 400, "noon", "application/json"},
		{"node=store", "", 502, "cannot be read: down", "application/json"},
		{"node=slow", "", 504, "deadline", "application/json"},
		{"node=none", "", 422, "has no node", "application/json"},
		{"node=huge", "", 422, "ask about less", "application/json"},
	} {
		code, body, head := get(tc.path, tc.accept)
		if code != tc.code || !strings.Contains(body, tc.want) || head.Get("Content-Type") != tc.media {
			t.Errorf("%.40s: %d %s %.80s, want %d %s %s", tc.path, code, head.Get("Content-Type"), body, tc.code, tc.media, tc.want)
		}
	}
	get("node=gpu001&at=2026-03-01T12:00:00Z", "")
	if want := time.Date(2026, 3, 1, 12, 2, 0, 0, time.UTC); !asked.Load().To.Equal(want) || !asked.Load().From.IsZero() {
		t.Errorf("at noon asks until %s from %s", asked.Load().To, asked.Load().From)
	}
	r.explainer.rate.SetLimit(0)
	r.explainer.rate.SetBurst(0)
	if code, body, head := get("node=gpu001", ""); code != 429 || head.Get("Retry-After") != "5" {
		t.Errorf("too many: %d %s, Retry-After %q", code, body, head.Get("Retry-After"))
	}
}

// TestExplainOnce holds that those who ask the same together cost the store once,
// and that one who goes away takes the answer from nobody.
func TestExplainOnce(t *testing.T) {
	made, entered, goOn := atomic.Int32{}, make(chan struct{}), make(chan struct{})
	r := start(t, testConfig(t.TempDir()), Deps{Explain: func(ctx context.Context, q Question) (Explanation, error) {
		if made.Add(1) == 1 {
			close(entered)
		}
		<-goOn
		return answered{q.Node}, ctx.Err()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	q := Question{Node: "gpu001", To: time.Unix(1, 0)}
	var wait sync.WaitGroup
	wait.Go(func() {
		if _, err := r.Explain(ctx, q); !errors.Is(err, context.Canceled) {
			t.Errorf("the one who went away: %v", err)
		}
	})
	<-entered
	for range 20 {
		wait.Go(func() {
			if got, err := r.Explain(t.Context(), q); err != nil || got.(answered).Asked != "gpu001" {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
	cancel()
	// The twenty join the flight, or, if they come late, make at most one more each
	// burst; let them all be under way first.
	time.Sleep(50 * time.Millisecond)
	close(goOn)
	wait.Wait()
	if n := made.Load(); n > 2 {
		t.Errorf("%d explanations for 21 who asked together", n)
	}
}

// TestExplainWithoutStore and the list of what may be read: it is not offered.
func TestExplainWithoutStore(t *testing.T) {
	r := start(t, testConfig(t.TempDir()), Deps{})
	resp, err := http.Get(r.api.URL + "/api/v1/explain?node=gpu001")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 404 || !strings.Contains(string(body), "prometheus.url") || r.Explains() {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}
