// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rackpulse/rackpulse/rules"
	"github.com/rackpulse/rackpulse/site"
)

// Formats of "rackpulse rules build" and "rules adapters".
const (
	formatFiles    = "files"
	formatOperator = "prometheusrule"
)

// outputFlags are those of verbs that write rules.
type outputFlags struct {
	format   string
	operator rules.Operator
}

func (o *outputFlags) register(cmd *kingpin.CmdClause) {
	o.operator.Labels = map[string]string{}
	cmd.Flag("format", "files, or prometheusrule: objects of the Prometheus operator (PrometheusRule, ScrapeConfig, ServiceMonitor).").
		Default(formatFiles).EnumVar(&o.format, formatFiles, formatOperator)
	cmd.Flag("registry.url", "URL of the registry as Prometheus reaches it.").Default(defaultRegistryURL).StringVar(&o.operator.Registry)
	cmd.Flag("kubernetes.namespace", "Namespace of the objects.").StringVar(&o.operator.Namespace)
	cmd.Flag("kubernetes.label", "Label of the objects, such as release=prometheus; may be repeated.").StringMapVar(&o.operator.Labels)
}

// objects turns rule files into the operator's objects, with the targets of
// adapters, or without adapters RackPulse's own.
func (o *outputFlags) objects(files map[string][]byte, siteFile string, list []*rules.Adapter) (map[string][]byte, error) {
	if siteFile != "" {
		s, err := site.Load(siteFile)
		if err != nil {
			return nil, err
		}
		o.operator.Site = s.ID
	}
	out, err := o.operator.Rules(files)
	if err != nil {
		return nil, err
	}
	var targets map[string][]byte
	if list != nil {
		targets, err = o.operator.Adapters(list)
	} else {
		targets, err = o.operator.Targets()
	}
	maps.Copy(out, targets)
	return out, err
}
