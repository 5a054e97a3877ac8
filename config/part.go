// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"fmt"
	"reflect"

	"gopkg.in/yaml.v3"
)

const maxDepth = 32

// Part is a piece of a file that its owner decodes later, such as the settings
// of one driver. It must be reached from the value given to Strict, through
// exported fields, slices, maps and pointers. The zero Part is an absent one.
type Part struct {
	file string
	node *yaml.Node
	text string // the node in one fixed layout, for Equal and Decode
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (p *Part) UnmarshalYAML(node *yaml.Node) error {
	clean, err := plain(node)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	if err := enc.Encode(clean); err != nil {
		return fmt.Errorf("line %d: %w", node.Line, err)
	}
	*p = Part{node: clean, text: b.String()}
	return enc.Close()
}

// Decode decodes the part into v with the rules and messages of Strict; line
// numbers are those of the file. An absent part leaves v as it is.
func (p Part) Decode(v any) error {
	if p.node == nil {
		return nil
	}
	// Node.Decode would ignore unknown keys, so the part is decoded from text.
	var again yaml.Node
	if err := yaml.Unmarshal([]byte(p.text), &again); err != nil {
		return fmt.Errorf("%s: %w", p.Position(), err)
	}
	lines := map[int]int{}
	if len(again.Content) > 0 {
		pairLines(lines, again.Content[0], p.node)
	}
	at := func(line int) int {
		if l, ok := lines[line]; ok {
			return l
		}
		return p.node.Line
	}
	if err := strict(p.file, []byte(p.text), v, at); err != nil {
		return err
	}
	bind(v, p.file, at)
	return nil
}

// Equal tells whether two parts hold the same settings in the same order.
// Comments, layout and place in the file do not count.
func (p Part) Equal(other Part) bool { return p.text == other.text }

// IsZero tells whether the part is absent.
func (p Part) IsZero() bool { return p.node == nil }

// Resolve returns the path that the part means: one that is not absolute counts
// from the folder of the part's file. Empty stays empty.
func (p Part) Resolve(path string) string { return Resolve(p.file, path) }

// Position returns "file:line" of the part, for messages.
func (p Part) Position() string {
	if p.node == nil {
		return p.file
	}
	return fmt.Sprintf("%s:%d", p.file, p.node.Line)
}

// plain copies a node tree without comments, anchors and flow style, so that
// each key gets a line of its own when written, and with one kind of quotes (the
// library does not write all folded texts as it read them). Aliases are refused: the anchor
// may lie outside the part.
func plain(node *yaml.Node) (*yaml.Node, error) {
	if node.Kind == yaml.AliasNode {
		return nil, &yaml.TypeError{Errors: []string{
			fmt.Sprintf("line %d: alias *%s: aliases are not understood here", node.Line, node.Value)}}
	}
	out := &yaml.Node{Kind: node.Kind, Style: node.Style & yaml.TaggedStyle, Tag: node.Tag,
		Value: node.Value, Line: node.Line, Column: node.Column}
	if node.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		out.Style |= yaml.DoubleQuotedStyle
	} else if node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" {
		out.Value = "null" // an empty key would be read as an empty text
	}
	for _, child := range node.Content {
		c, err := plain(child)
		if err != nil {
			return nil, err
		}
		out.Content = append(out.Content, c)
	}
	return out, nil
}

// pairLines notes for each line of a re-read tree the line of the file. The
// first node on a line wins: it is the key.
func pairLines(lines map[int]int, again, orig *yaml.Node) {
	if _, ok := lines[again.Line]; !ok {
		lines[again.Line] = orig.Line
	}
	for i := range min(len(again.Content), len(orig.Content)) {
		pairLines(lines, again.Content[i], orig.Content[i])
	}
}

// bind tells the parts under v their file, and their lines in it where they were
// read from another text.
func bind(v any, file string, at func(line int) int) {
	bindValue(reflect.ValueOf(v), file, at, 0)
}

func bindValue(v reflect.Value, file string, at func(line int) int, depth int) {
	if depth > maxDepth {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			bindValue(v.Elem(), file, at, depth+1)
		}
	case reflect.Struct:
		if p, ok := partOf(v); ok {
			p.bind(file, at)
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				bindValue(v.Field(i), file, at, depth+1)
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			bindValue(v.Index(i), file, at, depth+1)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			one := reflect.New(v.Type().Elem()).Elem()
			one.Set(v.MapIndex(key))
			bindValue(one, file, at, depth+1)
			v.SetMapIndex(key, one)
		}
	}
}

func partOf(v reflect.Value) (*Part, bool) {
	if v.Type() != reflect.TypeFor[Part]() || !v.CanAddr() {
		return nil, false
	}
	p, ok := v.Addr().Interface().(*Part)
	return p, ok
}

func (p *Part) bind(file string, at func(line int) int) {
	p.file = file
	if p.node != nil && at != nil {
		moveLines(p.node, at)
	}
}

func moveLines(node *yaml.Node, at func(line int) int) {
	node.Line = at(node.Line)
	for _, child := range node.Content {
		moveLines(child, at)
	}
}
