// SPDX-License-Identifier: Apache-2.0

package dashboards

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// Stand-ins for Grafana's intervals, odd so that they are told from fixed ones.
const (
	rateStandIn, rangeStandIn   = "61s", "3601s"
	rateStandInD, rangeStandInD = 61 * time.Second, 3601 * time.Second
	// longWindow is from where on a fixed window is a choice of its own and not
	// one that breaks with the scrape interval: PUE is a mean of 15 minutes.
	longWindow = 10 * time.Minute
)

// followed is the value of All as no expression writes it itself, so that a
// selector that follows the variable is told from one that does not.
func followed(all string) string { return "(" + all + ")" }

func parsePromQL(expr string) (parser.Expr, error) {
	return parser.NewParser(parser.Options{}).ParseExpr(expr)
}

// expr checks one expression and returns it; nil where it does not parse.
func (l *linter) expr(b *board, expr string) parser.Expr {
	text := b.substituteAs(expr, rateStandIn, rangeStandIn, followed)
	if i := strings.IndexByte(text, '$'); i >= 0 {
		l.add("target-promql", "unknown variable at %.20q in %s", text[i:], expr)
		return nil
	}
	tree, err := parsePromQL(text)
	if err != nil {
		l.add("target-promql", "%v in %s", err, expr)
		return nil
	}
	l.metrics(tree)
	parser.Inspect(tree, func(node parser.Node, path []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			l.bound(b, n)
			l.counter(n, path)
		case *parser.Call:
			l.window(n)
		case *parser.BinaryExpr:
			l.join(n)
		}
		return nil
	})
	return tree
}

// metrics holds that every metric exists.
func (l *linter) metrics(tree parser.Expr) {
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		if sel, ok := node.(*parser.VectorSelector); ok && !l.known.has(sel.Name) {
			l.add("metric-known", "metric %q does not exist", sel.Name)
		}
		return nil
	})
}

// bound holds that a selector follows the variables site and rack_id of its
// dashboard, as far as the metric has these labels.
func (l *linter) bound(b *board, sel *parser.VectorSelector) {
	for _, name := range []string{"site", "rack_id"} {
		has := name == "site" || slices.Contains(l.known[sel.Name], name)
		if !has || b.variable(name) == nil {
			continue
		}
		all := followed(b.variable(name).AllValue)
		if !slices.ContainsFunc(sel.LabelMatchers, func(m *labels.Matcher) bool {
			return m.Name == name && m.Type == labels.MatchRegexp && m.Value == all
		}) {
			l.add("target-rack", `%s does not filter %s=~"$%s"`, sel.Name, name, name)
		}
	}
}

// overTime are the functions that make sense of a counter.
var overTime = []string{"rate", "irate", "increase", "resets"}

// counter holds that a counter is read as a rate. DCGM's names end in _TOTAL
// where they are gauges, and are not looked at.
func (l *linter) counter(sel *parser.VectorSelector, path []parser.Node) {
	if !strings.HasSuffix(sel.Name, "_total") {
		return
	}
	for _, node := range path {
		switch n := node.(type) {
		case *parser.Call:
			if slices.Contains(overTime, n.Func.Name) {
				return
			}
		case *parser.AggregateExpr:
			if counts(n) {
				return // how many there are, whatever they say
			}
		}
	}
	l.add("target-counter-agg", "counter %s is shown without rate or increase", sel.Name)
}

func counts(n *parser.AggregateExpr) bool {
	return n.Op == parser.COUNT || n.Op == parser.GROUP || n.Op == parser.COUNT_VALUES
}

// window holds that rates go with the scrape interval.
func (l *linter) window(call *parser.Call) {
	if !slices.Contains(overTime, call.Func.Name) {
		return
	}
	if m, ok := call.Args[0].(*parser.MatrixSelector); ok && m.Range != rateStandInD && m.Range != rangeStandInD && m.Range < longWindow {
		l.add("target-rate-interval", "%s over %s: use [$__rate_interval], or 10m and more", call.Func.Name, m.Range)
	}
}

