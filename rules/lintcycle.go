// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"gopkg.in/yaml.v3"
)

// mute is one alert that an inhibition lets mute another one.
type mute struct {
	source, target *linted
	file           string
	node           *yaml.Node
}

// cycles finds C015: alerts that mute each other, so that nobody hears of any.
func (l *linter) cycles() {
	var mutes []mute
	for _, in := range l.inhibits {
		sources, targets := l.named(in.source), l.named(in.target)
		for _, s := range sources {
			for _, t := range targets {
				// Alertmanager lets no alert that fits both sides be muted by
				// another one that does.
				if s != t && !(slices.Contains(targets, s) && slices.Contains(sources, t)) {
					mutes = append(mutes, mute{s, t, in.file, in.node})
				}
			}
		}
	}
	seen := map[string]bool{}
	for _, m := range mutes {
		path := back(mutes, m)
		if path == nil {
			continue
		}
		names := make([]string, len(path))
		for i, r := range path {
			names[i] = r.alert
		}
		set := strings.Join(slices.Sorted(slices.Values(names)), "\x00")
		if seen[set] {
			continue
		}
		seen[set] = true
		l.at = inhibitNode{node: m.node}.name()
		l.add(m.file, m.node.Line, m.node.Column, "C015", "%s mutes itself: %s; when all fire nobody is told", names[0], strings.Join(append(names, names[0]), " mutes "))
	}
}

// named returns the alerts that matchers select. An alert that only an
// Alertmanager file names stands for itself.
func (l *linter) named(matchers []*labels.Matcher) []*linted {
	if out := l.matching(matchers); len(out) > 0 {
		return out
	}
	for _, m := range matchers {
		if m.Name != labels.AlertName || m.Type != labels.MatchEqual {
			continue
		}
		if l.unseen[m.Value] == nil {
			l.unseen[m.Value] = &linted{alert: m.Value}
		}
		return []*linted{l.unseen[m.Value]}
	}
	return nil
}

// back returns the alerts on the shortest way from a mute's target to its
// source, source first, or nil.
func back(mutes []mute, m mute) []*linted {
	from := map[*linted]*linted{m.target: m.source}
	for queue := []*linted{m.target}; len(queue) > 0; queue = queue[1:] {
		for _, next := range mutes {
			if next.source != queue[0] || from[next.target] != nil && next.target != m.source {
				continue
			}
			if next.target == m.source {
				out := []*linted{}
				for r := queue[0]; r != m.source; r = from[r] {
					out = append(out, r)
				}
				out = append(out, m.source)
				slices.Reverse(out)
				return out
			}
			from[next.target] = queue[0]
			queue = append(queue, next.target)
		}
	}
	return nil
}
