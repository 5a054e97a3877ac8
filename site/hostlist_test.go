// SPDX-License-Identifier: Apache-2.0

package site

import (
	"slices"
	"strings"
	"testing"
)

func TestExpandHostlist(t *testing.T) {
	tests := []struct {
		in   string
		want string // names, separated by spaces
	}{
		{"gpu1", "gpu1"},
		{"gpu[1-3]", "gpu1 gpu2 gpu3"},
		{"gpu[001-004,007]", "gpu001 gpu002 gpu003 gpu004 gpu007"},
		{"gpu[08-11]", "gpu08 gpu09 gpu10 gpu11"},
		{"gpu[8-11]", "gpu8 gpu9 gpu10 gpu11"},
		{"gpu[098-101]", "gpu098 gpu099 gpu100 gpu101"},
		{"r[1-2]n[1-2]", "r1n1 r1n2 r2n1 r2n2"},
		{"r[1-2]-a", "r1-a r2-a"},
		{"gpu[1-2].dc1.example.com", "gpu1.dc1.example.com gpu2.dc1.example.com"},
		{"a,b[1,3],c", "a b1 b3 c"},
		{" a , b ", "a b"},
		{"[1-2]", "1 2"},
		{"n[3,1,3]", "n3 n1 n3"},
		{"n[5-5]", "n5"},
		{"n[0]", "n0"},
	}
	for _, tt := range tests {
		got, err := ExpandHostlist(tt.in)
		if err != nil || !slices.Equal(got, strings.Split(tt.want, " ")) {
			t.Errorf("%s: got %v, %v; want %s", tt.in, got, err, tt.want)
		}
	}
}

func TestExpandHostlistErrors(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", `host list "" has an empty name`},
		{"a,,b", `host list "a,,b" has an empty name`},
		{"a,", `host list "a," has an empty name`},
		{"a[1", `host list "a[1" has a [ without a ]`},
		{"a]", `host list "a]" has a ] without a [`},
		{"a[[1]]", `host list "a[[1]]" has a bracket inside a bracket`},
		{"a[]", `"a[]": "" is not a number of at most 18 digits`},
		{"a[x]", `"a[x]": "x" is not a number of at most 18 digits`},
		{"a[1-]", `"a[1-]": "" is not a number of at most 18 digits`},
		{"a[1-2-3]", `"a[1-2-3]": "2-3" is not a number of at most 18 digits`},
		{"a[-1]", `"a[-1]": "" is not a number of at most 18 digits`},
		{"a[1234567890123456789]", `"a[1234567890123456789]": "1234567890123456789" is not a number of at most 18 digits`},
		{"a[2-1]", `"a[2-1]": range 2-1 runs backwards`},
		{"a[1-65537]", "host list has more than 65536 names"},
		{"a[1-999999999999999999]", "host list has more than 65536 names"},
		{"a[1-300]b[1-300]", "host list has more than 65536 names"},
		{"a[1-999999999999999999]b[1-999999999999999999]", "host list has more than 65536 names"},
		{"a[1-65536],b", "host list has more than 65536 names"},
		{strings.Repeat("a", 513), "name is longer than 512 bytes"},
		{strings.Repeat("a,", 40000), "host list is longer than 65536 bytes"},
	}
	for _, tt := range tests {
		if got, err := ExpandHostlist(tt.in); err == nil || !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("%.80s: got %d names, %v; want %s", tt.in, len(got), err, tt.want)
		}
	}
	if got, err := ExpandHostlist("a[1-65536]"); err != nil || len(got) != 65536 || got[65535] != "a65536" {
		t.Errorf("largest list: %d names, %v", len(got), err)
	}
}

func TestCompressHostlist(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", ""},
		{"gpu1", "gpu1"},
		{"login", "login"},
		{"gpu001 gpu002 gpu003", "gpu[001-003]"},
		{"gpu003 gpu001 gpu002 gpu002", "gpu[001-003]"},
		{"gpu001 gpu003 gpu004", "gpu[001,003-004]"},
		{"n8 n9 n10 n11", "n[8-11]"},
		{"n08 n09 n10", "n[08-10]"},
		{"n1 n01", "n[1,01]"},
		{"r1n1 r1n2 r2n1", "r1n[1-2],r2n1"},
		{"b1 a1 a2", "a[1-2],b1"},
		{"gpu1.example.com gpu2.example.com", "gpu[1-2].example.com"},
		{"gpu gpu1 gpu2", "gpu,gpu[1-2]"},
		{"ws gpu1 gpu2", "gpu[1-2],ws"},
	}
	for _, tt := range tests {
		if got := CompressHostlist(strings.Fields(tt.in)); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.in, got, tt.want)
		}
	}
}

func FuzzExpandHostlist(f *testing.F) {
	for _, seed := range []string{"gpu[001-004,007]", "a[1-3]b[08-11],c", "[", "a[1-65536]", "x[000000000000000001]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		names, err := ExpandHostlist(s)
		if err != nil {
			return
		}
		if len(names) == 0 || len(names) > 65536 {
			t.Fatalf("%q: %d names", s, len(names))
		}
		again, err := ExpandHostlist(CompressHostlist(names))
		if err != nil {
			t.Fatalf("%q: compressed: %v", s, err)
		}
		slices.Sort(again)
		slices.Sort(names)
		if names = slices.Compact(names); !slices.Equal(again, names) {
			t.Fatalf("%q: %.200v compressed and expanded: %.200v", s, names, again)
		}
	})
}
