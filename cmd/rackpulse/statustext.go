// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

func writeJSONLine(w io.Writer, value any) error { return json.NewEncoder(w).Encode(value) }

// write prints the screen.
func (st *screen) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "site %s  rack %s  %s\n", st.Site, orDash(st.Rack), st.At.Format("2006-01-02 15:04:05Z"))
	if len(st.Inlet) > 0 {
		fmt.Fprint(w, "\ninlet")
	}
	for _, s := range st.Inlet {
		fmt.Fprintf(w, "  %s %s", orDash(s.Position), measure(s.Celsius, "%.1f C"))
	}
	if len(st.Inlet) > 0 {
		fmt.Fprintln(w)
	}
	if st.Rack != "" {
		fmt.Fprintf(w, "power  %s", measure(st.PowerWatts, "%.0f W"))
		if st.LimitWatts > 0 {
			fmt.Fprintf(w, " of %.0f W", st.LimitWatts)
		}
		fmt.Fprintln(w)
	}
	if len(st.Units) > 0 {
		fmt.Fprint(w, "cooling")
	}
	for _, u := range st.Units {
		fmt.Fprintf(w, "  %s %s", u.Unit, word(u.Up, "runs", "STOPPED"))
	}
	if len(st.Units) > 0 {
		fmt.Fprintln(w)
	}
	if len(st.PDUs) > 0 {
		fmt.Fprintln(w, "\nPDU\tFEED\tMANAGEMENT\tPOWER\tCURRENT\tRATED")
	}
	for _, p := range st.PDUs {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", p.PDU, orDash(p.Feed), word(p.Answers, "answers", "SILENT"),
			measure(p.Watts, "%.0f W"), measure(p.Amperes, "%.1f A"), measure(&p.Rated, "%.0f A"))
	}
	fmt.Fprintln(w, "\nNODE\tLEASE\tPORT\tLINK\tFLAPS 15M\tGPU\tSTATE\tTEMP\tPOWER\tUTIL\tTHROTTLE")
	for _, n := range st.Nodes {
		n.write(w)
	}
	fmt.Fprintln(w)
	st.writeAlerts(w)
	return w.Flush()
}

// writeAlerts prints what fires, or why that is not known.
func (st *screen) writeAlerts(w io.Writer) {
	switch {
	case st.From != "":
		fmt.Fprintf(w, "from %s\n", st.From)
	case len(st.Alerts) == 0:
		fmt.Fprintln(w, "no alert fires")
	}
	for _, p := range st.Problems {
		fmt.Fprintln(w, p)
	}
	for _, a := range st.Alerts {
		fmt.Fprintf(w, "%s  %s  %s  %s\n", a.Since.UTC().Format("15:04:05"), orDash(a.Severity), a.Alert, a.Summary)
	}
}

// write prints one node: a line for each of its GPUs or ports, whichever are more.
func (n *nodeStatus) write(w io.Writer) {
	lease := orDash(n.LeaseState)
	if n.LeaseUp != nil && !*n.LeaseUp {
		lease += " (lost)"
	}
	for i := range max(len(n.GPUs), len(n.Ports), 1) {
		cells := []string{"", "", "", "", "", "", "", "", "", "", ""}
		if i == 0 {
			cells[0], cells[1] = n.Node, lease
		}
		if i < len(n.Ports) {
			p := n.Ports[i]
			cells[2], cells[3], cells[4] = p.Port, word(p.Up, "up", "DOWN"), measure(p.Flaps, "%.0f")
		}
		if i < len(n.GPUs) {
			g := n.GPUs[i]
			cells[5], cells[6] = orDash(g.GPU), word(g.Up, "ok", "LOST")
			cells[7], cells[8], cells[9] = measure(g.Celsius, "%.0f C"), measure(g.Watts, "%.0f W"), measure(g.Percent, "%.0f %%")
			cells[10] = orDash(strings.Join(g.Throttles, ","))
		}
		fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
}

// measure formats a value; what is not known is a dash, never 0.
func measure(v *float64, format string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v)
}

func word(v *bool, yes, no string) string {
	switch {
	case v == nil:
		return "-"
	case *v:
		return yes
	}
	return no
}
