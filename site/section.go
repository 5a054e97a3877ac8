// SPDX-License-Identifier: Apache-2.0

package site

import (
	"maps"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// section reads one list of entities. An entry whose id is a range gives one
// entity per name.
func section[T any, P interface {
	*T
	noun
}](p *parser, name string, sections map[string]*yaml.Node) []T {
	list := sections[name]
	if list == nil || list.Tag == "!!null" {
		return nil
	}
	if list.Kind != yaml.SequenceNode {
		p.add(list.Line, name, "want a list, got %s", describe(list))
		return nil
	}
	var out []T
	var spots []spot
	for i, node := range list.Content {
		s := spot{path: index1(name, i), node: node}
		var one T
		s.broken = !p.decode(s.path, node, reflect.ValueOf(&one).Elem())
		for _, each := range spread[T, P](p, &s, one) {
			out, spots = append(out, each), append(spots, s)
		}
	}
	for i := range out {
		p.register(spots[i], P(&out[i]))
	}
	return out
}

// spread gives one entity for each name of the entry's id, with the references
// handed out in order.
func spread[T any, P interface {
	*T
	noun
}](p *parser, s *spot, entry T) []T {
	id := *P(&entry).ident()
	if id == "" {
		if !s.broken {
			p.add(s.line("id"), join(s.path, "id"), "missing")
		}
		return nil
	}
	ids, ok := p.expand(s.line("id"), join(s.path, "id"), id)
	if !ok {
		return nil
	}
	out := make([]T, len(ids))
	for i := range out {
		out[i] = entry
		*P(&out[i]).ident() = ids[i]
	}
	if len(ids) > 1 {
		s.broken = !spreadRefs[T, P](p, *s, out) || s.broken
	}
	spreadExporters[T, P](p, *s, out)
	if nodes, ok := any(out).([]Node); ok {
		p.spreadNodes(*s, nodes)
	}
	return out
}

// spreadRefs hands out the references of an entry: one name goes to all its
// entities, a range of as many names as entities in order. It tells whether that
// went well.
func spreadRefs[T any, P interface {
	*T
	noun
}](p *parser, s spot, out []T) bool {
	good := true
	for r, field := range P(&out[0]).refs() {
		expr, isRef := *field.at, field.kind != ""
		if expr == "" || isRef && !strings.ContainsAny(expr, "[,") {
			continue
		}
		items, ok := p.share(s.line(field.key), join(s.path, field.key), expr, len(out), isRef)
		good = good && ok
		for i := range out {
			at := P(&out[i]).refs()[r].at
			if *at = ""; ok {
				*at = items[i]
			}
		}
	}
	return good
}

// expand expands a host list, charged to what the file may expand to in all.
// Once that is used up nothing is expanded any more.
func (p *parser) expand(line int, path, expr string) ([]string, bool) {
	if p.names == 0 {
		p.add(line, path, "the ranges of this file have more than %d names", maxNames)
		return nil, false
	}
	names, err := ExpandHostlist(expr)
	if err != nil {
		p.add(line, path, "%s", err)
		return nil, false
	}
	if len(names) >= p.names {
		p.names = 0
		return p.expand(line, path, expr)
	}
	p.names -= len(names)
	return names, true
}

// share expands expr to n items. One item for several is repeated where common
// is set, else it is a fault.
func (p *parser) share(line int, path, expr string, n int, common bool) ([]string, bool) {
	items, ok := p.expand(line, path, expr)
	switch {
	case !ok:
		return nil, false
	case len(items) == n:
		return items, true
	case len(items) == 1 && common:
		return slices.Repeat(items, n), true
	case len(items) == 1:
		p.add(line, path, "%s is used by all %d names of the id; write a range of %d, such as %s",
			quote(expr), n, n, quote(exampleRange(items[0], n)))
	default:
		p.add(line, path, "%s gives %d names, but the id gives %d", quote(expr), len(items), n)
	}
	return nil, false
}

// exampleRange turns one item into a range of n: "r01-a/1" and 4 give "r01-a/[1-4]".
func exampleRange(item string, n int) string {
	num := cutNumber(item)
	if num.value < 0 {
		return item + "[1-" + strconv.Itoa(n) + "]"
	}
	return num.prefix + "[" + num.digits + "-" + pad(num.value+int64(n)-1, len(num.digits)) + "]" + num.suffix
}

// spreadNodes hands out what only nodes have: positions, outlets, ports.
func (p *parser) spreadNodes(s spot, nodes []Node) {
	first := nodes[0]
	outlets := p.spreadList(s, first.ID, "outlets", first.Outlets, len(nodes))
	ports := p.spreadList(s, first.ID, "ports", first.Ports, len(nodes))
	height := p.classHeight(first.Class)
	above := map[string]int{} // rack -> units taken by earlier nodes of this entry
	for i := range nodes {
		n := &nodes[i]
		n.Outlets, n.Ports = outlets[i], ports[i]
		if n.U > 0 {
			n.U += above[n.Rack]
			above[n.Rack] += height
		}
	}
}

// spreadList hands out each expression of a list over n nodes; a single node
// takes all items. id is the first node's.
func (p *parser) spreadList(s spot, id, key string, exprs []string, n int) [][]string {
	out := make([][]string, n)
	for e, expr := range exprs {
		line, path := s.itemLine(key, e), index1(join(s.path, key), e)
		if n == 1 {
			items, _ := p.expand(line, path, expr)
			for range items {
				p.exprs[key+"/"+id] = append(p.exprs[key+"/"+id], e)
			}
			out[0] = append(out[0], items...)
			continue
		}
		items, ok := p.share(line, path, expr, n, false)
		for i := 0; ok && i < n; i++ {
			out[i] = append(out[i], items[i])
		}
	}
	return out
}

// exporting are the nouns that foreign exporters read.
type exporting interface{ exporters() *map[string]string }

// spreadExporters hands out the addresses of exporters.
func spreadExporters[T any, P interface {
	*T
	noun
}](p *parser, s spot, out []T) {
	first, ok := any(P(&out[0])).(exporting)
	if !ok || len(*first.exporters()) == 0 {
		return
	}
	exprs := *first.exporters()
	all := make([]map[string]string, len(out))
	for i := range out {
		all[i] = make(map[string]string, len(exprs))
		*any(P(&out[i])).(exporting).exporters() = all[i]
	}
	for _, job := range slices.Sorted(maps.Keys(exprs)) {
		line, path := s.line("exporters"), join(join(s.path, "exporters"), job)
		if len(out) == 1 && isHostPort(exprs[job]) { // [::1]:9100 is no range
			all[0][job] = exprs[job]
			continue
		}
		items, ok := p.share(line, path, exprs[job], len(out), false)
		for i := 0; ok && i < len(out); i++ {
			all[i][job] = items[i]
		}
	}
}

// isHostPort tells whether s is host:port with a port of 1..65535.
func isHostPort(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" || strings.ContainsAny(host, " /[],") {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}
