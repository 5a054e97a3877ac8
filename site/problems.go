// SPDX-License-Identifier: Apache-2.0

package site

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

const (
	maxProblems  = 50    // shown
	keepProblems = 10000 // kept while checking
)

// problem is one fault of a site file.
type problem struct {
	line       int
	path, text string
}

// problems is the error of a bad site file: its faults by line, one a row, such as
//
//	site.yml:12: pdus[3].rack: unknown rack "r99"
type problems struct {
	file string
	list []problem
	more int // those beyond keepProblems
}

func (p *problems) add(line int, path, format string, args ...any) {
	if len(p.list) >= keepProblems {
		p.more++
		return
	}
	p.list = append(p.list, problem{line, path, fmt.Sprintf(format, args...)})
}

// err returns the sorted problems, or nil when there are none.
func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	slices.SortStableFunc(p.list, func(a, b problem) int { return cmp.Compare(a.line, b.line) })
	return p
}

// Error implements error.
func (p *problems) Error() string {
	var b strings.Builder
	for i, one := range p.list {
		if i == maxProblems {
			fmt.Fprintf(&b, "\n%s: and %d more", p.file, len(p.list)-maxProblems+p.more)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s:%d: ", p.file, one.line)
		if one.path != "" {
			b.WriteString(one.path + ": ")
		}
		b.WriteString(one.text)
	}
	return b.String()
}

// spot is where an entry of the file stands.
type spot struct {
	path string     // such as "pdus[3]"
	node *yaml.Node // its mapping
	// broken says that the entry could not be read whole; checks of single
	// values are left out for it, because they would report the same fault again.
	broken bool
}

// line is the line of the value at key, or the entry's own.
func (s spot) line(key string) int {
	if child := childOf(s.node, key); child != nil {
		return child.Line
	}
	return s.node.Line
}

// childOf returns the value at key of a mapping, or nil.
func childOf(node *yaml.Node, key string) *yaml.Node {
	if node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}
	return nil
}

// keyLine is the line of what a key such as "baseline.driver[1]" names, as far as
// that is to be found.
func (s spot) keyLine(key string) int {
	at := s.node
	for name := range strings.SplitSeq(key, ".") {
		name, index, _ := strings.Cut(name, "[")
		child := childOf(at, name)
		if child == nil {
			break
		}
		at = child
		if i, err := strconv.Atoi(strings.TrimSuffix(index, "]")); err == nil && i < len(at.Content) {
			at = at.Content[i]
		}
	}
	return at.Line
}

// itemLine is the line of item i of the list at key.
func (s spot) itemLine(key string, i int) int {
	child := childOf(s.node, key)
	if child != nil && i < len(child.Content) {
		return child.Content[i].Line
	}
	return s.line(key)
}
