// SPDX-License-Identifier: Apache-2.0

package site

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rackpulse/rackpulse/testtool"
)

// TestDocs holds docs/site.md against the code: all keys, all limits with their
// values, and the example must be right.
func TestDocs(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(testtool.Root(), "docs", "site.md"))
	if err != nil {
		t.Fatal(err)
	}
	doc := string(data)
	for _, v := range []any{Site{}, Room{}, Row{}, Feed{}, Rack{}, PDU{}, UPS{}, CoolingUnit{}, Switch{}, Sensor{},
		Meter{}, NodeClass{}, Node{}, Baseline{}, GPULimits{}} {
		for key := range yamlFields(reflect.TypeOf(v)) {
			if !strings.Contains(doc, "`"+key+"`") && !strings.Contains(doc, "."+key+"`") {
				t.Errorf("%T: key %s is not in docs/site.md", v, key)
			}
		}
	}
	l := DefaultLimits()
	for _, key := range l.Keys() {
		if strings.HasPrefix(key, "ashrae.") || strings.HasPrefix(key, "gpu.") && !strings.HasPrefix(key, "gpu.default.") {
			continue
		}
		v, _ := l.Value(key)
		if row := fmt.Sprintf("| `%s` | %v |", key, v); !strings.Contains(doc, row) {
			t.Errorf("docs/site.md lacks %s", row)
		}
	}
	_, rest, _ := strings.Cut(doc, "```yaml\n")
	text, rest, _ := strings.Cut(rest, "```")
	if _, err := Parse("docs/site.md", []byte(text)); err != nil {
		t.Error(err)
	}
	for {
		_, after, found := strings.Cut(rest, "```yaml\n")
		if !found {
			break
		}
		text, rest, _ = strings.Cut(after, "```")
		if _, err := Parse("docs/site.md", []byte("site: {id: s1}\n"+text)); err != nil {
			t.Error(err)
		}
	}
}
