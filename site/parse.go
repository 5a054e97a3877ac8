// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"strconv"

	"gopkg.in/yaml.v3"
)

const (
	maxFileBytes = 16 << 20
	maxNames     = 1 << 19 // names that all ranges of one file may expand to
	maxShown     = 80      // bytes of a value in a message
)

// Load reads and checks a site file of at most 16 MiB.
func Load(path string) (*Site, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return Parse(path, data)
}

// Parse checks a site file; name stands for it in messages. The error holds
// every problem found (the first 50 of them), sorted by line, in the form
//
//	site.yml:12: pdus[3].rack: unknown rack "r99"
func Parse(name string, data []byte) (*Site, error) {
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("%s: file is larger than %d MiB", name, maxFileBytes>>20)
	}
	p := &parser{
		problems: problems{file: name},
		ids:      map[string]map[string]item{},
		names:    maxNames,
		exprs:    map[string][]int{},
	}
	root := p.document(data)
	if root == nil {
		return nil, p.err()
	}
	s := p.site(root)
	p.checkRefs()
	p.checkCabling()
	p.checkSpace()
	if err := p.err(); err != nil {
		return nil, err
	}
	s.index = newIndex(s)
	return s, nil
}

// parser reads one site file.
type parser struct {
	problems
	items []item
	// ids holds who used an id first, by scope (see scopeOf).
	ids   map[string]map[string]item
	names int // names that ranges may still expand to
	// exprs holds which expression of the file gave each outlet or port of a
	// single node, by "outlets/NODE".
	exprs map[string][]int
}

// item is one entity with its place in the file.
type item struct {
	spot
	noun noun
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// document returns the mapping of the file's only document, or nil after
// reporting why there is none.
func (p *parser) document(data []byte) *yaml.Node {
	var doc, second yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		p.add(1, "site.id", "missing: the file is empty")
		return nil
	case err != nil:
		p.syntax(err)
		return nil
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		p.add(second.Line, "", "a second document; want only one")
		return nil
	case !errors.Is(err, io.EOF):
		p.syntax(err)
		return nil
	}
	root := doc.Content[0]
	if node := findAlias(root); node != nil {
		p.add(node.Line, "", "aliases are not understood in a site file; use ranges such as gpu[001-004]")
		return nil
	}
	if root.Kind != yaml.MappingNode {
		p.add(root.Line, "", "want a mapping, got %s", describe(root))
		return nil
	}
	return root
}

func (p *parser) syntax(err error) {
	line := 1
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil && m[1] != "" {
		line, _ = strconv.Atoi(m[1])
	}
	p.add(line, "", "%s", yamlLine.ReplaceAllString(err.Error(), ""))
}

// findAlias returns the first alias under node. They are refused, so no file can
// grow while it is read.
func findAlias(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node
	}
	for _, child := range node.Content {
		if found := findAlias(child); found != nil {
			return found
		}
	}
	return nil
}

// site reads all sections.
func (p *parser) site(root *yaml.Node) *Site {
	s := &Site{Limits: DefaultLimits()}
	sections := map[string]*yaml.Node{}
	known := yamlFields(reflect.TypeFor[Site]())
	p.pairs("", root, func(key string, value *yaml.Node) bool {
		_, ok := known[key]
		if !ok && key != "site" && key != "limits" {
			p.add(value.Line, key, "unknown key")
		}
		sections[key] = value
		return true
	})
	p.head(s, root, sections["site"])
	s.Rooms = section[Room](p, "rooms", sections)
	s.Rows = section[Row](p, "rows", sections)
	s.Feeds = section[Feed](p, "feeds", sections)
	s.Racks = section[Rack](p, "racks", sections)
	s.PDUs = section[PDU](p, "pdus", sections)
	s.UPSs = section[UPS](p, "upss", sections)
	s.CoolingUnits = section[CoolingUnit](p, "cooling_units", sections)
	s.Switches = section[Switch](p, "switches", sections)
	s.Sensors = section[Sensor](p, "sensors", sections)
	s.Meters = section[Meter](p, "meters", sections)
	s.NodeClasses = section[NodeClass](p, "node_classes", sections)
	s.Nodes = section[Node](p, "nodes", sections)
	if node := sections["limits"]; node != nil {
		p.limits(s.Limits, node)
	}
	return s
}

// head reads the site's own mapping.
func (p *parser) head(s *Site, root, node *yaml.Node) {
	if node == nil {
		p.add(root.Line, "site.id", "missing")
		return
	}
	var head struct {
		ID string `yaml:"id"`
	}
	if !p.decode("site", node, reflect.ValueOf(&head).Elem()) {
		return
	}
	s.ID = head.ID
	p.checkID(spot{path: "site", node: node}, s.ID)
}

func join(path, key string) string {
	if path == "" {
		return quoteKey(key)
	}
	return path + "." + quoteKey(key)
}

// quoteKey quotes a key that would make a path hard to read.
func quoteKey(key string) string {
	if isID(key) {
		return key
	}
	return quote(key)
}

// quote quotes a value, shortened to what a message can bear.
func quote(s string) string {
	if len(s) > maxShown {
		s = s[:maxShown] + "..."
	}
	return strconv.Quote(s)
}

func index1(path string, i int) string {
	return path + "[" + strconv.Itoa(i) + "]"
}
