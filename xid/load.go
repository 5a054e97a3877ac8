// SPDX-License-Identifier: Apache-2.0

package xid

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

const (
	maxFile  = 1 << 20 // bytes of a catalogue
	maxCode  = 99999   // SXids have five digits
	maxText  = 1000    // bytes of one text
	maxShown = 60      // bytes of a value in a message
)

var entryFields = []string{
	"name", "meaning", "severity", "immediate", "investigatory", "action", "if_repeated",
	"application", "consequence", "counted", "notes", "sources",
}

// Load reads a whole catalogue of at most 1 MiB; name stands for it in
// messages, which have the form "catalogue.yml:12: xid 79: ...".
func Load(name string, data []byte) (*Catalogue, error) {
	c := &Catalogue{
		sources: map[string]string{}, actions: map[string]string{},
		xids: map[int]Entry{}, sxids: map[int]Entry{},
		lines: map[string]Entry{}, recovery: map[string]Entry{},
	}
	if err := c.merge(name, data, ""); err != nil {
		return nil, err
	}
	return c, nil
}

// merge adds the file to the catalogue, which the caller owns.
func (c *Catalogue) merge(name string, data []byte, changedBy string) error {
	m := merger{file: name, changedBy: changedBy, catalogue: c}
	root, err := m.document(data)
	if err != nil || root == nil {
		return err
	}
	// Texts first: entries refer to them, wherever they stand in the file.
	sections := map[string]*yaml.Node{}
	err = m.each(root, "catalogue", func(key, value *yaml.Node) error {
		switch key.Value {
		case "sources", "actions", "xid", "sxid", "line", "recovery", "nvlink5":
			sections[key.Value] = value
			return nil
		}
		return m.errorf(key, "unknown section %q", short(key.Value))
	})
	if err != nil {
		return err
	}
	return errors.Join(
		m.texts(sections["sources"], "sources", c.sources),
		m.texts(sections["actions"], "actions", c.actions),
		m.coded(sections["xid"], "xid", c.xids),
		m.coded(sections["sxid"], "sxid", c.sxids),
		m.named(sections["line"], "line", c.lines),
		m.named(sections["recovery"], "recovery", c.recovery),
		m.nvlinkRules(sections["nvlink5"]),
	)
}

// merger reads one file into a catalogue.
type merger struct {
	file      string
	changedBy string
	catalogue *Catalogue
}

func (m *merger) errorf(at *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", m.file, at.Line, fmt.Sprintf(format, args...))
}

// document parses the YAML; nil for an empty file.
func (m *merger) document(data []byte) (*yaml.Node, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: file is larger than %d bytes", m.file, maxFile)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", m.file, err)
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: more than one YAML document", m.file)
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	return root, m.noAliases(root)
}

// noAliases refuses anchors: with them a small file can mean a huge one.
func (m *merger) noAliases(n *yaml.Node) error {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return m.errorf(n, "anchors and aliases are not supported")
	}
	for _, child := range n.Content {
		if err := m.noAliases(child); err != nil {
			return err
		}
	}
	return nil
}

// each calls f for every pair of a mapping and refuses a key that comes twice.
func (m *merger) each(n *yaml.Node, what string, f func(key, value *yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return m.errorf(n, "%s: want a mapping", what)
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if line, twice := seen[key.Value]; twice {
			return m.errorf(key, "%s: %q is set twice, first in line %d", what, short(key.Value), line)
		}
		seen[key.Value] = key.Line
		if err := f(key, value); err != nil {
			return err
		}
	}
	return nil
}

func (m *merger) texts(n *yaml.Node, what string, into map[string]string) error {
	if n == nil {
		return nil
	}
	return m.each(n, what, func(key, value *yaml.Node) error {
		if value.Kind != yaml.ScalarNode || value.Value == "" || len(value.Value) > maxText {
			return m.errorf(value, "%s.%s: want a text of 1 to %d bytes", what, short(key.Value), maxText)
		}
		into[key.Value] = value.Value
		return nil
	})
}

