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
//	C000 the file or an expression does not parse
//	C001 on() with a label outside the contract
//	C002 a join side that does not require the joined label to be non-empty
//	C003 an arithmetic join whose one side is not aggregated by exactly the on() labels, or one in an alert
//	C004 ignoring()
//	C005 an experimental function or modifier
//	C006 the value in a label of an alert
//	C007 an alert that no value of its series keeps from firing
//	C008 a rate or mean over fewer than four samples
//	C009 a "for" shorter than two evaluations
//	C010 an inhibition whose equal label may be missing: Alertmanager takes two missing labels for equal
//	C011 a symptom that may notify before its cause
//	C012 a signal that a correlation needs and nothing says what its absence means
//	C013 a metric, or a label of it, that no exporter of ours has
//	C014 a template that reads a label which the expression does not keep
//	C015 alerts that mute each other
//	C016 the same record or alert twice
//	C017 a range that may hold no sample at all
//	C018 a record with a series for each pod or job, or more series than the budget
//	C019 absent() joined on labels that its result does not have
//	C020 a threshold without a unit
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`   // from 1
	Column  int    `json:"column"` // from 1
	ID      string `json:"id"`
	Message string `json:"message"`

	rule string // the record or alert, or the name of the inhibition, that it is about
}

// String is "file:line:column: identifier message".
func (p Problem) String() string {
	return fmt.Sprintf("%s:%d:%d: %s %s", p.File, p.Line, p.Column, p.ID, p.Message)
}

// Problems is the error of a pack that is not valid, with every fault in it.
type Problems []Problem

// Error lists the problems, one on a line, as "file:line:column: message".
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = fmt.Sprintf("%s:%d:%d: %s", one.File, one.Line, one.Column, one.Message)
	}
	return strings.Join(lines, "\n")
}

// linted is one rule of a linted file.
type linted struct {
	file          string
	record, alert string
	name          *yaml.Node // the value of record or alert
	exprNode      *yaml.Node
	expr          parser.Expr // nil where it does not parse
	forNode       *yaml.Node
	dur           time.Duration
	interval      time.Duration // between two evaluations
	labels        map[string]string
	labelNodes    []*yaml.Node // names and values in turn, as are annotations
	annotations   []*yaml.Node
	lines         []string
}

// linter collects problems over all files.
type linter struct {
	pack     *Pack
	rules    []linted
	records  map[string]*linted // the rule of a recorded series; the last one of several
	inhibits []inhibitNode
	unseen   map[string]*linted // alerts that only inhibitions name
	known    map[string]bool    // answers about recorded series, false while one is sought
	problems []Problem
	at       string // the rule that is looked at
}

// Lint checks rule files, and Alertmanager files or fragments for their
// inhibition rules, against the pack's contract; a file is told by its top key.
// metrics is the list that Metrics makes; nil leaves C013 out. The problems are
// sorted by file and place.
func (p *Pack) Lint(files map[string][]byte, metrics []byte) []Problem {
	l := &linter{pack: p, unseen: map[string]*linted{}, known: map[string]bool{}}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		l.read(name, files[name])
	}
	l.records = map[string]*linted{}
	for i := range l.rules {
		if r := &l.rules[i]; r.record != "" && r.expr != nil {
			l.records[r.record] = r
		}
	}
	for i := range l.rules {
		if r := &l.rules[i]; r.expr != nil {
			l.at = r.record + r.alert
			l.joins(r)
			l.rule(r)
		}
	}
	l.duplicates()
	l.inhibitions()
	l.cycles()
	var list map[string][]string
	if metrics != nil {
		list = parseMetrics(metrics)
		l.metrics(list)
	}
	l.sizes(list)
	return sorted(l.problems)
}

// sorted sorts problems by file and place.
func sorted(list []Problem) []Problem {
	slices.SortFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(list)
}

// once asks a question about a recorded series, which others may be made of many
// times over, and keeps the answer. One in a circle is answered with no.
func (l *linter) once(question, record, label string, ask func(r *linted) bool) bool {
	id := question + "\x00" + record + "\x00" + label
	if answer, ok := l.known[id]; ok {
		return answer
	}
	l.known[id] = false
	l.known[id] = ask(l.records[record])
	return l.known[id]
}

func (l *linter) add(file string, line, column int, id, format string, args ...any) {
	l.problems = append(l.problems, Problem{File: file, Line: max(line, 1), Column: max(column, 1), ID: id, Message: fmt.Sprintf(format, args...), rule: l.at})
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
			interval := time.Duration(l.pack.contract.Interval)
			if n := child(g, "interval"); n != nil {
				d, err := model.ParseDuration(n.Value)
				if err != nil {
					l.add(name, n.Line, n.Column, "C000", "interval: %v", err)
				}
				interval = time.Duration(d)
			}
			rules := child(g, "rules")
			for i := 0; rules != nil && i < len(rules.Content); i++ {
				l.readRule(linted{file: name, interval: interval, lines: lines}, rules.Content[i])
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

// readRule completes a rule of which file, lines and interval are known.
func (l *linter) readRule(r linted, node *yaml.Node) {
	r.labels, r.name = map[string]string{}, node
	if n := child(node, "record"); n != nil {
		r.record, r.name = n.Value, n
	}
	if n := child(node, "alert"); n != nil {
		r.alert, r.name = n.Value, n
	}
	if n := child(node, "labels"); n != nil && n.Kind == yaml.MappingNode {
		r.labelNodes = n.Content
		for i := 0; i+1 < len(n.Content); i += 2 {
			r.labels[n.Content[i].Value] = n.Content[i+1].Value
		}
	}
	if n := child(node, "annotations"); n != nil && n.Kind == yaml.MappingNode {
		r.annotations = n.Content
	}
	if n := child(node, "for"); n != nil {
		d, err := model.ParseDuration(n.Value)
		if err != nil {
			l.add(r.file, n.Line, n.Column, "C000", "for: %v", err)
		}
		r.forNode, r.dur = n, time.Duration(d)
	}
	if r.exprNode = child(node, "expr"); r.exprNode == nil {
		l.add(r.file, node.Line, node.Column, "C000", "rule without expr")
		return
	}
	l.parse(&r)
	l.rules = append(l.rules, r)
}

// lenient parses what Prometheus understands behind its flags too.
var lenient = parser.NewParser(parser.Options{EnableExperimentalFunctions: true, EnableBinopFillModifiers: true})

// parse parses the rule's expression and finds C000 and C005.
func (l *linter) parse(r *linted) {
	expr, err := promParser.ParseExpr(r.exprNode.Value)
	if err == nil {
		r.expr = expr
		return
	}
	offset, id := 0, "C000"
	if list, ok := err.(parser.ParseErrors); ok && len(list) > 0 {
		offset = int(list[0].PositionRange.Start)
		err = list[0].Err
	}
	if _, other := lenient.ParseExpr(r.exprNode.Value); other == nil {
		id = "C005"
	}
	line, column := r.place(offset)
	l.add(r.file, line, column, id, "%v", err)
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
		l.at = r.record + r.alert
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
