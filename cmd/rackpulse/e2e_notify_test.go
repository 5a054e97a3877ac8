// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/registry"
	"github.com/rackpulse/rackpulse/testtool"
)

// chat takes the messages of both kinds of sinks.
type chat struct {
	*httptest.Server
	mu      sync.Mutex
	digests []registry.Digest
	texts   []string // DingTalk's
	bad     []string
}

const robotSecret = "SEC4b1d0a7e"

func newChat(t *testing.T) *chat {
	c := &chat{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		c.mu.Lock()
		defer c.mu.Unlock()
		if req.URL.Path == "/robot/send" {
			c.robot(w, req, body)
			return
		}
		var d registry.Digest
		if err := json.Unmarshal(body, &d); err != nil {
			c.bad = append(c.bad, err.Error())
		}
		c.digests = append(c.digests, d)
	}))
	t.Cleanup(c.Close)
	return c
}

// robot checks the signature with openssl, as the vendor's page says to make it.
func (c *chat) robot(w http.ResponseWriter, req *http.Request, body []byte) {
	millis := req.FormValue("timestamp")
	cmd := exec.Command("openssl", "dgst", "-sha256", "-hmac", robotSecret, "-binary")
	cmd.Stdin = strings.NewReader(millis + "\n" + robotSecret)
	mac, err := cmd.Output()
	if want := base64.StdEncoding.EncodeToString(mac); err != nil || req.FormValue("sign") != want || req.FormValue("access_token") != "t0ken" {
		c.bad = append(c.bad, fmt.Sprintf("sign %q, openssl says %q (%v)", req.FormValue("sign"), want, err))
		fmt.Fprint(w, `{"errcode":310000,"errmsg":"sign not match"}`)
		return
	}
	var m struct{ Markdown struct{ Text string } }
	if err := json.Unmarshal(body, &m); err != nil {
		c.bad = append(c.bad, err.Error())
	}
	c.texts = append(c.texts, m.Markdown.Text)
	fmt.Fprint(w, `{"errcode":0,"errmsg":"ok"}`)
}

// heard returns what came so far.
func (c *chat) heard() ([]registry.Digest, []string, []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]registry.Digest{}, c.digests...), append([]string{}, c.texts...), append([]string{}, c.bad...)
}

