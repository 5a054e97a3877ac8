// SPDX-License-Identifier: Apache-2.0

package action

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

const dingSecret = "SEC8f3a9c11e07b4d52"

// TestDingSign holds the signature against values that were computed elsewhere:
// printf 'MILLIS\nSECRET' | openssl dgst -sha256 -hmac SECRET -binary | base64
func TestDingSign(t *testing.T) {
	for millis, want := range map[string]string{
		"1760000000000": "OVp67GF1BKgKhPy1YBfYFhztDtv5iOpQ+fisJMRUsKU=",
		"1760000000001": "6+hjttBuwhn7bZBHRWtCD3xbgVjHVL7G8oTro2xPDkU=",
	} {
		if got := dingSign(dingSecret, millis); got != want {
			t.Errorf("%s: %s, want %s", millis, got, want)
		}
	}
}

// robot stands in for DingTalk: it checks a call as the vendor's page on custom
// robots says, and answers with its codes.
type robot struct {
	mu    sync.Mutex
	codes []int // of the next answers; then 0
	texts []string
	at    []time.Time
	bad   []string
}

func (r *robot) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if req.URL.Host == "away" {
		return nil, errors.New("connection refused")
	}
	body, _ := io.ReadAll(req.Body)
	code := r.check(req, body)
	if code == 0 && len(r.codes) > 0 {
		code, r.codes = r.codes[0], r.codes[1:]
	}
	r.at = append(r.at, time.Now())
	answer := fmt.Sprintf(`{"errcode":%d,"errmsg":"robot says %d"}`, code, code)
	status := http.StatusOK
	if code == 502 {
		answer, status = "<html>bad gateway</html>", code
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(answer)), Request: req}, nil
}

// check verifies token, time, signature, size and shape; the signature with its
// plus signs and slashes must be escaped in the URL.
func (r *robot) check(req *http.Request, body []byte) int {
	raw := map[string]string{}
	for pair := range strings.SplitSeq(req.URL.RawQuery, "&") {
		k, v, _ := strings.Cut(pair, "=")
		raw[k] = v
	}
	millis, err := strconv.ParseInt(raw["timestamp"], 10, 64)
	mac := hmac.New(sha256.New, []byte(dingSecret))
	fmt.Fprintf(mac, "%s\n%s", raw["timestamp"], dingSecret)
	want := url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	var m struct {
		Type     string `json:"msgtype"`
		Markdown struct{ Title, Text string }
	}
	switch {
	case raw["access_token"] != "t0ken":
		r.bad = append(r.bad, "token "+raw["access_token"])
		return 300001
	case err != nil || time.Since(time.UnixMilli(millis)).Abs() > time.Hour || raw["sign"] != want:
		r.bad = append(r.bad, "sign "+raw["sign"]+" at "+raw["timestamp"])
		return 310000
	case len(body) > 20000:
		return 460101
	case json.Unmarshal(body, &m) != nil || m.Type != "markdown" || m.Markdown.Title == "" || m.Markdown.Text == "":
		r.bad = append(r.bad, "body "+string(body))
		return 40035
	}
	r.texts = append(r.texts, m.Markdown.Text)
	return 0
}

// secretFile writes a file that only its owner reads.
func secretFile(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// openDing opens a notifier with one robot.
func openDing(t *testing.T, r *robot, extra string) *Notifier {
	t.Helper()
	dir := t.TempDir()
	secretFile(t, dir, "url", "https://oapi.dingtalk.com/robot/send?access_token=t0ken")
	secretFile(t, dir, "secret", dingSecret)
	n, err := OpenNotifier(parts(t, "targets: [{sink: dingtalk, url_file: url, secret_file: secret"+extra+"}]"), deps(dir))
	if err != nil {
		t.Fatal(err)
	}
	n.queues[0].sink.(*dingTalk).client.Transport = r
	return n
}

// running runs a notifier in a bubble until the returned func is called.
func running(t *testing.T, n *Notifier) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- n.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestDingTalk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &robot{codes: []int{502, -1, 130101}}
		n := openDing(t, r, ", keyword: 告警")
		stop := running(t, n)
		began := time.Now()
		told := 0
		n.Notify(Notice{Key: "a", Title: "t", Markdown: "### 温度 <b>"}, func(took bool) {
			if took {
				told++
			}
		})
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		// 1 s and 2 s after the first two failures, ten minutes after the third.
		var after []time.Duration
		for _, at := range r.at {
			after = append(after, at.Sub(began))
		}
		if want := []time.Duration{0, time.Second, 3 * time.Second, 10*time.Minute + 3*time.Second}; fmt.Sprint(after) != fmt.Sprint(want) {
			t.Errorf("sent after %v, want %v", after, want)
		}
		if len(r.bad) > 0 || told != 1 || r.texts[len(r.texts)-1] != "告警\n\n### 温度 <b>" {
			t.Errorf("bad %q, told %d, texts %q", r.bad, told, r.texts)
		}
		// A wrong signature is told once and never again.
		r.codes = []int{310000}
		refused := false
		n.Notify(Notice{Key: "b", Title: "t", Markdown: "x"}, func(took bool) { refused = !took })
		time.Sleep(time.Hour)
		synctest.Wait()
		if !refused || len(r.at) != 5 {
			t.Errorf("refused %v after %d calls", refused, len(r.at))
		}
		stop()
		for result, want := range map[string]float64{"sent": 1, "retried": 3, "refused": 1, "expired": 0, "queue_full": 0} {
			if got := testutil.ToFloat64(n.total.WithLabelValues("dingtalk", result)); got != want {
				t.Errorf("%s %v, want %v", result, got, want)
			}
		}
	})
}

