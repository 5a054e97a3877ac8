// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"regexp"
	"strings"
	"text/template/parse"

	"gopkg.in/yaml.v3"
)

// maxSearched bounds the search for the line of a syntax error, bytes: it parses
// the file some forty times.
const maxSearched = 64 << 10

// syntaxError words an error of the YAML parser. That names the line where the
// enclosing block begins, so the faulty one is looked for: the first that no
// beginning of the file which parses goes beyond.
func syntaxError(name string, data []byte, err error) Problem {
	out := Problem{File: name, Line: lineOf(err), Column: 1, ID: "C000"}
	out.Message = yamlLine.ReplaceAllString(err.Error(), "")
	out.Message = strings.TrimPrefix(out.Message, "yaml: ") + " (YAML syntax: look at indentation, quotes and brackets)"
	lines := strings.SplitAfter(string(data), "\n")
	if len(data) <= maxSearched {
		out.Line = min(parsed(lines)+1, len(lines))
	}
	if out.Line <= len(lines) {
		out.Column = columnOf(strings.TrimRight(lines[out.Line-1], "\r\n"), "")
	}
	return out
}

// parsed returns how many of the lines parse at the most. A value over some lines
// is cut in its midst by some counts, so each try looks a little further back.
func parsed(lines []string) int {
	const back = 4
	fits := func(n int) bool {
		var node yaml.Node
		return yaml.Unmarshal([]byte(strings.Join(lines[:n], "")), &node) == nil
	}
	low, high := 0, len(lines)
	for low < high {
		mid := (low + high + 1) / 2
		ok := false
		for n := mid; n > max(mid-back, low) && !ok; n-- {
			if ok = fits(n); ok {
				low = n
			}
		}
		switch {
		case !ok:
			high = mid - 1
		case low < mid: // the rest up to mid did not fit, but what follows may
			if low == high-1 || mid == high {
				return low
			}
			high = mid
		}
	}
	return low
}

// valueFault puts the key in front of a message about its value.
func (p positions) valueFault(one Problem) Problem {
	m := gotValue.FindStringSubmatch(one.Message)
	if m == nil {
		return one
	}
	key, node := keyAt(p.root, one.Line, m[1])
	if node == nil {
		return one
	}
	one.Message, one.Line, one.Column = key+": "+one.Message, node.Line, node.Column
	return one
}

// gotValue is the form of config.Strict's messages about values.
var gotValue = regexp.MustCompile(`^want .*, got (?:"(.*)"|a mapping|a list)$`)

// keyAt finds the key of the value in a line that has the text, or of a mapping or
// list that begins there.
func keyAt(node *yaml.Node, line int, text string) (string, *yaml.Node) {
	for i, c := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 1 && c.Line == line && (c.Value == text || c.Kind != yaml.ScalarNode && text == "") {
			return node.Content[i-1].Value, c
		}
		if key, found := keyAt(c, line, text); found != nil {
			return key, found
		}
	}
	return "", nil
}

// functions are those that Prometheus gives its templates, beside the built-in
// ones: https://prometheus.io/docs/prometheus/latest/configuration/template_reference
var functions = func() map[string]any {
	out := map[string]any{}
	for name := range strings.FieldsSeq(`and or not len index slice print printf println html js urlquery call eq ne lt le gt ge
		query first label value strvalue args reReplaceAll safeHtml match title toUpper toLower graphLink tableLink
		sortByLabel stripPort stripDomain humanize humanize1024 humanizeDuration humanizePercentage humanizeTimestamp
		toTime toDuration now pathPrefix externalURL parseDuration tmpl urlQueryEscape`) {
		out[name] = true
	}
	return out
}()

// checkTemplate parses a text as Prometheus will.
func checkTemplate(text string) error {
	const variables = "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}"
	if _, err := parse.Parse("text", variables+text, "{{", "}}", functions); err != nil {
		return fmt.Errorf("template: %s", strings.TrimPrefix(err.Error(), "template: text:1: "))
	}
	return nil
}
