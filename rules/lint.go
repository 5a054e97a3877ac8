// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"gopkg.in/yaml.v3"
)

// Problem is one finding of Lint. The identifiers:
//
//	C000 the file or an expression does not parse (info() and fill modifiers do not either)
//	C001 on() with a label outside the contract
//	C002 a join side that does not require the joined label to be non-empty
//	C003 an arithmetic join whose one side is not aggregated by exactly the on() labels, or one in an alert
//	C004 ignoring()
//	C010 an inhibition whose equal label may be missing: Alertmanager takes two missing labels for equal
//	C011 a symptom that may notify before its cause
//	C013 a metric, or a label of it, that no exporter of ours has
//	C016 the same record or alert twice
type Problem struct {
	File         string
	Line, Column int // from 1
	ID           string
	Message      string
}

// String is "file:line:column: identifier message".
func (p Problem) String() string {
	return fmt.Sprintf("%s:%d:%d: %s %s", p.File, p.Line, p.Column, p.ID, p.Message)
}

// linted is one rule of a linted file.
type linted struct {
	file          string
	record, alert string
	name          *yaml.Node // the value of record or alert
	exprNode      *yaml.Node
	expr          parser.Expr // nil where it does not parse
	dur           time.Duration
	labels        map[string]string
	lines         []string
}

// linter collects problems over all files.
type linter struct {
	pack     *Pack
	rules    []linted
	inhibits []inhibitNode
	problems []Problem
}

// Lint checks rule files, and Alertmanager files or fragments for their
// inhibition rules, against the pack's contract; a file is told by its top key.
// metrics is the list that Metrics makes; nil leaves C013 out. The problems are
// sorted by file and place.
func (p *Pack) Lint(files map[string][]byte, metrics []byte) []Problem {
	l := &linter{pack: p}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		l.read(name, files[name])
	}
	for i := range l.rules {
		if l.rules[i].expr != nil {
			l.joins(&l.rules[i])
		}
	}
	l.duplicates()
	l.inhibitions()
	if metrics != nil {
		l.known(parseMetrics(metrics))
	}
	slices.SortFunc(l.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Message, b.Message))
	})
	return l.problems
}

func (l *linter) add(file string, line, column int, id, format string, args ...any) {
	l.problems = append(l.problems, Problem{file, max(line, 1), max(column, 1), id, fmt.Sprintf(format, args...)})
}

// read parses one file into rules and inhibitions.
func (l *linter) read(name string, data []byte) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		l.add(name, lineOf(err), 1, "C000", "%v", err)
		return
	}
	if len(doc.Content) == 0 {
		return
	}
	root := doc.Content[0]
	lines := strings.Split(string(data), "\n")
	if node := child(root, "inhibit_rules"); node != nil {
		for _, n := range node.Content {
			l.inhibits = append(l.inhibits, readInhibit(name, n))
		}
	}
	if node := child(root, "groups"); node != nil {
		for _, g := range node.Content {
			rules := child(g, "rules")
			for i := 0; rules != nil && i < len(rules.Content); i++ {
				l.readRule(name, rules.Content[i], lines)
			}
		}
	}
}

// lineOf takes the line out of a message of yaml.v3.
func lineOf(err error) int {
	line := 1
	if _, rest, ok := strings.Cut(err.Error(), "line "); ok {
		_, _ = fmt.Sscanf(rest, "%d", &line) // no number: line 1
	}
	return line
}

func (l *linter) readRule(file string, node *yaml.Node, lines []string) {
	r := linted{file: file, labels: map[string]string{}, lines: lines, name: node}
	if n := child(node, "record"); n != nil {
		r.record, r.name = n.Value, n
	}
	if n := child(node, "alert"); n != nil {
		r.alert, r.name = n.Value, n
	}
	if n := child(node, "labels"); n != nil {
		for i := 0; i+1 < len(n.Content); i += 2 {
			r.labels[n.Content[i].Value] = n.Content[i+1].Value
		}
	}
	if n := child(node, "for"); n != nil {
		d, err := model.ParseDuration(n.Value)
		if err != nil {
			l.add(file, n.Line, n.Column, "C000", "for: %v", err)
		}
		r.dur = time.Duration(d)
	}
	if r.exprNode = child(node, "expr"); r.exprNode == nil {
		l.add(file, node.Line, node.Column, "C000", "rule without expr")
		return
	}
	expr, err := promParser.ParseExpr(r.exprNode.Value)
	if err != nil {
		offset := 0
		if list, ok := err.(parser.ParseErrors); ok && len(list) > 0 {
			offset = int(list[0].PositionRange.Start)
			err = list[0].Err
		}
		line, column := r.place(offset)
		l.add(file, line, column, "C000", "%v", err)
	} else {
		r.expr = expr
	}
	l.rules = append(l.rules, r)
}

// place turns an offset in the expression into a place in the file.
func (r *linted) place(offset int) (line, column int) {
	n := r.exprNode
	offset = min(max(offset, 0), len(n.Value))
	switch before := n.Value[:offset]; {
	case n.Style&yaml.LiteralStyle != 0:
		row := strings.Count(before, "\n")
		first, _, _ := strings.Cut(n.Value, "\n")
		indent := 0
		if n.Line < len(r.lines) {
			indent = len(r.lines[n.Line]) - len(first)
		}
		return n.Line + 1 + row, indent + offset - strings.LastIndex(before, "\n")
	case n.Style&yaml.FoldedStyle != 0:
		return n.Line, n.Column
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		return n.Line, n.Column + 1 + offset
	default:
		return n.Line, n.Column + offset
	}
}

// problem reports a finding at a node of the rule's expression.
func (l *linter) problem(r *linted, node parser.Node, id, format string, args ...any) {
	line, column := r.place(int(node.PositionRange().Start))
	l.add(r.file, line, column, id, format, args...)
}

// title names a rule in messages.
func (r *linted) title() string {
	if r.alert != "" {
		return "alert " + r.alert
	}
	return "record " + r.record
}

// duplicates finds C016.
func (l *linter) duplicates() {
	seen := map[string]*linted{}
	for i := range l.rules {
		r := &l.rules[i]
		id := r.title()
		for _, name := range slices.Sorted(maps.Keys(r.labels)) {
			id += "\x00" + name + "\x00" + r.labels[name]
		}
		if first := seen[id]; first != nil {
			l.add(r.file, r.name.Line, r.name.Column, "C016", "%s is also at %s:%d with the same labels", r.title(), first.file, first.name.Line)
			continue
		}
		seen[id] = r
	}
}
