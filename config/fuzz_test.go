// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"testing"
)

// FuzzPart: a part decoded later holds the same values as one decoded at once,
// and its complaint about a key names the line of that key.
func FuzzPart(f *testing.F) {
	for _, seed := range []string{
		"{a: 1, b: [x, 'y']}", "\n  a: |\n    two\n    lines\n\n  b: ~", "'on'", "0o17", "2001-01-01", "\"a\\nb\"", "!!str 1",
		"\n  a: >\n    folded\n    text\n", "{<<: {a: 1}, b: 2}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		in := []byte("p: " + s + "\n")
		var direct struct{ P any }
		var later struct{ P Part }
		if Strict("f.yml", in, &direct) != nil || Strict("f.yml", in, &later) != nil {
			return
		}
		var got any
		if err := later.P.Decode(&got); err != nil {
			t.Fatalf("%q: %v", in, err)
		}
		if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", direct.P) {
			t.Fatalf("%q: got %#v, want %#v", in, got, direct.P)
		}
		if !later.P.IsZero() && !strings.HasPrefix(later.P.Position(), "f.yml:") {
			t.Fatalf("%q: position %s", in, later.P.Position())
		}
	})
}
