// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"encoding/json"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

type board struct {
	UID        string                    `json:"uid"`
	Title      string                    `json:"title"`
	Editable   bool                      `json:"editable"`
	Inputs     any                       `json:"__inputs"`
	Panels     []boardPanel              `json:"panels"`
	Templating struct{ List []boardVar } `json:"templating"`
}

type boardPanel struct {
	ID          int               `json:"id"`
	Type        string            `json:"type"`
	Title       string            `json:"title"`
	Description string            `json:"description"`
	Datasource  map[string]string `json:"datasource"`
	Targets     []struct {
		Expr       string            `json:"expr"`
		Datasource map[string]string `json:"datasource"`
	} `json:"targets"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
}

type boardVar struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Query      any    `json:"query"`
	Refresh    int    `json:"refresh"`
	IncludeAll bool   `json:"includeAll"`
	AllValue   string `json:"allValue"`
}

// lint checks one dashboard by the rules of grafana/dashboard-linter that fit
// facility series too, and our own; it returns one line for each fault.
func lint(data []byte) []string {
	var faults []string
	add := func(fault string) { faults = append(faults, fault) }
	var b board
	if err := json.Unmarshal(data, &b); err != nil {
		return []string{err.Error()}
	}
	if !regexp.MustCompile(`^rackpulse-[a-z-]+-v[0-9]+$`).MatchString(b.UID) || len(b.UID) > 40 {
		add("uid " + b.UID + " is not stable (rackpulse-NAME-vN, 40 characters at most)")
	}
	if b.Inputs != nil || strings.Contains(string(data), "${DS_") {
		add("has import-time inputs")
	}
	if b.Editable {
		add("is editable")
	}
	faults = append(faults, lintVars(b.Templating.List)...)
	ids := map[int]bool{}
	for _, p := range b.Panels {
		if ids[p.ID] {
			add(p.Title + ": panel id used twice")
		}
		ids[p.ID] = true
		faults = append(faults, lintPanel(p)...)
	}
	return faults
}

func lintVars(vars []boardVar) []string {
	var faults []string
	if len(vars) == 0 || vars[0].Name != "datasource" || vars[0].Type != "datasource" || vars[0].Query != "prometheus" {
		faults = append(faults, "first variable is not the prometheus data source")
	}
	for _, v := range vars {
		if v.Type == "query" && (v.Refresh != 2 || v.IncludeAll && v.AllValue != ".+") {
			faults = append(faults, "variable "+v.Name+" does not refresh with the time range, or All is not .+")
		}
	}
	return faults
}

func lintPanel(p boardPanel) []string {
	var faults []string
	add := func(fault string) { faults = append(faults, p.Title+": "+fault) }
	if p.Title == "" || p.Description == "" {
		add("no title or description")
	}
	if slices.Contains([]string{"graph", "singlestat", "table-old", "worldmap"}, p.Type) {
		add("Angular panel " + p.Type)
	}
	if p.Datasource["uid"] != "${datasource}" {
		add("data source is fixed")
	}
	if p.FieldConfig.Defaults.Unit == "" {
		add("no unit")
	}
	if len(p.Targets) == 0 {
		add("no targets")
	}
	for _, t := range p.Targets {
		if t.Datasource["uid"] != "${datasource}" {
			add("target's data source is fixed")
		}
		for _, fault := range lintExpr(t.Expr) {
			add(fault)
		}
	}
	return faults
}

// lintExpr holds that an expression parses, that every selector is bound to the
// chosen site, and that counters are read as rates.
func lintExpr(expr string) []string {
	var faults []string
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(Substitute(expr, "1m"))
	if err != nil {
		return []string{err.Error()}
	}
	if strings.Contains(Substitute(expr, "1m"), "$") {
		faults = append(faults, "unknown variable in "+expr)
	}
	parser.Inspect(tree, func(node parser.Node, path []parser.Node) error {
		sel, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		bound := false
		for _, m := range sel.LabelMatchers {
			bound = bound || m.Name == "site" || m.Name == "rack_id"
		}
		if !bound {
			faults = append(faults, "selector "+sel.Name+" is bound to no site or rack")
		}
		if strings.HasSuffix(sel.Name, "_total") && !strings.HasPrefix(sel.Name, "DCGM_") {
			ranged := false
			if len(path) > 0 {
				_, ranged = path[len(path)-1].(*parser.MatrixSelector)
			}
			if !ranged {
				faults = append(faults, "counter "+sel.Name+" without rate")
			}
		}
		return nil
	})
	return faults
}

func TestLint(t *testing.T) {
	uids := map[string]string{}
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := files.ReadFile(path)
		if err != nil {
			return err
		}
		for _, fault := range lint(data) {
			t.Errorf("%s: %s", path, fault)
		}
		var b board
		if err := json.Unmarshal(data, &b); err != nil {
			return err
		}
		if other, taken := uids[b.UID]; taken {
			t.Errorf("%s: uid %s is also used by %s", path, b.UID, other)
		}
		uids[b.UID] = path
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(uids) < 2 {
		t.Errorf("%d dashboards, want at least 2", len(uids))
	}
}

// TestLintFinds holds that the lint is not blind.
func TestLintFinds(t *testing.T) {
	for fault, want := range map[string]string{
		`{"uid":"x","panels":[]}`:                                                          "uid x is not stable",
		`{"uid":"rackpulse-a-v1","__inputs":[{}]}`:                                         "import-time inputs",
		`{"uid":"rackpulse-a-v1","panels":[{"type":"graph"}]}`:                             "Angular panel graph",
		`{"uid":"rackpulse-a-v1","panels":[{"targets":[{"expr":"a(("}]}]}`:                 "parse error",
		`{"uid":"rackpulse-a-v1","panels":[{"targets":[{"expr":"up"}]}]}`:                  "bound to no site",
		`{"uid":"rackpulse-a-v1","panels":[{"targets":[{"expr":"x_total{site=\"a\"}"}]}]}`: "without rate",
	} {
		if got := strings.Join(lint([]byte(fault)), "\n"); !strings.Contains(got, want) {
			t.Errorf("%s: faults %q lack %q", fault, got, want)
		}
	}
}
