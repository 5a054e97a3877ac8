// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"testing"
)

// TestDiffRules: order and layout are no change; rules of one name are told apart
// by their labels.
func TestDiffRules(t *testing.T) {
	old := `groups:
- name: g
  rules:
  - {record: a, expr: sum(x)}
  - {alert: Hot, expr: x > 1, for: 1m, labels: {severity: warning}, annotations: {summary: s}}
  - {alert: Hot, expr: x > 5, labels: {severity: critical}}
  - {alert: Gone, expr: x > 5}
  - alert: Long
    expr: |-
      a
      and
      b
`
	next := `groups:
- name: other
  rules:
  - alert: Hot
    labels: {severity: critical}
    expr: x > 5
  - record: a
    expr: 'sum(x)'
  - {alert: Hot, expr: x > 2, for: 2m, labels: {severity: warning}, annotations: {summary: s, cause: c}}
  - {alert: New, expr: x > 5, labels: {team: t}}
  - alert: Long
    expr: |-
      a
      unless
      b
`
	changes, err := DiffRules(map[string][]byte{"f.yml": []byte(old), "same.yml": []byte(old)}, map[string][]byte{"f.yml": []byte(next), "same.yml": []byte(old)})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range changes {
		got = append(got, c.String())
	}
	want := `f.yml: removed alert Gone
f.yml: changed alert Hot
    expr: "x > 1" to "x > 2"
    for: "1m" to "2m"
    annotations.cause: "" to "c"
f.yml: added alert New{team="t"}
f.yml: changed alert Long
    expr:
    - and
    + unless`
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	if changes, err = DiffRules(nil, map[string][]byte{"f.yml": []byte(old)}); err != nil || len(changes) != 5 {
		t.Errorf("from nothing: %v, error %v", changes, err)
	}
	if _, err = DiffRules(map[string][]byte{"f.yml": []byte("a: [")}, nil); err == nil || !strings.HasPrefix(err.Error(), "f.yml: ") {
		t.Errorf("error %v", err)
	}
}
