// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-kit/log/level"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Labeler is a target that can show schedulers what is known of nodes.
type Labeler interface {
	// Label makes labels the node's, in place of those that it set before. It is
	// called only when they changed.
	Label(ctx context.Context, node string, labels map[string]string) error
}

// labelInterval is how often labels are looked at: racks warm and load in minutes.
const labelInterval = time.Minute

// label shows what is known of all nodes, until ctx ends.
func (r *Runner) label(ctx context.Context) {
	if r.Labels == nil {
		return
	}
	told := map[string]map[string]string{} // by target and node
	ticker := time.NewTicker(labelInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		all, err := r.Labels(ctx)
		if err != nil {
			level.Warn(r.Logger).Log("msg", "labels of nodes are not known", "err", err)
			continue
		}
		for _, t := range r.Targets {
			if l, ok := t.Target.(Labeler); ok {
				r.labelAll(ctx, t.Name, l, all, told)
			}
		}
	}
}

// labelAll tells one target what changed. A node that cannot be labelled is
// tried again in the next round.
func (r *Runner) labelAll(ctx context.Context, target string, l Labeler, all, told map[string]map[string]string) {
	for _, node := range slices.Sorted(maps.Keys(all)) {
		key := target + "/" + node
		if ctx.Err() != nil || maps.Equal(told[key], all[node]) {
			continue
		}
		callCtx, cancel := context.WithTimeout(ctx, applyTimeout)
		err := l.Label(callCtx, node, all[node])
		cancel()
		result := "done"
		if err != nil {
			result = "failed"
			level.Warn(r.Logger).Log("msg", "node not labelled, it is tried again", "node", node, "target", target, "err", err)
		} else {
			told[key] = all[node]
		}
		r.results.WithLabelValues(target, "label", result).Inc()
	}
}

// kubeLabels begins the labels that are ours.
const kubeLabels = "rackpulse.io/"

// kubeLabelNames are the labels that may be ours, so that one which is not known
// any more is taken off.
var kubeLabelNames = []string{"health", "rack", "power-headroom-kw", "thermal-headroom-celsius"}

// Label implements Labeler.
func (k *kubernetes) Label(ctx context.Context, node string, labels map[string]string) error {
	patch := map[string]any{}
	for _, name := range kubeLabelNames {
		if v, ok := labels[name]; ok {
			patch[kubeLabels+name] = v
		} else {
			patch[kubeLabels+name] = nil
		}
	}
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": patch}})
	if err != nil {
		return err
	}
	_, err = k.client.Resource(kubeNodes).Patch(ctx, node, types.MergePatchType, data, metav1.PatchOptions{FieldManager: "rackpulse"})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("kubernetes: label node: %w", err)
	}
	return nil
}

// slurmFeature begins the features that are ours: rp_KEY_VALUE.
const slurmFeature = "rp_"

var (
	slurmAvailable = regexp.MustCompile(` AvailableFeatures=(\S+)`)
	slurmActive    = regexp.MustCompile(` ActiveFeatures=(\S+)`)
)

// Label implements Labeler: labels are features, so that jobs can ask for them
// with --constraint or --prefer. Features of others stay.
func (s *slurm) Label(ctx context.Context, node string, labels map[string]string) error {
	if !slurmNodeName.MatchString(node) {
		return fmt.Errorf("node name %q is none of Slurm's", node)
	}
	line, err := s.call(ctx, "--oneliner", "show", "node", node)
	if err != nil {
		return err
	}
	var own []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		own = append(own, slurmFeature+strings.NewReplacer("-", "_", ".", "_").Replace(key+"_"+labels[key]))
	}
	with := func(found *regexp.Regexp) string {
		var all []string
		if m := found.FindStringSubmatch(line); m != nil && m[1] != "(null)" {
			all = slices.DeleteFunc(strings.Split(m[1], ","), func(f string) bool { return strings.HasPrefix(f, slurmFeature) })
		}
		return strings.Join(append(all, own...), ",")
	}
	_, err = s.call(ctx, "update", "NodeName="+node, "AvailableFeatures="+with(slurmAvailable), "ActiveFeatures="+with(slurmActive))
	return err
}
