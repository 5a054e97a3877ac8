// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"encoding/json"
	"net/http"
	"reflect"
	"testing"
)

// TestDeviceTargets: facility devices that foreign exporters read are targets by
// their id, with no port made up for those that name none.
func TestDeviceTargets(t *testing.T) {
	r := start(t, testConfig(t.TempDir()), Deps{Site: parseSite(t, sdSite)})
	resp, err := http.Get(r.api.URL + "/api/v1/sd/exporters?job=snmp")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got []TargetGroup
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	want := []TargetGroup{
		{Targets: []string{"10.9.1.2:161"}, Labels: map[string]string{"instance": "r01-b", "site": "lab.1", "device": "r01-b", "rack_id": "r01"}},
		{Targets: []string{"10.9.1.3:161"}, Labels: map[string]string{"instance": "crac1", "site": "lab.1", "device": "crac1"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
