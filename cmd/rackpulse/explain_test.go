// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// say runs a verb and returns its exit status and what it printed.
func say(t *testing.T, args ...string) (code int, out, errors string) {
	t.Helper()
	var o, e bytes.Buffer
	code = execute(t.Context(), args, stdio{nil, &o, &e})
	return code, o.String(), e.String()
}

// TestExplainAndStatus asks a running standalone whose GPU fell off the bus.
func TestExplainAndStatus(t *testing.T) {
	url := runStandalone(t, "--scenario=gpu-lost", "--speed=600")
	from := "--prometheus.url=" + url
	await(t, 60*time.Second, "the lost GPU is explained", func() bool {
		code, _, _ := say(t, "explain", "--node=gpu001", "--brief", from)
		return code == 0
	})
	code, out, _ := say(t, "explain", "--node=gpu001", "--json", from)
	var report struct {
		Fault      bool
		Conclusion string
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 || !report.Fault || !strings.Contains(report.Conclusion, "GPU 0 of gpu001") {
		t.Errorf("exit status %d, %v, %+v", code, err, report)
	}
	for _, tc := range []struct {
		args string
		code int
		want string // in what is printed
	}{
		{"explain --node=gpu001 --registry.url=" + url, 0, "CAUSE: GPU 0 of gpu001"},
		{"explain --rack=r01 --markdown", 0, "# CAUSE: GPU 0 of gpu001"},
		{"explain --node=gpu099", 3, `no node "gpu099"`},
		{"explain", 3, "give one of node"},
		{"explain --node=gpu001 --at=yesterday", 3, `--at "yesterday"`},
		{"explain --node=gpu001 --at=1h --from=2h", 3, "either --at or --from"},
		{"explain --node=gpu001 --from=1h --to=2h", 3, "window"},
		{"explain --node=gpu001 --at=10h", 2, "has no signals of node gpu001"},
		{"explain --node=gpu001 --site.file=none.yml", 3, "none.yml"},
		{"status gpu001", 0, "LOST"},
		{"status r02 --json", 0, `"node": "gpu008"`},
		{"status ws01", 0, "ws01"},
		{"status GPU-none", 1, "no GPU GPU-none"},
		{"status nobody", 1, `no node and no rack "nobody"`},
	} {
		code, out, errors := say(t, append(strings.Fields(tc.args), from)...)
		if code != tc.code || !strings.Contains(strings.ToLower(out+errors), strings.ToLower(tc.want)) {
			t.Errorf("%s: exit status %d, want %d with %q\n%s%s", tc.args, code, tc.code, tc.want, out, errors)
		}
	}
	for path, want := range map[string]string{
		"node=gpu001&format=brief": "node gpu001: GPU 0 of gpu001", "rack=r01&format=markdown": "# CAUSE: GPU 0 of gpu001", "node=gpu001&at=1s": `"fault":true`,
	} {
		await(t, 30*time.Second, path+" is answered with "+want, func() bool {
			resp, err := http.Get(url + "/api/v1/explain?" + path)
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			page, _ := io.ReadAll(resp.Body)
			return strings.Contains(string(page), want)
		})
	}
	if page := fetchPage(t, url+"/rack/r01"); !strings.Contains(page, `href="../api/v1/explain?rack=r01&amp;format=text"`) || !strings.Contains(page, `href="../api/v1/explain?node=gpu001&amp;format=text"`) {
		t.Error("the rack's page does not lead to the explanations")
	}
	if code, _, errors := say(t, "explain", "--node=gpu001", "--prometheus.url=http://127.0.0.1:1"); code != 3 || !strings.Contains(errors, "give --site.file") {
		t.Errorf("no server: exit status %d, %s", code, errors)
	}
}

// TestOrders holds that the program takes the orders that explanations write.
func TestOrders(t *testing.T) {
	for _, line := range []string{"drain --reason=gpu-lost gpu001", "maintenance --reason=gpu-lost gpu001", "breaker hold --reason=rack-silent"} {
		if err := parses(strings.Fields(line)); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}
