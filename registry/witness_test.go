// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
	"github.com/rackpulse/rackpulse/query"
)

// replies is a store that knows the replies to some expressions.
type replies map[string]float64

func (a replies) Instant(_ context.Context, expr string, _ time.Time) ([]query.Sample, error) {
	if _, broken := a["error"]; broken {
		return nil, errors.New("no route to host")
	}
	if v, ok := a[expr]; ok {
		return []query.Sample{{Value: v}}, nil
	}
	return nil, nil
}

func (a replies) Range(context.Context, string, time.Time, time.Time, time.Duration) ([]query.Series, error) {
	return nil, nil
}

func (a replies) Alerts(context.Context) ([]query.Alert, error) { return nil, nil }

func TestWitness(t *testing.T) {
	outlets := func(a, b, peak float64) replies {
		return replies{
			`sum(pdu_outlet_power_watt{pdu_id="r01-a",outlet="1"})`:                    a,
			`sum(pdu_outlet_power_watt{pdu_id="r01-b",outlet="1"})`:                    b,
			`sum(max_over_time(pdu_outlet_power_watt{pdu_id="r01-a",outlet="1"}[1d]))`: peak,
			`sum(max_over_time(pdu_outlet_power_watt{pdu_id="r01-b",outlet="1"}[1d]))`: peak,
		}
	}
	with := func(a replies, expr string, v float64) replies { a[expr] = v; return a }
	rack := func(now, peak float64) replies {
		return replies{`sum(pdu_power_watt{pdu_id="r01-a"})`: now, `sum(max_over_time(pdu_power_watt{pdu_id="r01-a"}[1d]))`: peak,
			`sum(pdu_power_watt{pdu_id="r01-b"})`: 0, `sum(max_over_time(pdu_power_watt{pdu_id="r01-b"}[1d]))`: 10}
	}
	mute := rack(300, 33000) // a PDU whose management card is dead, and that may carry the rack
	delete(mute, `sum(pdu_power_watt{pdu_id="r01-b"})`)
	port := `max(switch_port_up{switch="tor01",port="Ethernet1"})`
	half := outlets(40, 40, 4200)
	delete(half, `sum(pdu_outlet_power_watt{pdu_id="r01-b",outlet="1"})`)
	for _, tc := range []struct {
		name string
		a    replies
		want ledger.Witness
		word string
	}{
		{"nothing known", replies{}, ledger.WitnessSilent, "power"},
		{"works", outlets(4000, 4100, 4200), ledger.WitnessAlive, "8100 W"},
		{"idles", outlets(900, 950, 4200), ledger.WitnessAlive, "1850 W"},
		{"stands by", outlets(60, 40, 4200), ledger.WitnessDead, "100 W of up to 8400 W"},
		{"one outlet only", half, ledger.WitnessSilent, "not known"},
		{"small machine", outlets(5, 5, 60), ledger.WitnessSilent, "too little"},
		{"works though its port is down", with(outlets(4000, 4100, 4200), port, 0), ledger.WitnessAlive, ""},
		{"rack without power", rack(300, 33000), ledger.WitnessDead, "of its rack"},
		{"rack of which one PDU tells nothing", mute, ledger.WitnessSilent, ""},
		{"rack with power", rack(25000, 33000), ledger.WitnessSilent, ""},
		{"port down", replies{port: 0}, ledger.WitnessDead, "ports"},
		{"port up", replies{port: 1}, ledger.WitnessSilent, ""},
		{"simulated", with(outlets(0, 0, 4200), `max(rackpulse_simulated{layer="facility"})`, 1), ledger.WitnessSilent, "simulated"},
		{"Prometheus is away", replies{"error": 1}, ledger.WitnessSilent, "no route"},
	} {
		r := start(t, testConfig(t.TempDir()), Deps{Querier: tc.a})
		got, words := r.Witness(t.Context(), "gpu001")
		if got != tc.want || !strings.Contains(words, tc.word) {
			t.Errorf("%s: %d %q, want %d %q", tc.name, got, words, tc.want, tc.word)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	}
}
