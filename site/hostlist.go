// SPDX-License-Identifier: Apache-2.0

package site

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	maxHostlistNames = 65536
	maxHostlistBytes = 64 << 10
	maxNameBytes     = 512
	maxDigits        = 18 // fits an int64
)

// ExpandHostlist expands a Slurm host list such as "gpu[001-004,007],login1"
// into its names, in order: the last bracket runs fastest. Numbers keep the
// width of a range's first number. It fails on bad syntax and on more than
// 65,536 names.
func ExpandHostlist(s string) ([]string, error) {
	if len(s) > maxHostlistBytes {
		return nil, fmt.Errorf("host list is longer than %d bytes", maxHostlistBytes)
	}
	items, err := splitList(s)
	if err != nil {
		return nil, err
	}
	total := 0
	parsed := make([]pattern, 0, len(items))
	for _, item := range items {
		p, err := parsePattern(item)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", item, err)
		}
		n := p.count()
		if total += n; total > maxHostlistNames {
			return nil, fmt.Errorf("host list has more than %d names", maxHostlistNames)
		}
		parsed = append(parsed, p)
	}
	names := make([]string, 0, total)
	for _, p := range parsed {
		names = p.appendNames(names, "")
	}
	return names, nil
}

// splitList cuts a list at the commas outside brackets.
func splitList(s string) ([]string, error) {
	var items []string
	start, open := 0, false
	for i := 0; i <= len(s); i++ {
		switch {
		case i == len(s) || s[i] == ',' && !open:
			item := strings.TrimSpace(s[start:i])
			if item == "" {
				return nil, fmt.Errorf("host list %q has an empty name", s)
			}
			items = append(items, item)
			start = i + 1
		case s[i] == '[' && open:
			return nil, fmt.Errorf("host list %q has a bracket inside a bracket", s)
		case s[i] == ']' && !open:
			return nil, fmt.Errorf("host list %q has a ] without a [", s)
		case s[i] == '[' || s[i] == ']':
			open = s[i] == '['
		}
	}
	if open {
		return nil, fmt.Errorf("host list %q has a [ without a ]", s)
	}
	return items, nil
}

// pattern is one item: literal text, then number ranges, and so on.
type pattern []piece

// piece is literal text followed by the ranges of one bracket; the last piece of
// a pattern may have no ranges.
type piece struct {
	text   string
	ranges []span
}

// span is lo-hi, printed at least width digits wide.
type span struct {
	lo, hi int64
	width  int
}

func parsePattern(s string) (pattern, error) {
	var p pattern
	length := 0
	for s != "" {
		text, rest, found := strings.Cut(s, "[")
		one := piece{text: text}
		length += len(text)
		if found {
			body, tail, _ := strings.Cut(rest, "]")
			for part := range strings.SplitSeq(body, ",") {
				sp, err := parseSpan(part)
				if err != nil {
					return nil, err
				}
				one.ranges = append(one.ranges, sp)
			}
			length += maxDigits
			rest = tail
		}
		p = append(p, one)
		s = rest
	}
	if length > maxNameBytes {
		return nil, fmt.Errorf("name is longer than %d bytes", maxNameBytes)
	}
	return p, nil
}

func parseSpan(s string) (span, error) {
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	lo, err := parseDigits(first)
	if err != nil {
		return span{}, err
	}
	hi, err := parseDigits(last)
	if err != nil {
		return span{}, err
	}
	if hi < lo {
		return span{}, fmt.Errorf("range %s runs backwards", s)
	}
	return span{lo: lo, hi: hi, width: len(first)}, nil
}

func parseDigits(s string) (int64, error) {
	if s == "" || len(s) > maxDigits || strings.Trim(s, "0123456789") != "" {
		return 0, fmt.Errorf("%q is not a number of at most %d digits", s, maxDigits)
	}
	return strconv.ParseInt(s, 10, 64)
}

// count is the number of names of the pattern; beyond the bound any number
// above it.
func (p pattern) count() int {
	total := int64(1)
	for _, one := range p {
		if one.ranges == nil {
			continue
		}
		sum := int64(0)
		for _, r := range one.ranges {
			if sum += r.hi - r.lo + 1; sum > maxHostlistNames {
				return maxHostlistNames + 1
			}
		}
		if total *= sum; total > maxHostlistNames {
			return maxHostlistNames + 1
		}
	}
	return int(total)
}

func (p pattern) appendNames(names []string, prefix string) []string {
	if len(p) == 0 {
		return append(names, prefix)
	}
	prefix += p[0].text
	if p[0].ranges == nil {
		return p[1:].appendNames(names, prefix)
	}
	for _, r := range p[0].ranges {
		for n := r.lo; n <= r.hi; n++ {
			names = p[1:].appendNames(names, prefix+pad(n, r.width))
		}
	}
	return names
}

func pad(n int64, width int) string {
	s := strconv.FormatInt(n, 10)
	if len(s) < width {
		s = strings.Repeat("0", width-len(s)) + s
	}
	return s
}

// numbered is a name cut at its last number.
type numbered struct {
	prefix, digits, suffix string
	value                  int64 // -1: no number
}

func cutNumber(name string) numbered {
	end := strings.LastIndexAny(name, "0123456789") + 1
	start := end
	for start > 0 && name[start-1] >= '0' && name[start-1] <= '9' {
		start--
	}
	n, err := parseDigits(name[start:end])
	if err != nil {
		return numbered{prefix: name, value: -1}
	}
	return numbered{name[:start], name[start:end], name[end:], n}
}

// CompressHostlist writes names as the shortest host list that its own simple
// rule finds: names are sorted, repeated names dropped, and runs over the last
// number of a name become ranges. ExpandHostlist gives the sorted names back.
func CompressHostlist(names []string) string {
	cut := make([]numbered, 0, len(names))
	for _, name := range names {
		cut = append(cut, cutNumber(name))
	}
	slices.SortFunc(cut, func(a, b numbered) int {
		return compareAll(strings.Compare(a.prefix, b.prefix), strings.Compare(a.suffix, b.suffix),
			int(min(max(a.value-b.value, -1), 1)), len(a.digits)-len(b.digits))
	})
	cut = slices.Compact(cut)

	var out []string
	for len(cut) > 0 {
		n := 1
		for n < len(cut) && cut[0].value >= 0 && cut[n].prefix == cut[0].prefix && cut[n].suffix == cut[0].suffix {
			n++
		}
		out = append(out, compressGroup(cut[:n]))
		cut = cut[n:]
	}
	return strings.Join(out, ",")
}

func compareAll(results ...int) int {
	for _, r := range results {
		if r != 0 {
			return r
		}
	}
	return 0
}

// compressGroup writes names that differ in their number only.
func compressGroup(group []numbered) string {
	if group[0].value < 0 {
		return group[0].prefix
	}
	if len(group) == 1 {
		return group[0].prefix + group[0].digits + group[0].suffix
	}
	prefix, suffix := group[0].prefix, group[0].suffix
	var parts []string
	for len(group) > 0 {
		n := 1
		for n < len(group) && group[n].digits == pad(group[n-1].value+1, len(group[0].digits)) {
			n++
		}
		part := group[0].digits
		if n > 1 {
			part += "-" + group[n-1].digits
		}
		parts = append(parts, part)
		group = group[n:]
	}
	return prefix + "[" + strings.Join(parts, ",") + "]" + suffix
}
