// SPDX-License-Identifier: Apache-2.0

// Package dashboards holds the Grafana dashboards, one JSON file each, what is
// needed to write them out, and the lint that they and others are held to.
package dashboards

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
)

//go:embed *.json
var files embed.FS

// Files returns the dashboards, ready to be written out or provisioned.
func Files() fs.FS { return files }

// Query is one PromQL expression of a dashboard, as Grafana stores it. Panel is
// empty for an annotation's.
type Query struct {
	Panel string
	Expr  string
	// Labels are the labels that its legend and its links want of every series.
	Labels []string
}

// Queries lists the expressions of a dashboard's panels and annotations in order.
func Queries(dashboard []byte) ([]Query, error) {
	b, err := parse(dashboard)
	if err != nil {
		return nil, err
	}
	var out []Query
	for _, p := range b.panels() {
		for _, t := range p.Targets {
			out = append(out, Query{Panel: p.Title, Expr: t.Expr, Labels: p.labels(t.RefID, t.Legend)})
		}
	}
	for _, a := range b.Annotations.List {
		if a.Expr != "" {
			out = append(out, Query{Expr: a.Expr})
		}
	}
	return out, nil
}

// labelUse is how a legend ({{rack_id}}) and a link (${__field.labels.rack_id},
// ${__data.fields.rack_id}) name a label.
var labelUse = regexp.MustCompile(`\{\{ *([a-zA-Z_]+) *\}\}|\$\{__(?:field\.labels|data\.fields)\.([a-zA-Z_]+)\}`)