// TestDingTalkRate holds that no minute sees more than 20 messages, and none is
// lost.
func TestDingTalkRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &robot{}
		n := openDing(t, r, "")
		stop := running(t, n)
		for i := range 50 {
			n.Notify(Notice{Key: strconv.Itoa(i), Title: "t", Markdown: strconv.Itoa(i)}, func(bool) {})
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		stop()
		if len(r.texts) != 50 || r.texts[49] != "49" {
			t.Errorf("%d arrived, the last is %q", len(r.texts), r.texts[len(r.texts)-1])
		}
		for i := 20; i < len(r.at); i++ {
			if d := r.at[i].Sub(r.at[i-20]); d < time.Minute {
				t.Fatalf("21 messages within %s", d)
			}
		}
	})
}

func TestDingBody(t *testing.T) {
	for _, text := range []string{strings.Repeat("温度 <\"\\>\n", 5000), strings.Repeat("x", 100000), strings.Repeat("\x01", 20001), "\xff\xfe", "short"} {
		body, err := dingBody(Notice{Title: strings.Repeat("题", 500), Markdown: text}, "")
		if err != nil || len(body) > dingMaxBytes || !json.Valid(body) {
			t.Errorf("%d bytes, %v", len(body), err)
		}
		if long := len(text) > dingMaxBytes; long != bytes.Contains(body, []byte("(cut: ")) {
			t.Errorf("%.10q: cut %v, want %v", text, !long, long)
		}
	}
}

// TestNotifier: one sink hangs, one is full, one works.
func TestNotifier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		n, err := OpenNotifier(parts(t, "targets: [{sink: webhook, name: away, url: 'http://away/'}, {sink: dingtalk, url: 'https://d/?access_token=t0ken', secret_file: s}]"), func() Deps {
			secretFile(t, dir, "s", dingSecret)
			return deps(dir)
		}())
		if err != nil {
			t.Fatal(err)
		}
		r := &robot{}
		n.queues[0].sink.(*webhookSink).client.Transport = r
		n.queues[1].sink.(*dingTalk).client.Transport = r
		stop := running(t, n)
		took, lost := 0, 0
		for range 300 {
			n.Notify(Notice{Key: "k", Title: "t", Markdown: "x", Body: 1}, func(ok bool) {
				if ok {
					took++
				} else {
					lost++
				}
			})
		}
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		stop()
		get := func(sink, result string) float64 { return testutil.ToFloat64(n.total.WithLabelValues(sink, result)) }
		if get("away", "sent") != 0 || get("away", "expired") == 0 || get("away", "queue_full") == 0 || get("away", "expired")+get("away", "queue_full") != 300 {
			t.Errorf("away: %v expired, %v too many", get("away", "expired"), get("away", "queue_full"))
		}
		if sent := get("dingtalk", "sent"); sent < maxQueued || float64(took) != sent || took+lost != 300 {
			t.Errorf("dingtalk took %v of 300, told %d, lost %d", sent, took, lost)
		}
	})
}

// TestWebhookSink calls a real server.
func TestWebhookSink(t *testing.T) {
	var head http.Header
	var body []byte
	status := http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		head = req.Header
		body, _ = io.ReadAll(req.Body)
		w.WriteHeader(status)
	}))
	defer srv.Close()
	dir := t.TempDir()
	secretFile(t, dir, "s", "s3cret")
	n, err := OpenNotifier(parts(t, "targets: [{sink: webhook, url: '"+srv.URL+"/in?x=1', secret_file: s}]"), deps(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	send := func() error {
		return n.queues[0].sink.Send(t.Context(), Notice{Key: "k-open", Body: map[string]any{"phase": "open"}})
	}
	if err := send(); err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, []byte("s3cret"))
	mac.Write([]byte(head.Get("X-Rackpulse-Timestamp") + "." + string(body)))
	if head.Get("X-Rackpulse-Signature") != "sha256="+hex.EncodeToString(mac.Sum(nil)) || head.Get("Idempotency-Key") != "k-open" || string(body) != `{"phase":"open"}` {
		t.Errorf("headers %v, body %s", head, body)
	}
	var refused *RefusedError
	status = http.StatusNotFound
	if err := send(); !errors.As(err, &refused) {
		t.Errorf("404: %v", err)
	}
	status = http.StatusServiceUnavailable
	if err := send(); err == nil || errors.As(err, &refused) {
		t.Errorf("503: %v", err)
	}
}

func TestOpenNotifierRefuses(t *testing.T) {
	dir := t.TempDir()
	secretFile(t, dir, "url", "https://h/robot?access_token=hush")
	secretFile(t, dir, "bad", "ftp://h/robot?access_token=hush")
	for text, want := range map[string]string{
		"{sink: pager}":   `registry.yml:1: sink "pager" is none of dingtalk, webhook`,
		"{sink: webhook}": "give one of url and url_file",
		"{sink: webhook, url: 'http://h', url_file: url}":                        "give one of url and url_file",
		"{sink: webhook, url_file: none}":                                        "url_file",
		"{sink: webhook, url_file: bad}":                                         `url "ftp://h", want`,
		"{sink: dingtalk, url: 'http://h/x'}":                                    "access_token",
		"{sink: dingtalk, url_file: url, secret_file: none}":                     "secret_file",
		"{sink: dingtalk, url_file: url, sekret: x}":                             "sekret",
		"{sink: webhook, url: 'http://h'}, {sink: webhook, url: 'http://h'}":     `two sinks are named "webhook"`,
		strings.Repeat("{sink: webhook, url: 'http://h'}, ", 17) + "{sink: web}": "at most 16",
	} {
		_, err := OpenNotifier(parts(t, "targets: ["+text+"]"), deps(dir))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if n, err := OpenNotifier(nil, deps(dir)); n != nil || err != nil {
		t.Errorf("no sinks: %v, %v", n, err)
	}
}
