// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Operator says how objects of the Prometheus operator are named and labelled.
type Operator struct {
	Namespace string
	// Labels are those by which the operator's Prometheus selects objects.
	Labels map[string]string
	// Registry is the registry's URL as Prometheus reaches it.
	Registry string
	// Site is the site's id, for targets that the registry did not discover;
	// empty: they get no label site.
	Site string
}

var (
	objectName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`) // a DNS subdomain (RFC 1123)
	kubeLabel  = regexp.MustCompile(`^([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)
	kubeValue  = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$`)
)

// check finds names that Kubernetes would refuse.
func (o *Operator) check() error {
	if o.Namespace != "" && !objectName.MatchString(o.Namespace) {
		return fmt.Errorf("namespace %q is no name in Kubernetes", o.Namespace)
	}
	for key, value := range o.Labels {
		if !kubeLabel.MatchString(key) || !kubeValue.MatchString(value) {
			return fmt.Errorf("label %s=%s is none of Kubernetes", key, value)
		}
	}
	return nil
}

// object begins an object up to its spec.
func (o *Operator) object(api, kind, name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: monitoring.coreos.com/%s\nkind: %s\nmetadata:\n  name: %s\n", api, kind, name)
	if o.Namespace != "" {
		fmt.Fprintf(&b, "  namespace: %s\n", quote(o.Namespace))
	}
	labels := map[string]string{"app.kubernetes.io/name": "rackpulse"}
	maps.Copy(labels, o.Labels)
	b.WriteString("  labels:\n")
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		fmt.Fprintf(&b, "    %s: %s\n", key, quote(labels[key]))
	}
	return b.String() + "spec:\n"
}

// Rules turns rule files (by path) into PrometheusRule objects, one a file, with
// the same groups. Other files are left out. The keys are file names.
func (o *Operator) Rules(files map[string][]byte) (map[string][]byte, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		base, ok := strings.CutSuffix(path[strings.LastIndex(path, "/")+1:], ".rules.yml")
		if !ok {
			continue
		}
		name := "rackpulse-" + base
		_, groups, found := strings.Cut(string(files[path]), "groups:\n")
		if !found || !objectName.MatchString(name) {
			return nil, fmt.Errorf("%s: no rule groups, or no name for Kubernetes", path)
		}
		body := "  groups:\n" + regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(groups, "  $1")
		out[name+".prometheusrule.yml"] = []byte(o.object("v1", "PrometheusRule", name) + body)
	}
	return out, nil
}

// Targets are the objects by which the operator's Prometheus finds RackPulse: a
// ScrapeConfig that asks the registry, or, for an operator without that kind, a
// ServiceMonitor of the services labelled app.kubernetes.io/name=rackpulse with
// a port "metrics". One of the two is wanted, not both.
func (o *Operator) Targets() (map[string][]byte, error) {
	sd, err := registryURL(o.Registry, "api/v1/sd/agents", nil)
	if err = cmp.Or(o.check(), err); err != nil {
		return nil, err
	}
	scrape := o.object("v1alpha1", "ScrapeConfig", "rackpulse") +
		fmt.Sprintf("  jobName: rackpulse\n  honorLabels: true\n  httpSDConfigs:\n    - url: %s\n", quote(sd))
	var b strings.Builder
	b.WriteString(o.object("v1", "ServiceMonitor", "rackpulse"))
	b.WriteString("  selector:\n    matchLabels:\n      app.kubernetes.io/name: rackpulse\n  endpoints:\n    - port: metrics\n      honorLabels: true\n")
	// The operator's own target labels would stand on series of GPUs and racks as
	// if these were in the agent's pod.
	steps := []relabelStep{
		{sources: []string{"__meta_kubernetes_pod_name"}, target: "instance"},
		{sources: []string{"__meta_kubernetes_pod_label_app_kubernetes_io_component", "__meta_kubernetes_pod_node_name"}, regex: "agent;(.+)", target: "instance"},
		{target: "job", value: "rackpulse"},
		{action: "labeldrop", regex: "namespace|pod|container|service|endpoint"},
	}
	if o.Site != "" {
		steps = append(steps, relabelStep{target: "site", value: o.Site})
	}
	writeRelabel(&b, "      ", "relabelings", steps, true)
	return map[string][]byte{"rackpulse.scrapeconfig.yml": []byte(scrape), "rackpulse.servicemonitor.yml": []byte(b.String())}, nil
}

// Adapters are ScrapeConfig objects for the adapters' exporters.
func (o *Operator) Adapters(list []*Adapter) (map[string][]byte, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, a := range list {
		sd, err := a.discovery(o.Registry)
		if err != nil {
			return nil, err
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s  jobName: %s\n", o.object("v1alpha1", "ScrapeConfig", "rackpulse-"+a.Name), quote(a.Job))
		if a.Scrape.Path != "" {
			fmt.Fprintf(&b, "  metricsPath: %s\n", quote(a.Scrape.Path))
		}
		a.writeParams(&b, "  ")
		fmt.Fprintf(&b, "  httpSDConfigs:\n    - url: %s\n", quote(sd))
		writeRelabel(&b, "  ", "relabelings", a.targetSteps(), true)
		writeRelabel(&b, "  ", "metricRelabelings", a.metricSteps(), true)
		out["rackpulse-"+a.Name+".scrapeconfig.yml"] = []byte(b.String())
	}
	return out, nil
}
