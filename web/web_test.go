// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/rackpulse/rackpulse/registry"
)

func wants(t *testing.T, body string, fragments ...string) {
	t.Helper()
	for _, f := range fragments {
		if !strings.Contains(body, f) {
			t.Errorf("not in the page: %s", f)
		}
	}
}

func TestFaultPage(t *testing.T) {
	code, body := get(t, serving(coolingFault()), "/")
	if code != 200 {
		t.Fatal(code)
	}
	wants(t, body,
		`<title>(1) RackPulse ams1</title>`,
		`<strong class="simulated">SIMULATED DATA</strong>`,
		`<time datetime="2026-03-01T12:00:00Z">2026-03-01 12:00:00 UTC</time>`,
		`r04-b: no answer since 11:58:20 UTC`,
		`<span class="badge critical"><span aria-hidden="true">▲</span> 1 critical</span>`,
		`<span class="badge warning"><span aria-hidden="true">◆</span> 3 warning</span>`,
		`<span class="state bad"><span aria-hidden="true">✕</span> 1 EXPIRED</span> <span class="state poor"><span aria-hidden="true">▲</span> 1 DEGRADED</span>`,
		`<span aria-hidden="true">●</span> 13 READY</span>`,
		`4 racks, 17 nodes, 121 GPUs`, // 4 x 4 x 8 less one never seen, and the workstation's
		`<dd class="cause">cooling unit crah1</dd>`,
		`<a href="#rack-r01">r01</a> <a href="#rack-r02">r02</a>`,
		`2026-03-01 11:54:00 UTC <span class="dim">(6 min ago)</span>`,
		`2 symptoms that the causes above explain: GPUHot (2)`,
		`<strong class="hot"><span aria-hidden="true">▲</span> 31.2 °C hot</strong>`,
		`21.3 kW of 44.0 kW (48 %)`,
		`<strong class="hot"><span aria-hidden="true">▲</span> crah1 at fault</strong>`,
		`<dt>r01-a</dt><dd>15.6 A <span class="dim">10.7 kW, feed-a</span></dd>`,
		`<dt>r04-b</dt><dd>– <span class="dim">feed-b</span> <span class="state poor">no answer</span></dd>`,
		`aria-label="Front of rack r01: 4 nodes, 3 ready, 32 of 48 units used"`,
		`<title>gpu004, DEGRADED, unit 25, 8 GPUs: GPU 5 lost: GPU-1-4-5 missing</title>`,
		`<title>GPU 5: lost</title>`,
		`<title>GPU 0: temperature unknown</title>`,
		`<title>GPU 0: 78 °C, 640 W, 2 % busy</title>`,
		`<a href="https://grafana.example/d/rackpulse">Grafana</a>`,
		`<th scope="row">ws01</th>`,
	)
	critical, warning, folded := strings.Index(body, "Cooling fault in r01"), strings.Index(body, "PDU r04-b does not answer"), strings.Index(body, "GPU 2 of gpu001 at 88")
	if critical < 0 || warning < critical || folded < warning || strings.Index(body, `<details id="symptoms"`) > folded {
		t.Errorf("order: cause %d, warning %d, symptom %d", critical, warning, folded)
	}
	if strings.Count(body, `<svg class="elevation"`) != 4 || strings.Count(body, "<section class=\"row\"") != 2 {
		t.Error("want four racks in two rows")
	}
}

// TestNoZeroForMissing: nothing that is not known is shown as a number.
func TestNoZeroForMissing(t *testing.T) {
	v := &registry.View{Site: "s", At: noon, Racks: []registry.RackView{{ID: "r1", HeightU: 42, PDUs: []registry.PDUView{{ID: "p1"}},
		Nodes: []registry.NodeView{{ID: "n1", U: 1, HeightU: 4, GPUs: []registry.GPUView{{}}}}}}}
	_, body := get(t, serving(v), "/")
	wants(t, body, `<dt>Inlet</dt><dd>–</dd>`, `<dt>Power</dt><dd>– <span class="dim">no limit declared</span></dd>`,
		`<dt>p1</dt><dd>– <span class="dim">–</span> <span class="state off">never polled</span></dd>`, `none declared`,
		`<title>GPU –: temperature unknown</title>`, `never seen`, `<td>–</td>`)
	shown, _, _ := strings.Cut(body, "Legend")
	for _, bad := range []string{"0.0 ", "0 W", "0 °C", "0 %", "0001-01-01", "NaN", "<nil>"} {
		if strings.Contains(shown, bad) {
			t.Errorf("%q in the page", bad)
		}
	}
}

