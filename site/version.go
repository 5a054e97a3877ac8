// SPDX-License-Identifier: Apache-2.0

package site

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// version is a dotted number with whatever follows it: 570.124.06,
// 5.15.0-91-generic, 1.17.0-rc.1.
type version struct {
	main []string // numbers without leading zeros
	tail []string // runs of digits and runs of letters behind them
}

// prereleases are the first words of a tail that put a version before its number.
var prereleases = []string{"rc", "alpha", "beta", "pre"}

// maxVersionBytes bounds a version: kernels have some 60.
const maxVersionBytes = 256

// parseVersion reads a version; false: it does not begin with a number.
func parseVersion(s string) (version, bool) {
	var v version
	if len(s) > maxVersionBytes {
		return v, false
	}
	rest := s
	for {
		digits := run(rest, isDigit)
		if digits == "" {
			break
		}
		v.main = append(v.main, number(digits))
		rest = rest[len(digits):]
		if len(rest) < 2 || rest[0] != '.' || !isDigit(rest[1]) {
			break
		}
		rest = rest[1:]
	}
	for rest != "" {
		token := run(rest, isDigit)
		if token != "" {
			v.tail = append(v.tail, number(token))
		} else if token = run(rest, isLetter); token != "" {
			v.tail = append(v.tail, strings.ToLower(token))
		} else {
			token = rest[:1]
		}
		rest = rest[len(token):]
	}
	return v, len(v.main) > 0
}

func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// run is the beginning of s that is of one kind.
func run(s string, kind func(byte) bool) string {
	n := 0
	for n < len(s) && kind(s[n]) {
		n++
	}
	return s[:n]
}

// number writes a number as it is compared: 06 is 6.
func number(digits string) string {
	if s := strings.TrimLeft(digits, "0"); s != "" {
		return s
	}
	return "0"
}

func (v version) prerelease() bool { return len(v.tail) > 0 && slices.Contains(prereleases, v.tail[0]) }

// at is the number at place i; a version without one has 0 there.
func (v version) at(i int) string {
	if i < len(v.main) {
		return v.main[i]
	}
	return "0"
}

// compare orders v against the version of a constraint, as far as that one goes:
// 5.15.0-91-generic equals 5.15 and 5.15.0-91. A pre-release is below its number.
func (v version) compare(w version) int {
	for i := range max(len(v.main), len(w.main)) {
		if c := compareTokens(v.at(i), w.at(i)); c != 0 {
			return c
		}
	}
	switch vp, wp := v.prerelease(), w.prerelease(); {
	case vp && !wp:
		return -1
	case wp && !vp:
		return 1
	}
	for i, token := range w.tail {
		if i >= len(v.tail) {
			return -1
		}
		if c := compareTokens(v.tail[i], token); c != 0 {
			return c
		}
	}
	return 0
}

// within tells whether v is the version of a constraint, or of its branch: 550.54.14
// is within 550 and 550.54.
func (v version) within(branch version) bool {
	if len(branch.tail) > 0 {
		return v.compare(branch) == 0
	}
	for i, n := range branch.main {
		if v.at(i) != n {
			return false
		}
	}
	return true
}

// compareTokens orders numbers by value, of any length, and before words.
func compareTokens(a, b string) int {
	an, bn := isDigit(a[0]), isDigit(b[0])
	switch {
	case an && bn:
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	case an:
		return -1
	case bn:
		return 1
	}
	return strings.Compare(a, b)
}

// bound is one comparison with a version: ">=570.124". Without an operator it is the
// version itself or its branch.
type bound struct {
	op      string
	version version
	text    string // of the version
}

// operators, the longer ones first.
var operators = []string{">=", "<=", "!=", ">", "<", "="}

// parseBounds reads one alternative of Versions: comparisons between blanks, all of
// which must hold.
func parseBounds(s string) ([]bound, error) {
	words := strings.Fields(s)
	if len(words) == 0 {
		return nil, fmt.Errorf("%s; want a version such as 550.54.14 or >=570.124 <571", quote(s))
	}
	out := make([]bound, len(words))
	for i, word := range words {
		b := bound{text: word}
		for _, op := range operators {
			if rest, ok := strings.CutPrefix(word, op); ok {
				b.op, b.text = op, rest
				break
			}
		}
		v, ok := parseVersion(b.text)
		rest := strings.TrimLeft(b.text, "0123456789.")
		lead := b.text[:len(b.text)-len(rest)]
		if !ok || strings.HasSuffix(lead, ".") || strings.Contains(lead, "..") || rest != "" && !isTail(rest) {
			return nil, fmt.Errorf("%s; want a version such as 550.54.14 right behind =, !=, >, >=, <, <= or nothing", quote(word))
		}
		b.version = v
		out[i] = b
	}
	for _, low := range out {
		for _, high := range out {
			if low.excludes(high) {
				return nil, fmt.Errorf("%s; no version is both %s%s and %s%s", quote(s), low.op, low.text, high.op, high.text)
			}
		}
	}
	return out, nil
}

// isTail tells whether s may follow the numbers of a version: "-91-generic".
func isTail(s string) bool {
	return strings.IndexByte("-+~_", s[0]) >= 0 && isWord(s[1:], "._-+~", maxVersionBytes)
}

// excludes tells whether nothing is above b and below high.
func (b bound) excludes(high bound) bool {
	if !strings.Contains(">=", b.op) || b.op == "" || !strings.Contains("<=", high.op) || high.op == "" {
		return false
	}
	c := b.version.compare(high.version)
	return c > 0 || c == 0 && (b.op == ">" || high.op == "<")
}

func (b bound) holds(v version) bool {
	switch c := v.compare(b.version); b.op {
	case ">=":
		return c >= 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	case "<":
		return c < 0
	case "=":
		return c == 0
	case "!=":
		return !v.within(b.version)
	}
	return v.within(b.version)
}

// Versions are the versions that a baseline allows: a list of alternatives, each a
// version, the branch of it, or comparisons between blanks: "550.54.14", "5.15",
// ">=570.124 <571". A site file may write a single one without a list.
type Versions []string

// Allow tells whether one of the alternatives holds for a version. What is no
// version is not allowed.
func (a Versions) Allow(s string) bool {
	v, ok := parseVersion(s)
	return ok && slices.ContainsFunc(a, func(alternative string) bool {
		bounds, err := parseBounds(alternative)
		return err == nil && !slices.ContainsFunc(bounds, func(b bound) bool { return !b.holds(v) })
	})
}

// check reports what is wrong with the alternatives.
func (a Versions) check(key string, fail failFunc) {
	if a != nil && len(a) == 0 {
		fail(key, "an empty list allows nothing")
	}
	for i, s := range a {
		if _, err := parseBounds(s); err != nil {
			fail(index1(key, i), "%s", err)
		}
	}
}

// some is a version that is allowed, "" where none is at hand: one of those that the
// alternatives name, or right above it.
func (a Versions) some() string {
	for _, alternative := range a {
		bounds, _ := parseBounds(alternative)
		for _, b := range bounds {
			for _, v := range []string{b.text, b.text + ".1", "0.1"} {
				if a.Allow(v) {
					return v
				}
			}
		}
	}
	return ""
}