// labels are those that the legend of a target and the links on its series use. The
// rows of a table of several targets are one: the first must have them.
func (p panel) labels(ref, legend string) []string {
	if p.Type == "table" && ref != p.Targets[0].RefID {
		return nil
	}
	text := legend
	for _, k := range p.FieldConfig.Defaults.Links {
		text += " " + k.URL
	}
	for _, o := range p.FieldConfig.Overrides {
		if !p.fits(o, ref) {
			continue
		}
		for _, prop := range o.Properties {
			if prop.ID == "links" {
				text += " " + string(prop.Value)
			}
		}
	}
	set := map[string]bool{}
	for _, m := range labelUse.FindAllStringSubmatch(text, -1) {
		set[m[1]+m[2]] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// fits tells whether an override is for the values of a target.
func (p panel) fits(o override, ref string) bool {
	field := "Value"
	if len(p.Targets) > 1 {
		field = "Value #" + ref
	}
	return o.Matcher.ID == "byFrameRefID" && o.Matcher.Options == ref || o.Matcher.ID == "byName" && o.Matcher.Options == field
}

// Substitute replaces the dashboard's variables by what "All" stands for, and
// Grafana's own intervals by those given, so that an expression can be sent to
// Prometheus as it is. Intervals are PromQL durations such as 1m.
func Substitute(dashboard []byte, expr, rateInterval, timeRange string) (string, error) {
	b, err := parse(dashboard)
	if err != nil {
		return "", err
	}
	return b.substitute(expr, rateInterval, timeRange), nil
}

// board is what is looked at of a dashboard.
type board struct {
	UID         string      `json:"uid"`
	Title       string      `json:"title"`
	Editable    *bool       `json:"editable"` // Grafana takes a missing one for true
	Inputs      any         `json:"__inputs"`
	Links       []link      `json:"links"`
	Panels      []panel     `json:"panels"`
	Templating  templating  `json:"templating"`
	Annotations annotations `json:"annotations"`
}

type templating struct {
	List []variable `json:"list"`
}

type annotations struct {
	List []struct {
		Name       string     `json:"name"`
		Datasource datasource `json:"datasource"`
		Expr       string     `json:"expr"`
	} `json:"list"`
}

type link struct {
	Title string   `json:"title"`
	Type  string   `json:"type"`
	URL   string   `json:"url"`
	Tags  []string `json:"tags"`
}

type panel struct {
	ID          int        `json:"id"`
	Type        string     `json:"type"`
	Title       string     `json:"title"`
	Description string     `json:"description"`
	Datasource  datasource `json:"datasource"`
	GridPos     grid       `json:"gridPos"`
	Targets     []struct {
		RefID      string     `json:"refId"`
		Expr       string     `json:"expr"`
		Legend     string     `json:"legendFormat"`
		Datasource datasource `json:"datasource"`
	} `json:"targets"`
	FieldConfig struct {
		Defaults struct {
			Unit  string `json:"unit"`
			Links []link `json:"links"`
		} `json:"defaults"`
		Overrides []override `json:"overrides"`
	} `json:"fieldConfig"`
	Links  []link  `json:"links"`
	Panels []panel `json:"panels"` // of a collapsed row
}

type grid struct{ X, Y, W, H int }

// override is a change of the field options for some fields.
type override struct {
	Matcher struct {
		ID      string `json:"id"`
		Options any    `json:"options"`
	} `json:"matcher"`
	Properties []struct {
		ID    string          `json:"id"`
		Value json.RawMessage `json:"value"`
	} `json:"properties"`
}

// datasource is a reference, written as an object; old dashboards have a name.
type datasource struct{ Type, UID string }

// UnmarshalJSON takes both forms.
func (d *datasource) UnmarshalJSON(data []byte) error {
	type plain datasource
	if json.Unmarshal(data, (*plain)(d)) != nil {
		return json.Unmarshal(data, &d.UID)
	}
	return nil
}

type variable struct {
	Name       string          `json:"name"`
	Type       string          `json:"type"`
	Query      json.RawMessage `json:"query"`
	Datasource datasource      `json:"datasource"`
	Refresh    int             `json:"refresh"`
	IncludeAll bool            `json:"includeAll"`
	AllValue   string          `json:"allValue"`
}

// text is the variable's query, which is a string or an object that holds it.
func (v variable) text() string {
	var s string
	if json.Unmarshal(v.Query, &s) == nil {
		return s
	}
	var o struct {
		Query string `json:"query"`
	}
	_ = json.Unmarshal(v.Query, &o) // neither form: no query
	return o.Query
}

func parse(data []byte) (*board, error) {
	b := &board{}
	if err := json.Unmarshal(data, b); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	return b, nil
}

// panels are all panels that show something, those of rows included.
func (b *board) panels() []panel {
	var out []panel
	for _, p := range b.Panels {
		if p.Type == "row" {
			out = append(out, p.Panels...)
		} else {
			out = append(out, p)
		}
	}
	return out
}

// chosen says whether a data source is a variable, so that the reader chooses it.
func (b *board) chosen(d datasource) bool {
	name, ok := strings.CutPrefix(d.UID, "$")
	if !ok {
		return false
	}
	v := b.variable(strings.TrimSuffix(strings.TrimPrefix(name, "{"), "}"))
	return v != nil && v.Type == "datasource"
}

func (b *board) variable(name string) *variable {
	for i := range b.Templating.List {
		if b.Templating.List[i].Name == name {
			return &b.Templating.List[i]
		}
	}
	return nil
}

// substitute puts values in place of variables.
func (b *board) substitute(expr, rateInterval, timeRange string) string {
	return b.substituteAs(expr, rateInterval, timeRange, func(all string) string { return all })
}

// variableUse is how an expression names a variable: $rack_id, ${rack_id}, or with a
// format, ${rack_id:regex}.
var variableUse = regexp.MustCompile(`\$\{(\w+)(?::\w+)?\}|\$(\w+)`)

// substituteAs is substitute with another form for the values of All.
func (b *board) substituteAs(expr, rateInterval, timeRange string, form func(all string) string) string {
	values := map[string]string{
		"__rate_interval": rateInterval, "__range": timeRange,
		"__interval": "15s", "__interval_ms": "15000", "__range_s": "3600", "__range_ms": "3600000",
	}
	for _, v := range b.Templating.List {
		values[v.Name] = form(v.AllValue)
	}
	return variableUse.ReplaceAllStringFunc(expr, func(use string) string {
		m := variableUse.FindStringSubmatch(use)
		if value, ok := values[m[1]+m[2]]; ok {
			return value
		}
		return use
	})
}
