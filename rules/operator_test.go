// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/rackpulse/rackpulse/config"
)

// object is what the operator's API allows of the objects that are written here,
// by its reference (monitoring.coreos.com/v1 and v1alpha1).
type object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name, Namespace string
		Labels          map[string]string
	}
	Spec config.Part
}

type relabeling struct {
	SourceLabels []string `yaml:"sourceLabels"`
	TargetLabel  string   `yaml:"targetLabel"`
	Regex        string
	Replacement  string
	Action       string
}

type scrapeSpec struct {
	JobName           string                 `yaml:"jobName"`
	HonorLabels       bool                   `yaml:"honorLabels"`
	MetricsPath       string                 `yaml:"metricsPath"`
	Params            map[string][]string    `yaml:"params"`
	HTTPSDConfigs     []struct{ URL string } `yaml:"httpSDConfigs"`
	Relabelings       []relabeling           `yaml:"relabelings"`
	MetricRelabelings []relabeling           `yaml:"metricRelabelings"`
}

type monitorSpec struct {
	Selector struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	}
	Endpoints []struct {
		Port        string
		HonorLabels bool `yaml:"honorLabels"`
		Relabelings []relabeling
	}
}

type ruleSpec struct {
	Groups []struct {
		Name     string
		Interval string
		Rules    []struct {
			Record, Alert, Expr string
			For                 string
			KeepFiringFor       string `yaml:"keep_firing_for"`
			Labels, Annotations map[string]string
		}
	}
}

func decodeObject(t *testing.T, name string, data []byte, spec any) object {
	t.Helper()
	var o object
	if err := config.Strict(name, data, &o); err != nil {
		t.Fatal(err)
	}
	if err := o.Spec.Decode(spec); err != nil {
		t.Fatal(err)
	}
	if !objectName.MatchString(o.Metadata.Name) || o.Metadata.Labels["release"] != "prom" || o.Metadata.Namespace != "monitoring" {
		t.Errorf("%s: metadata %+v", name, o.Metadata)
	}
	return o
}

var testOperator = Operator{Namespace: "monitoring", Labels: map[string]string{"release": "prom"}, Registry: "http://registry:9401", Site: "ams1"}

// TestPrometheusRules: the objects hold the groups of the rule files and nothing
// that the operator does not know.
func TestPrometheusRules(t *testing.T) {
	built := build(t)
	objects, err := testOperator.Rules(built)
	if err != nil || len(objects) != 2 {
		t.Fatalf("%d objects, error %v", len(objects), err)
	}
	duration := regexp.MustCompile(`^(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?$`)
	for name, data := range objects {
		var spec ruleSpec
		o := decodeObject(t, name, data, &spec)
		if o.APIVersion != "monitoring.coreos.com/v1" || o.Kind != "PrometheusRule" || o.Metadata.Name+".prometheusrule.yml" != name {
			t.Errorf("%s: %s %s %s", name, o.APIVersion, o.Kind, o.Metadata.Name)
		}
		for _, g := range spec.Groups {
			for _, r := range g.Rules {
				if r.Expr == "" || !duration.MatchString(r.For) || !duration.MatchString(r.KeepFiringFor) || (r.Alert == "") == (r.Record == "") {
					t.Errorf("%s: %+v", name, r)
				}
			}
		}
		path := generatedDir + strings.TrimPrefix(strings.TrimSuffix(name, ".prometheusrule.yml"), "rackpulse-") + ".rules.yml"
		var want ruleSpec
		if err := config.Strict(path, built[path], &want); err != nil {
			t.Fatal(err)
		}
		if len(want.Groups) == 0 || !reflect.DeepEqual(spec, want) {
			t.Errorf("%s is not what %s says", name, path)
		}
	}
}

func TestOperatorTargets(t *testing.T) {
	objects, err := testOperator.Targets()
	if err != nil {
		t.Fatal(err)
	}
	var scrape scrapeSpec
	o := decodeObject(t, "scrape", objects["rackpulse.scrapeconfig.yml"], &scrape)
	if o.APIVersion != "monitoring.coreos.com/v1alpha1" || o.Kind != "ScrapeConfig" || !scrape.HonorLabels || scrape.JobName != "rackpulse" ||
		len(scrape.HTTPSDConfigs) != 1 || scrape.HTTPSDConfigs[0].URL != "http://registry:9401/api/v1/sd/agents" {
		t.Errorf("%+v %+v", o, scrape)
	}
	var monitor monitorSpec
	o = decodeObject(t, "monitor", objects["rackpulse.servicemonitor.yml"], &monitor)
	if o.APIVersion != "monitoring.coreos.com/v1" || o.Kind != "ServiceMonitor" || len(monitor.Endpoints) != 1 || !monitor.Endpoints[0].HonorLabels || monitor.Endpoints[0].Port != "metrics" ||
		len(monitor.Endpoints[0].Relabelings) != 5 || monitor.Endpoints[0].Relabelings[4].Replacement != "ams1" {
		t.Errorf("%+v %+v", o, monitor)
	}
	list, err := Adapters()
	if err != nil {
		t.Fatal(err)
	}
	if objects, err = testOperator.Adapters(list); err != nil || len(objects) != len(list) {
		t.Fatalf("%d objects, error %v", len(objects), err)
	}
	for name, data := range objects {
		var spec scrapeSpec
		o := decodeObject(t, name, data, &spec)
		if o.Kind != "ScrapeConfig" || spec.JobName == "" || spec.HonorLabels || !strings.Contains(spec.HTTPSDConfigs[0].URL, "/api/v1/sd/exporters?job="+spec.JobName) || len(spec.MetricRelabelings) == 0 {
			t.Errorf("%s: %+v", name, spec)
		}
	}
}

func TestOperatorRefuses(t *testing.T) {
	for want, o := range map[string]Operator{
		`namespace "A b" is no name`: {Namespace: "A b", Registry: "http://r:1"},
		"label a b=c is none":        {Labels: map[string]string{"a b": "c"}, Registry: "http://r:1"},
		`registry "r": want http://`: {Registry: "r"},
	} {
		if _, err := o.Targets(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