// coded reads entries whose keys are codes, ranges or lists of them.
func (m *merger) coded(n *yaml.Node, what string, into map[int]Entry) error {
	if n == nil {
		return nil
	}
	seen := map[int]int{}
	return m.each(n, what, func(key, value *yaml.Node) error {
		codes, err := codeList(key.Value)
		if err != nil {
			return m.errorf(key, "%s: %v", what, err)
		}
		for _, code := range codes {
			if line, twice := seen[code]; twice {
				return m.errorf(key, "%s: %d is set twice, first in line %d", what, code, line)
			}
			seen[code] = key.Line
			e := into[code]
			if err := m.entry(key, value, fmt.Sprintf("%s %d", what, code), &e); err != nil {
				return err
			}
			into[code] = e
		}
		return nil
	})
}

// named reads entries whose keys are texts.
func (m *merger) named(n *yaml.Node, what string, into map[string]Entry) error {
	if n == nil {
		return nil
	}
	return m.each(n, what, func(key, value *yaml.Node) error {
		id := strings.ToLower(key.Value)
		e := into[id]
		if err := m.entry(key, value, what+" "+short(key.Value), &e); err != nil {
			return err
		}
		into[id] = e
		return nil
	})
}

// decode fills into; fields that are not in the YAML keep their value.
func (m *merger) decode(n *yaml.Node, what string, into any) error {
	var wrong *yaml.TypeError
	err := n.Decode(into)
	if errors.As(err, &wrong) {
		line, text, _ := strings.Cut(strings.TrimPrefix(wrong.Errors[0], "line "), ": ")
		return fmt.Errorf("%s:%s: %s: %s", m.file, line, what, text)
	}
	if err != nil {
		return m.errorf(n, "%s: %v", what, err)
	}
	return nil
}

// entry sets the fields that value has and checks the result.
func (m *merger) entry(key, value *yaml.Node, what string, e *Entry) error {
	err := m.each(value, what, func(key, _ *yaml.Node) error {
		if !slices.Contains(entryFields, key.Value) {
			return m.errorf(key, "%s: unknown field %q", what, short(key.Value))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := m.decode(value, what, e); err != nil {
		return err
	}
	if problem := m.catalogue.problem(e); problem != "" {
		return m.errorf(key, "%s: %s", what, problem)
	}
	e.ChangedBy = m.changedBy
	return nil
}

// problem says what is wrong with an entry.
func (c *Catalogue) problem(e *Entry) string {
	switch {
	case e.Name == "":
		return "no name"
	case e.Meaning == "":
		return "no meaning"
	case !slices.Contains(severities, e.Severity):
		return fmt.Sprintf("severity %q is none of critical, error, warning, info", short(string(e.Severity)))
	case len(e.Action) == 0:
		return "no action"
	case len(e.Sources) == 0:
		return "no sources"
	}
	for _, text := range []string{e.Name, e.Meaning, e.Immediate, e.Investigatory, e.Notes} {
		if len(text) > maxText {
			return fmt.Sprintf("a text is longer than %d bytes", maxText)
		}
	}
	for _, key := range slices.Concat(e.Action, e.IfRepeated) {
		if c.actions[key] == "" {
			return fmt.Sprintf("unknown action %q", short(key))
		}
	}
	for _, key := range e.Sources {
		if c.sources[key] == "" {
			return fmt.Sprintf("unknown source %q", short(key))
		}
	}
	return ""
}

// codeList reads "79", "39-41" and "39-41, 79".
func codeList(s string) ([]int, error) {
	var out []int
	for part := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.ParseUint(from, 10, 32)
		last, err2 := strconv.ParseUint(to, 10, 32)
		if err1 != nil || err2 != nil || first < 1 || last < first || last > maxCode || last-first > 999 {
			return nil, fmt.Errorf("%q is no code from 1 to %d, range or list", short(s), maxCode)
		}
		for code := first; code <= last; code++ {
			out = append(out, int(code))
		}
	}
	return out, nil
}

func short(s string) string {
	if len(s) > maxShown {
		return s[:maxShown] + "..."
	}
	return s
}
