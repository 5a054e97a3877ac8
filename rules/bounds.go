// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"regexp"
	"strconv"
	"time"

	"gopkg.in/yaml.v3"
)

// Bounds of a pack; a file beyond them is refused before it costs anything. The
// largest of the built-in files has 13 KB, 20 signals and expressions of 600 bytes.
const (
	maxFiles      = 200
	maxFileBytes  = 1 << 20
	maxPackBytes  = 1 << 20
	maxDepth      = 20     // levels of YAML
	maxNodes      = 100000 // values and keys of one file
	maxSignals    = 2000
	maxTests      = 200
	maxCauses     = 100       // of one correlation, and its branches
	maxExpression = 4 << 10   // bytes
	maxExprBytes  = 256 << 10 // of all expressions together
	maxBrackets   = 50        // open at once in an expression
	maxText       = 8 << 10   // bytes of any other text
	maxProblems   = 100       // told at once
)

// bounds refuses what no pack needs and what costs time or memory out of
// proportion: aliases, deep nesting, very long texts.
func (p positions) bounds(node *yaml.Node, depth int, count *int) error {
	at := position{file: p.file, node: node}
	*count++
	switch {
	case node.Kind == yaml.AliasNode:
		return at.errorf("aliases (*%s) are not read in a pack: write the value out", node.Value)
	case depth > maxDepth:
		return at.errorf("nested deeper than %d", maxDepth)
	case *count > maxNodes:
		return at.errorf("more than %d values in one file", maxNodes)
	case len(node.Value) > maxText:
		return at.errorf("a text of %d bytes, want at most %d", len(node.Value), maxText)
	}
	for _, c := range node.Content {
		if err := p.bounds(c, depth+1, count); err != nil {
			return err
		}
	}
	return nil
}

// bounds holds the counts and the sizes of expressions of one file.
func (f *file) bounds() error {
	if n := len(f.Signals); n > maxSignals {
		return f.pos.find("signals").errorf("%d signals in one file, want at most %d", n, maxSignals)
	}
	if n := len(f.Alerts); n > maxSignals {
		return f.pos.find("alerts").errorf("%d alerts in one file, want at most %d", n, maxSignals)
	}
	if n := len(f.Tests); n > maxTests {
		return f.pos.find("tests").errorf("%d tests in one file, want at most %d", n, maxTests)
	}
	var errs []error
	for i := range f.Signals {
		s := &f.Signals[i]
		errs = append(errs, boundExpr(s.source(), s.Metric+s.Expr))
	}
	series := 0
	for i := range f.Tests {
		errs = append(errs, f.Tests[i].boundTest(&series))
	}
	if c := f.Correlation; c != nil {
		n := len(c.Branches) * (1 + len(c.Unless))
		for _, b := range c.Branches {
			n += len(b.Causes)
		}
		if n > maxCauses {
			errs = append(errs, c.at.key("branches").errorf("correlation %s: %d branches and causes, want at most %d", c.ID, n, maxCauses))
		}
		if n := len(c.Suppresses); n > maxCauses {
			errs = append(errs, c.at.key("suppresses").errorf("correlation %s: suppresses %d alerts, want at most %d", c.ID, n, maxCauses))
		}
	}
	for i := range f.Alerts {
		errs = append(errs, boundExpr(f.Alerts[i].at.key("expr"), f.Alerts[i].Expr))
	}
	return errors.Join(errs...)
}

// boundExprs bounds the expressions of all files together.
func (p *Pack) boundExprs() error {
	total := 0
	for _, f := range p.files {
		for i := range f.Signals {
			total += len(f.Signals[i].Metric) + len(f.Signals[i].Expr)
		}
		for i := range f.Alerts {
			total += len(f.Alerts[i].Expr)
		}
		if total > maxExprBytes {
			return f.pos.find().errorf("with this file the expressions have %d bytes, want at most %d", total, maxExprBytes)
		}
	}
	return nil
}

// boundExpr bounds an expression: the parser and the printer take time by its
// length and depth.
func boundExpr(at position, expr string) error {
	if len(expr) > maxExpression {
		return at.errorf("an expression of %d bytes, want at most %d", len(expr), maxExpression)
	}
	open := 0
	for _, c := range expr {
		switch c {
		case '(', '[', '{':
			if open++; open > maxBrackets {
				return at.errorf("an expression with more than %d open brackets", maxBrackets)
			}
		case ')', ']', '}':
			open--
		}
	}
	return nil
}

// Bounds of a generated test: promtool keeps all samples of all series.
const (
	maxTestSeries = 5000   // of the tests of one file
	maxCaseSeries = 100000 // of all cases that are made of them
	maxSamples    = 5000   // of one series: 20 hours at an evaluation each 15 s
	maxTestTime   = 24 * time.Hour
)

var repeated = regexp.MustCompile(`x(\d+)`)

// boundTest bounds the times, values and series of a test, which multiply. total
// counts the series of all tests.
func (t *fixture) boundTest(total *int) error {
	if time.Duration(t.At) > maxTestTime {
		return t.at.key("at").errorf("test %q: at %s, want at most %s", t.Name, time.Duration(t.At), maxTestTime)
	}
	for _, over := range []map[string][]string{t.Over, t.Other} {
		for i, in := range t.Inputs {
			n := 1
			for _, m := range placeholder.FindAllStringSubmatch(in.Series, -1) {
				n = min(n*max(len(over[m[1]]), 1), maxTestSeries+1)
			}
			if *total += n; *total > maxTestSeries {
				return t.at.key("inputs", i, "series").errorf("test %q: more than %d series in the tests of this file", t.Name, maxTestSeries)
			}
		}
	}
	for i, in := range t.Inputs {
		for key, values := range map[string]string{"bad": in.Bad, "good": in.Good, "flap": in.Flap} {
			samples := 0
			for _, m := range repeated.FindAllStringSubmatch(values, -1) {
				n, err := strconv.Atoi(m[1])
				if err != nil || n > maxSamples {
					n = maxSamples + 1
				}
				samples += n
			}
			if samples > maxSamples {
				return t.at.key("inputs", i, key).errorf("test %q: more than %d samples in one series", t.Name, maxSamples)
			}
		}
	}
	return nil
}