// join holds that what is joined on rack_id has one: two series that both lack
// it match each other.
func (l *linter) join(n *parser.BinaryExpr) {
	if n.VectorMatching == nil || !n.VectorMatching.On || !slices.Contains(n.VectorMatching.MatchingLabels, "rack_id") {
		return
	}
	parser.Inspect(n, func(node parser.Node, _ []parser.Node) error {
		sel, ok := node.(*parser.VectorSelector)
		if ok && !slices.ContainsFunc(sel.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == "rack_id" && !m.Matches("") }) {
			l.add("join-guard", `%s is joined on rack_id and may lack it; add rack_id!=""`, sel.Name)
		}
		return nil
	})
}

// suffixUnits are Grafana's units by the unit in a metric's name; the longest
// suffix counts.
var suffixUnits = []struct {
	suffix string
	units  []string
}{
	{"_timestamp_seconds", []string{"dateTimeAsIso", "dateTimeFromNow", "dateTimeAsSystem"}},
	{"_celsius", []string{"celsius"}}, {"_ampere", []string{"amp"}}, {"_volt", []string{"volt"}}, {"_watt", []string{"watt"}},
	{"_ratio", []string{"percentunit"}}, {"_bytes", []string{"bytes", "decbytes"}}, {"_speed_bytes", []string{"Bps", "binBps"}},
	{"_seconds", []string{"s"}}, {"_joules", []string{"joule"}}, {"_up", []string{"bool", "bool_yes_no", "bool_on_off", "short", "none"}},
	{"DCGM_FI_DEV_GPU_TEMP", []string{"celsius"}}, {"DCGM_FI_DEV_MEMORY_TEMP", []string{"celsius"}},
	{"DCGM_FI_DEV_POWER_USAGE", []string{"watt"}}, {"DCGM_FI_DEV_POWER_MGMT_LIMIT", []string{"watt"}},
	{"DCGM_FI_DEV_GPU_UTIL", []string{"percent"}}, {"DCGM_FI_DEV_FAN_SPEED", []string{"percent"}},
	{"DCGM_FI_DEV_FB_USED", []string{"mbytes"}}, {"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", []string{"MiBs"}},
	{"DCGM_FI_PROF_PCIE_TX_BYTES", []string{"Bps"}}, {"DCGM_FI_PROF_PCIE_RX_BYTES", []string{"Bps"}},
	{"DCGM_FI_PROF_GR_ENGINE_ACTIVE", []string{"percentunit"}}, {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", []string{"percentunit"}},
}

// units are Grafana's units that a rack, its nodes and a store of series need. Grafana
// shows one that it does not know as a word behind the number.
var units = []string{
	"none", "short", "bool", "bool_yes_no", "bool_on_off", "percent", "percentunit", "string", "sishort",
	"celsius", "fahrenheit", "kelvin", "watt", "kwatt", "mwatt", "megwatt", "voltamp", "kvoltamp", "amp", "mamp", "volt", "kvolt", "joule", "watth", "kwatth", "wattm2",
	"bytes", "decbytes", "kbytes", "deckbytes", "mbytes", "decmbytes", "gbytes", "decgbytes", "bits", "decbits",
	"Bps", "binBps", "KiBs", "KBs", "MiBs", "MBs", "GiBs", "GBs", "bps", "binbps", "Kbits", "Mbits", "Gbits",
	"s", "ms", "µs", "ns", "m", "h", "d", "dtdurations", "dtdurationms", "dateTimeAsIso", "dateTimeFromNow", "dateTimeAsSystem",
	"hertz", "rothz", "rotrpm", "humidity", "ops", "reqps", "rps", "cps", "cpm", "opm", "rpm", "wpm", "eps", "wps", "mps", "pps", "iops", "lengthm", "lengthmm", "degree", "pressurepsi", "pressurepa", "flowcms", "litreh", "pressurekpa", "pressurebar",
}

// knownUnit tells whether Grafana has a unit: one of its list, a currency, or one of
// its own making such as suffix:GPUs.
func knownUnit(unit string) bool {
	return slices.Contains(units, unit) || strings.Contains(unit, ":") || strings.HasPrefix(unit, "currency")
}

// perSecond are the units of the rate of a counter, by the unit in its name.
var perSecond = map[string][]string{
	"_bytes": {"Bps", "binBps"}, "_joules": {"watt"}, "_seconds": {"percentunit"},
}

// unit holds that a value is shown in the unit that its metric's name tells.
func (l *linter) unit(tree parser.Expr, shown string) {
	if want := unitsOf(tree); shown != "" && len(want) > 0 && !slices.Contains(want, shown) {
		l.add("unit-right", "%s is shown in %q, want %s", tree, shown, strings.Join(want, " or "))
	}
}

// unitsOf are the units in which an expression may be shown; none: it cannot be
// told.
func unitsOf(expr parser.Expr) []string {
	switch n := expr.(type) {
	case *parser.VectorSelector:
		return selectorUnits(n.Name)
	case *parser.ParenExpr:
		return unitsOf(n.Expr)
	case *parser.SubqueryExpr:
		return unitsOf(n.Expr)
	case *parser.AggregateExpr:
		if counts(n) {
			return []string{"short", "none"}
		}
		return unitsOf(n.Expr)
	case *parser.Call:
		return callUnits(n)
	case *parser.BinaryExpr:
		return binaryUnits(n)
	}
	return nil
}

func selectorUnits(name string) []string {
	best, units := 0, []string(nil)
	if strings.Contains(name, ":") {
		return nil // what a rule recorded may be called anything
	}
	for _, s := range suffixUnits {
		if strings.HasSuffix(name, s.suffix) && len(s.suffix) > best {
			best, units = len(s.suffix), s.units
		}
	}
	return units
}

func callUnits(n *parser.Call) []string {
	if len(n.Args) != 1 {
		return nil
	}
	matrix, ok := n.Args[0].(*parser.MatrixSelector)
	if strings.HasSuffix(n.Func.Name, "_over_time") && n.Func.Name != "count_over_time" {
		if ok {
			return unitsOf(matrix.VectorSelector)
		}
		return unitsOf(n.Args[0])
	}
	if !ok || !slices.Contains(overTime, n.Func.Name) {
		return nil
	}
	sel, ok := matrix.VectorSelector.(*parser.VectorSelector)
	if !ok {
		return nil
	}
	name := strings.TrimSuffix(sel.Name, "_total")
	for suffix, units := range perSecond {
		if strings.HasSuffix(name, suffix) && strings.HasSuffix(n.Func.Name, "rate") {
			return units
		}
	}
	return selectorUnits(name)
}

func binaryUnits(n *parser.BinaryExpr) []string {
	left, right := unitsOf(n.LHS), unitsOf(n.RHS)
	switch {
	case n.ReturnBool:
		return []string{"bool", "bool_yes_no", "bool_on_off", "short", "none"}
	case n.Op.IsComparisonOperator(), n.Op.IsSetOperator():
		return left
	case n.Op == parser.ADD || n.Op == parser.SUB:
		return differenceUnits(n, left, right)
	case n.Op == parser.DIV && len(left) > 0 && slices.Equal(left, right):
		return []string{"percentunit", "none"}
	}
	return nil
}

// differenceUnits are those of a sum or a difference: of two times seconds, of two
// equal units the same, of a number and a ratio a ratio.
func differenceUnits(n *parser.BinaryExpr, left, right []string) []string {
	if call, ok := n.LHS.(*parser.Call); ok && call.Func.Name == "time" && slices.Contains(right, "dateTimeAsIso") {
		return []string{"s"}
	}
	if slices.Equal(left, right) {
		return left
	}
	if _, ok := n.LHS.(*parser.NumberLiteral); ok && slices.Contains(right, "percentunit") {
		return right
	}
	return nil
}
