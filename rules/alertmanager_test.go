// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/testtool"
)

// alertmanagerConfig is a configuration with the generated inhibition rules.
func alertmanagerConfig(t *testing.T) string {
	t.Helper()
	fragment := build(t)[generatedDir+"inhibit.yml"]
	path := filepath.Join(t.TempDir(), "alertmanager.yml")
	text := "route: {receiver: nobody, group_wait: 1h}\nreceivers: [{name: nobody}]\n" + string(fragment)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestInhibitionIsValid(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), testtool.Binary(t, "amtool"), "check-config", alertmanagerConfig(t)).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "12 inhibit rules") {
		t.Errorf("amtool: %v\n%s", err, out)
	}
}

// startAlertmanager runs a real Alertmanager on a free loopback port and returns
// its address. It ends with the test.
func startAlertmanager(t *testing.T, config string) string {
	t.Helper()
	cmd := exec.Command(testtool.Binary(t, "alertmanager"), "--config.file="+config, "--storage.path="+t.TempDir(),
		"--web.listen-address=127.0.0.1:0", "--cluster.listen-address=", "--log.level=info")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	addr, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		listening := regexp.MustCompile(`msg="Listening on" address=(\S+)`)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				addr <- m[1]
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended already
		<-ended
		_ = cmd.Wait() // killed
	})
	select {
	case a := <-addr:
		return "http://" + a
	case <-ended:
		t.Fatal("alertmanager ended before it listened")
	case <-time.After(30 * time.Second):
		t.Fatal("alertmanager does not listen")
	}
	return ""
}

type apiAlert struct {
	Labels      map[string]string `json:"labels"`
	Fingerprint string            `json:"fingerprint"`
	Status      struct {
		State       string   `json:"state"`
		InhibitedBy []string `json:"inhibitedBy"`
	} `json:"status"`
}

// label sets are written as "Name label=value ...".
func parseLabels(text string) map[string]string {
	fields := strings.Fields(text)
	out := map[string]string{"alertname": fields[0]}
	if !strings.Contains(text, "site=") {
		out["site"] = "ams1"
	}
	for _, f := range fields[1:] {
		k, v, _ := strings.Cut(f, "=")
		out[k] = v
	}
	return out
}

func postAlerts(t *testing.T, url string, texts []string) {
	t.Helper()
	var body []map[string]any
	for _, text := range texts {
		body = append(body, map[string]any{"labels": parseLabels(text)})
	}
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(url+"/api/v2/alerts", "application/json", bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		t.Fatalf("POST alerts: %s %s", resp.Status, text)
	}
}