// TestE2EDigest lets a cooling unit of a simulated hall stop: its rules, a real
// Alertmanager that mutes nothing, and a registry make ONE message of the cause
// and of two hundred symptoms more, with the cause explained; none again after a
// restart, and one at the end.
func TestE2EDigest(t *testing.T) {
	t.Parallel()
	c := newChat(t)
	s := prepareSmall(t, "")
	const token = "alertmanager-0123456789"
	am, hall := freePort(t), freePort(t)
	example, err := os.ReadFile(filepath.Join(testtool.Root(), "site", "example.yml"))
	if err != nil {
		t.Fatal(err)
	}
	s.write("site.yml", string(example))
	s.write("tokens.yml", "- {token: "+token+", role: operate, name: alertmanager}\n")
	s.write("token", token)
	s.write("robot-url", c.URL+"/robot/send?access_token=t0ken")
	s.write("robot-secret", robotSecret)
	s.write("registry.yml", s.registryYAML("auth: {tokens_file: tokens.yml}\nexternal_url: https://rackpulse.example.com\nprometheus: {url: 'http://"+hall+"'}\n"+
		"notifications:\n- {sink: webhook, url: '"+c.URL+"/in'}\n- {sink: dingtalk, url_file: robot-url, secret_file: robot-secret}\n"))
	s.write("am.yml", "route: {receiver: registry, group_by: [alertname, node], group_wait: 1s, group_interval: 1s, repeat_interval: 10s}\n"+
		"receivers: [{name: registry, webhook_configs: [{url: '"+s.stack.registry+"/api/v1/alerts', send_resolved: true, http_config: {authorization: {credentials_file: token}}}]}]\n")
	start(t, s.dir, "alertmanager", testtool.Binary(t, "alertmanager"), "--config.file=am.yml", "--storage.path=am-data", "--web.listen-address="+am, "--cluster.listen-address=")
	s.startReg()
	sim := start(t, s.dir, "standalone", binary(t), "standalone", "--simulate", "--scenario=cooling-loss", "--speed=60", "--web.listen-address="+hall, "--alertmanager.url=http://"+am)
	s.eventually(5*time.Minute, "the cooling fault fires", func() error {
		text, err := getURL(http.DefaultClient, "http://"+am+"/api/v2/alerts")
		if err == nil && !strings.Contains(text, `"CoolingFault"`) {
			err = fmt.Errorf("not yet")
		}
		return err
	})
	var hot []string
	for i := range 200 {
		hot = append(hot, fmt.Sprintf(`{"labels":{"alertname":"GPUHot","site":"ams1","severity":"warning","correlation":"symptom","node":"gpu%03d","rack_id":"r%02d","UUID":"GPU-x%d"},"annotations":{"summary":"hot"}}`, i%8+1, i%8/4+1, i))
	}
	s.alert(am, "["+strings.Join(hot, ",")+"]")
	s.eventually(60*time.Second, "both sinks are told", func() error {
		if d, texts, bad := c.heard(); len(d) == 0 || len(texts) == 0 {
			return fmt.Errorf("%d and %d messages; wrong: %q", len(d), len(texts), bad)
		}
		return nil
	})
	time.Sleep(40 * time.Second) // symptoms without a cause would be told after 30 s
	d, texts, bad := c.heard()
	if len(d) != 1 || len(texts) != 1 || len(bad) > 0 {
		t.Fatalf("%d and %d messages, want one each; wrong: %q\n%+v", len(d), len(texts), bad, d)
	}
	one := d[0]
	t.Logf("the message:\n%s", texts[0])
	if one.Phase != "open" || one.Cause != "cooling unit crah1" || strings.Join(one.Racks, ",") != "r01,r02" || !strings.Contains(one.Explanation, "cooling unit crah1 (score 0.") || len(one.Because) == 0 || len(one.Next) == 0 {
		t.Errorf("got %+v", one)
	}
	if !holdsAll(texts[0], []string{"### [CRITICAL] Cooling fault at crah1", "**Explained** ", "[explain](https://rackpulse.example.com/api/v1/explain?", "[silence](http"}) {
		t.Errorf("the text lacks something")
	}
	if got := series(s.fetch(""), "rackpulse_notifications_total", `result="sent"`); strings.Join(got, ",") != "1,1" {
		t.Errorf("sent %q", got)
	}
	s.reg.end()
	s.startReg()
	time.Sleep(45 * time.Second) // Alertmanager repeats all of it
	if d, texts, _ = c.heard(); len(d) != 1 || len(texts) != 1 {
		t.Errorf("after the restart %d and %d messages\n%+v", len(d), len(texts), d)
	}
	sim.end() // or it would say that all of it fires still
	s.resolve(am)
	s.eventually(2*time.Minute, "the end is told", func() error {
		if d, texts, _ = c.heard(); len(d) < 2 || len(texts) < 2 {
			return fmt.Errorf("%d and %d messages", len(d), len(texts))
		}
		return nil
	})
	if last := d[len(d)-1]; len(d) != 2 || last.Phase != "clear" || last.ID != one.ID || !strings.HasPrefix(texts[1], "### [RESOLVED after ") {
		t.Errorf("at the end %+v", d)
	}
}

// alert posts alerts to Alertmanager.
func (s *small) alert(am, body string) {
	s.t.Helper()
	s.eventually(20*time.Second, "Alertmanager takes the alerts", func() error {
		resp, err := http.Post("http://"+am+"/api/v2/alerts", "application/json", strings.NewReader(body))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(resp.Body)
			return fmt.Errorf("%s: %s", resp.Status, text)
		}
		return nil
	})
}

// resolve ends all alerts of an Alertmanager whose sender is gone.
func (s *small) resolve(am string) {
	s.t.Helper()
	text, err := getURL(http.DefaultClient, "http://"+am+"/api/v2/alerts")
	if err != nil {
		s.t.Fatal(err)
	}
	var all []map[string]any
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		s.t.Fatal(err)
	}
	for _, a := range all {
		for k := range a {
			if k != "labels" && k != "annotations" && k != "startsAt" {
				delete(a, k)
			}
		}
		a["endsAt"] = time.Now().Add(-time.Second).UTC().Format(time.RFC3339)
	}
	var body bytes.Buffer
	if err := json.NewEncoder(&body).Encode(all); err != nil {
		s.t.Fatal(err)
	}
	s.alert(am, body.String())
}