func TestHostileNames(t *testing.T) {
	evil := `"><script>alert(1)</script><x y='`
	v := coolingFault()
	v.Site, v.Problems = evil, []string{evil}
	r := &v.Racks[0]
	r.ID, r.Row, r.Room, r.CoolingUnits = evil, evil, evil, []string{evil}
	r.PDUs[0] = registry.PDUView{ID: evil, Feed: evil}
	r.Nodes[0].ID, r.Nodes[0].Reason, r.Nodes[0].State, r.Nodes[0].Class = evil, evil, evil, evil
	r.Nodes[0].GPUs[0].Index = evil
	v.Alerts[3].Summary, v.Alerts[3].Cause, v.Alerts[3].Racks, v.Alerts[3].Severity = evil, evil, []string{evil}, evil
	v.Alerts[3].Labels[evil] = evil
	h := NewHandler(Config{Title: evil, Links: []Link{{evil, "javascript:alert(1)"}},
		View: func(context.Context) (*registry.View, error) { return v, nil }})
	_, body := get(t, h, "/")
	if strings.Contains(body, "<script>") || strings.Contains(body, "<x y") || strings.Contains(body, "javascript:") {
		t.Error("names are not escaped")
	}
	if n := strings.Count(body, "<script"); n != 1 {
		t.Errorf("%d scripts, want our own", n)
	}
}

// TestStrictPolicy: the page needs nothing that its policy forbids.
func TestStrictPolicy(t *testing.T) {
	w := httptest.NewRecorder()
	serving(coolingFault()).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if csp := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
		t.Errorf("policy %q", csp)
	}
	body := w.Body.String()
	if bad := regexp.MustCompile(` style="| on[a-z]+="|<style|src="(//|http)|@import`).FindString(body); bad != "" {
		t.Errorf("%q in the page", bad)
	}
	for _, asset := range regexp.MustCompile(`assets/[a-z.]+`).FindAllString(body, -1) {
		w := httptest.NewRecorder()
		serving(nil).ServeHTTP(w, httptest.NewRequest("GET", "/"+asset, nil))
		if w.Code != 200 || w.Body.Len() == 0 || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d", asset, w.Code)
		}
		if bad := regexp.MustCompile(`https?://[^w]|@import|url\(`).FindString(w.Body.String()); bad != "" {
			t.Errorf("%s loads from elsewhere: %q", asset, bad)
		}
	}
	if code, _ := get(t, serving(nil), "/assets/nothing.js"); code != 404 {
		t.Errorf("unknown asset: %d", code)
	}
}

// TestWellFormed: every tag is closed, which browsers would hide.
func TestWellFormed(t *testing.T) {
	_, body := get(t, serving(coolingFault()), "/")
	body = regexp.MustCompile(`<(meta|link)([^>]*)>`).ReplaceAllString(body, "<$1$2/>")
	body = strings.NewReplacer("<!DOCTYPE html>", "", " hidden>", ">", " defer>", ">").Replace(body)
	d := xml.NewDecoder(strings.NewReader(body))
	ids := map[string]bool{}
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		for _, a := range start.Attr {
			if a.Name.Local == "id" && ids[a.Value] {
				t.Errorf("id %q twice", a.Value)
			} else if a.Name.Local == "id" {
				ids[a.Value] = true
			}
		}
	}
	if len(ids) < 10 {
		t.Errorf("%d ids", len(ids))
	}
}

func TestOneRack(t *testing.T) {
	v := coolingFault()
	h := serving(v)
	code, body := get(t, h, "/rack/r02")
	if code != 200 || strings.Count(body, `<svg class="elevation"`) != 1 || strings.Contains(body, "PDU r04-b does not") || strings.Contains(body, "ws01") {
		t.Errorf("rack r02: %d", code)
	}
	wants(t, body, `href="../assets/style.css"`, `Cooling fault in r01 and r02`, `<a href="../rack/r01">r01</a>`, "gpu007")
	if len(v.Racks) != 4 || len(v.Alerts) != 4 || len(v.Rackless) != 1 {
		t.Error("the caller's view was changed")
	}
	code, body = get(t, h, "/rack/r99")
	if code != 404 {
		t.Errorf("unknown rack: %d", code)
	}
	wants(t, body, `There is no rack &#34;r99&#34;.`)
}

func TestViewFails(t *testing.T) {
	h := NewHandler(Config{View: func(context.Context) (*registry.View, error) { return nil, errors.New("ledger is closed") }})
	code, body := get(t, h, "/")
	if code != http.StatusServiceUnavailable {
		t.Error(code)
	}
	wants(t, body, "The state of the hall cannot be read: ledger is closed", "assets/refresh.js")
	if code, _ := get(t, h, "/nothing"); code != 404 {
		t.Errorf("unknown path: %d", code)
	}
}

func TestBigHallIsBounded(t *testing.T) {
	_, body := get(t, serving(hallView(64, 8, 4)), "/")
	if len(body) > 2_000_000 {
		t.Errorf("%d bytes, want less than 2 MB", len(body))
	}
	t.Logf("64 racks, 512 nodes, 4096 GPUs: %d bytes", len(body))
	wants(t, body, `<nav class="map" aria-label="Racks at a glance">`)
}

func BenchmarkPage(b *testing.B) {
	for _, racks := range []int{4, 64} {
		b.Run(fmt.Sprintf("%dracks", racks), func(b *testing.B) {
			h := serving(hallView(racks, 8, 4))
			b.ReportAllocs()
			for b.Loop() {
				get(b, h, "/")
			}
		})
	}
}