func getAlerts(t *testing.T, url string) []apiAlert {
	t.Helper()
	resp, err := http.Get(url + "/api/v2/alerts")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out []apiAlert
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

// muted lists which causes mute each symptom, as "symptom <- cause".
func muted(alerts []apiAlert) []string {
	names := map[string]string{}
	for _, a := range alerts {
		names[a.Fingerprint] = a.Labels["alertname"]
	}
	var out []string
	for _, a := range alerts {
		id := a.Labels["alertname"]
		for _, l := range []string{"site", "rack_id", "node", "UUID", "device", "pdu_id", "cooling_unit"} {
			if v := a.Labels[l]; v != "" && v != "ams1" {
				id += " " + v
			}
		}
		for _, by := range a.Status.InhibitedBy {
			out = append(out, id+" <- "+names[by])
		}
	}
	slices.Sort(out)
	return out
}

// TestInhibition posts causes, their symptoms and foreign symptoms to a real
// Alertmanager and reads who mutes whom. The causes stand for racks that also
// have label-less doubles, which must mute nothing.
func TestInhibition(t *testing.T) {
	url := startAlertmanager(t, alertmanagerConfig(t))
	postAlerts(t, url, []string{
		"CoolingFault cooling_unit=crah1", "CoolingFaultRack cooling_unit=crah1 rack_id=r01 role=inhibitor",
		"RackAirflowLost rack_id=r07", "FeedLost feed=feed-a",
		"FeedLostPDU feed=feed-a rack_id=r01 pdu_id=r01-a device=r01-a role=inhibitor", "PDULost feed=feed-a rack_id=r08 pdu_id=r08-a device=r08-a",
		"RackSilent rack_id=r03", "GPULost rack_id=r05 node=gpu050 UUID=GPU-1",
		// Causes without the label that they should have.
		"CoolingFaultRack cooling_unit=crah9", "RackSilent", "GPULost node=ws01", "FeedLostPDU feed=feed-z", "CoolingFault",
		// Symptoms that a cause explains.
		"GPUHot rack_id=r01 UUID=GPU-7", "RackInletHot rack_id=r01", "RackAirflowLost rack_id=r01", "CoolingUnitDown cooling_unit=crah1",
		"GPUHot rack_id=r07 UUID=GPU-70", "FacilityDeviceDown rack_id=r01 device=r01-a driver=snmp", "DeviceNotPolled rack_id=r01 device=r01-a",
		"PDULost feed=feed-a rack_id=r01 pdu_id=r01-a device=r01-a", "FacilityDeviceDown rack_id=r08 device=r08-a driver=snmp",
		"NodeLeaseLost rack_id=r03 node=gpu030", "NodeSuspect rack_id=r03 node=gpu031", "GPUHot rack_id=r05 UUID=GPU-1",
		// The same symptoms elsewhere.
		"GPUHot rack_id=r02 UUID=GPU-8", "RackInletHot rack_id=r02", "CoolingUnitDown cooling_unit=crah2", "FacilityDeviceDown rack_id=r01 device=r01-b driver=snmp",
		"PDULost feed=feed-b rack_id=r02 pdu_id=r02-b device=r02-b", "NodeLeaseLost rack_id=r04 node=gpu040", "GPUHot rack_id=r05 UUID=GPU-2",
		"GPUHot site=lon1 rack_id=r01 UUID=GPU-9", "NodeLeaseLost site=lon1 rack_id=r03 node=gpu030",
		// Symptoms without the label.
		"GPUHot gpu=0", "RackInletHot sensor=x", "NodeLeaseLost node=ws01", "NodeSuspect node=ws01", "FacilityDeviceDown driver=snmp", "PDULost feed=feed-z", "CoolingUnitDown room=hall1",
	})
	wanted := []string{
		"CoolingUnitDown crah1 <- CoolingFault",
		"DeviceNotPolled r01 r01-a <- FeedLostPDU",
		"FacilityDeviceDown r01 r01-a <- FeedLostPDU",
		"FacilityDeviceDown r08 r08-a <- PDULost",
		"GPUHot r01 GPU-7 <- CoolingFaultRack",
		"GPUHot r05 GPU-1 <- GPULost",
		"GPUHot r07 GPU-70 <- RackAirflowLost",
		"NodeLeaseLost r03 gpu030 <- RackSilent",
		"NodeSuspect r03 gpu031 <- RackSilent",
		"PDULost r01 r01-a r01-a <- FeedLostPDU",
		"RackAirflowLost r01 <- CoolingFaultRack",
		"RackInletHot r01 <- CoolingFaultRack",
	}
	// Two causes may carry the labels of one symptom; Alertmanager names one.
	either := strings.NewReplacer("r01 GPU-7 <- RackAirflowLost", "r01 GPU-7 <- CoolingFaultRack", "RackInletHot r01 <- RackAirflowLost", "RackInletHot r01 <- CoolingFaultRack",
		"r01-a <- PDULost", "r01-a <- FeedLostPDU")
	var got []string
	tick := time.NewTicker(50 * time.Millisecond) // the inhibitor hears of alerts a moment after the API
	defer tick.Stop()
	for range 200 {
		got = muted(getAlerts(t, url))
		for i := range got {
			got[i] = either.Replace(got[i])
		}
		if got = slices.Compact(got); slices.Equal(got, wanted) {
			return
		}
		<-tick.C
	}
	t.Errorf("muted:\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(wanted, "\n  "))
}
