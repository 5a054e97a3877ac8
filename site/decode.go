// SPDX-License-Identifier: Apache-2.0

package site

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"gopkg.in/yaml.v3"
)

const (
	maxTextBytes = 4096 // of one value
	maxNumber    = 1e12
)

// decode reads node into v, a struct, and reports every fault: unknown and
// repeated keys, values of the wrong type, negative numbers (no key of a site
// file has a use for one), control characters. It returns false if it found any.
func (p *parser) decode(path string, node *yaml.Node, v reflect.Value) bool {
	if node.Kind != yaml.MappingNode {
		p.add(node.Line, path, "want a mapping, got %s", describe(node))
		return false
	}
	fields := yamlFields(v.Type())
	return p.pairs(path, node, func(key string, value *yaml.Node) bool {
		i, ok := fields[key]
		if !ok {
			p.add(value.Line, join(path, key), "unknown key")
			return false
		}
		return p.value(join(path, key), value, v.Field(i))
	})
}

// pairs calls do for each pair of a mapping, once per key.
func (p *parser) pairs(path string, node *yaml.Node, do func(key string, value *yaml.Node) bool) bool {
	seen := make(map[string]int, len(node.Content)/2)
	ok := true
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			p.add(key.Line, path, "want a text as key, got %s", describe(key))
			ok = false
			continue
		}
		if first, twice := seen[key.Value]; twice {
			p.add(key.Line, join(path, key.Value), "key given twice (first at line %d)", first)
			ok = false
			continue
		}
		seen[key.Value] = key.Line
		ok = do(key.Value, value) && ok
	}
	return ok
}

// value reads one value of a struct.
func (p *parser) value(path string, node *yaml.Node, v reflect.Value) bool {
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return true // "key:" without a value is the same as no key
	}
	switch v.Kind() {
	case reflect.Struct:
		return p.decode(path, node, v)
	case reflect.Slice:
		return p.list(path, node, v)
	case reflect.Map:
		return p.mapping(path, node, v)
	default:
		return p.scalar(path, node, v)
	}
}

// singles are the lists that a single text may stand for.
var singles = []reflect.Type{reflect.TypeFor[Versions](), reflect.TypeFor[Names]()}

func (p *parser) list(path string, node *yaml.Node, v reflect.Value) bool {
	if node.Kind == yaml.ScalarNode && slices.Contains(singles, v.Type()) {
		one := reflect.New(v.Type().Elem()).Elem()
		ok := p.scalar(path, node, one)
		v.Set(reflect.Append(reflect.Zero(v.Type()), one))
		return ok
	}
	if node.Kind != yaml.SequenceNode {
		p.add(node.Line, path, "want a list, got %s", describe(node))
		return false
	}
	ok := true
	out := reflect.MakeSlice(v.Type(), len(node.Content), len(node.Content))
	for i, item := range node.Content {
		ok = p.value(index1(path, i), item, out.Index(i)) && ok
	}
	v.Set(out)
	return ok
}

func (p *parser) mapping(path string, node *yaml.Node, v reflect.Value) bool {
	if node.Kind != yaml.MappingNode {
		p.add(node.Line, path, "want a mapping, got %s", describe(node))
		return false
	}
	out := reflect.MakeMap(v.Type())
	ok := p.pairs(path, node, func(key string, value *yaml.Node) bool {
		one := reflect.New(v.Type().Elem()).Elem()
		if !p.value(join(path, key), value, one) {
			return false
		}
		out.SetMapIndex(reflect.ValueOf(key), one)
		return true
	})
	v.Set(out)
	return ok
}

func (p *parser) scalar(path string, node *yaml.Node, v reflect.Value) bool {
	want := map[reflect.Kind]string{
		reflect.String: "a text", reflect.Int: "a whole number",
		reflect.Float64: "a number", reflect.Bool: "true or false",
	}[v.Kind()]
	if node.Kind != yaml.ScalarNode || node.Decode(v.Addr().Interface()) != nil {
		p.add(node.Line, path, "want %s, got %s", want, describe(node))
		return false
	}
	number := 0.0
	switch v.Kind() {
	case reflect.String:
		return p.text(path, node, v.String())
	case reflect.Int:
		number = float64(v.Int())
	case reflect.Float64:
		number = v.Float()
	}
	switch {
	case math.IsNaN(number) || math.IsInf(number, 0) || number > maxNumber:
		p.add(node.Line, path, "%s is out of range", node.Value)
	case number < 0:
		p.add(node.Line, path, "%s is negative", node.Value)
	default:
		return true
	}
	return false
}

func (p *parser) text(path string, node *yaml.Node, s string) bool {
	switch {
	case len(s) > maxTextBytes:
		p.add(node.Line, path, "text is longer than %d bytes", maxTextBytes)
	case strings.ContainsFunc(s, unicode.IsControl):
		p.add(node.Line, path, "text %q has a control character", s)
	default:
		return true
	}
	return false
}

// yamlFields maps the YAML keys of a struct type to its field numbers.
func yamlFields(t reflect.Type) map[string]int {
	fields := make(map[string]int, t.NumField())
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		if name != "" && name != "-" {
			fields[name] = i
		}
	}
	return fields
}

// describe names a node for an error message.
func describe(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		return quote(node.Value)
	default:
		return "an alias"
	}
}
