// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rackpulse/rackpulse/xid"
)

const (
	nothingFound  = exitCode(2)
	maxXIDEvents  = 200_000 // kept for the episodes
	maxOverrides  = 1 << 20 // bytes of a site's file
	undatedInList = "-"
)

// xidVerb explains codes and decodes kernel logs.
type xidVerb struct {
	codes     []string
	log       string
	isLog     bool
	overrides string
	driver    string
	asJSON    bool
	isSXid    bool
	catalogue *xid.Catalogue
}

func registerXID(app *kingpin.Application) []verb {
	v := &xidVerb{}
	cmd := app.Command("xid", "What an NVIDIA XID means and what to do; or decode a kernel log. Exit status 2: nothing found.")
	cmd.Arg("code", "XIDs.").StringsVar(&v.codes)
	cmd.Flag("sxid", "The codes are SXids of NVSwitches.").BoolVar(&v.isSXid)
	cmd.Flag("log", "Decode this output of dmesg or journalctl -k; - reads standard input.").PlaceHolder("FILE").IsSetByUser(&v.isLog).StringVar(&v.log)
	cmd.Flag("driver", "Driver of the node, such as 570.124.06, for the registers of 144 to 150; a log often says it.").StringVar(&v.driver)
	cmd.Flag("site-overrides", "YAML with the site's own severities and actions, in the shape of the catalogue.").PlaceHolder("FILE").StringVar(&v.overrides)
	cmd.Flag("json", "Print JSON.").BoolVar(&v.asJSON)
	return []verb{{cmd, v.run}}
}

func (v *xidVerb) run(_ context.Context, std stdio) error {
	if (len(v.codes) > 0) == v.isLog {
		return fmt.Errorf("xid: give either codes or --log")
	}
	if v.log == "" {
		v.log = "-" // kingpin takes a lone "-" for an empty argument
	}
	if err := v.load(); err != nil {
		return err
	}
	if v.isLog {
		return v.decode(std, time.Now())
	}
	return v.explain(std)
}

func (v *xidVerb) load() error {
	c, err := xid.Default()
	if err != nil {
		return err
	}
	if v.overrides != "" {
		f, err := os.Open(v.overrides)
		if err != nil {
			return err
		}
		defer f.Close()
		data, err := io.ReadAll(io.LimitReader(f, maxOverrides+1))
		if err != nil {
			return err
		}
		if c, err = c.Override(v.overrides, data); err != nil {
			return err
		}
	}
	v.catalogue = c
	return nil
}

// explained is one code in JSON; an unknown one has no entry.
type explained struct {
	Code  int        `json:"code"`
	Kind  xid.Kind   `json:"kind"`
	Known bool       `json:"known"`
	Entry *xid.Entry `json:"entry,omitempty"`
}

func (v *xidVerb) explain(std stdio) error {
	kind, title, lookup := xid.KindXID, "XID", v.catalogue.Lookup
	if v.isSXid {
		kind, title, lookup = xid.KindSXid, "SXid", v.catalogue.LookupSXid
	}
	var all []explained
	for _, arg := range v.codes {
		code, err := strconv.ParseUint(arg, 10, 31)
		if err != nil {
			return fmt.Errorf("xid: %q is no code", arg)
		}
		x := explained{Code: int(code), Kind: kind}
		if e, ok := lookup(x.Code); ok {
			x.Known, x.Entry = true, &e
		}
		all = append(all, x)
	}
	found := false
	for i, x := range all {
		found = found || x.Known
		if v.asJSON {
			continue
		}
		if i > 0 {
			fmt.Fprintln(std.out)
		}
		if !x.Known {
			fmt.Fprintf(std.out, "%s %d: unknown to this catalogue; look at the line in the kernel log and at NVIDIA's list\n", title, x.Code)
			continue
		}
		v.writeEntry(std.out, fmt.Sprintf("%s %d", title, x.Code), x.Entry)
	}
	if v.asJSON {
		if err := writeJSON(std.out, all); err != nil {
			return err
		}
	}
	if !found {
		return nothingFound
	}
	return nil
}

func (v *xidVerb) writeEntry(w io.Writer, title string, e *xid.Entry) {
	fmt.Fprintf(w, "%s: %s (%s)\n", title, e.Name, e.Severity)
	row := func(name, text string) {
		if text != "" {
			fmt.Fprintf(w, "  %-12s%s\n", name, text)
		}
	}
	actions := func(name string, keys []string) {
		for _, key := range keys {
			row(name, key+": "+v.catalogue.Action(key))
			name = ""
		}
	}
	row("meaning", e.Meaning)
	if e.Application {
		row("cause", "usually the application")
	} else if e.Consequence {
		row("cause", "usually another XID before it")
	}
	actions("do", e.Action)
	actions("repeated", e.IfRepeated)
	nvidia := strings.Trim(e.Immediate+", then "+e.Investigatory, ", ")
	row("NVIDIA", strings.TrimSuffix(strings.TrimPrefix(nvidia, "then "), ", then"))
	row("notes", e.Notes)
	if e.ChangedBy != "" {
		row("changed by", e.ChangedBy)
	}
	name := "sources"
	for _, key := range e.Sources {
		row(name, v.catalogue.Source(key))
		name = ""
	}
}

func writeJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(value)
}

// decoded is one event of a log with what it means.
type decoded struct {
	xid.Event
	Verdict xid.Verdict `json:"verdict"`
}

// episode is one episode with what it asks for.
type episode struct {
	xid.Episode
	Verdict xid.Verdict `json:"verdict"`
}

func (v *xidVerb) decode(std stdio, now time.Time) error {
	in := std.in
	if v.log != "-" {
		f, err := os.Open(v.log)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	s := xid.NewScanner(in, now)
	var events []xid.Event
	all := []decoded{}
	for s.Scan() {
		if len(events) == maxXIDEvents {
			return fmt.Errorf("%s: more than %d events; cut the log", v.log, maxXIDEvents)
		}
		e := s.Event()
		if v.driver != "" {
			e.Driver = v.driver
		}
		d := decoded{e, v.catalogue.Judge(e)}
		events, all = append(events, e), append(all, d)
		if !v.asJSON {
			writeEvent(std.out, d)
		}
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("%s: %w", v.log, err)
	}
	episodes := []episode{}
	for _, ep := range v.catalogue.Episodes(events) {
		episodes = append(episodes, episode{ep, v.catalogue.JudgeEpisode(ep)})
	}
	if v.asJSON {
		if err := writeJSON(std.out, map[string]any{"lines": s.Lines(), "events": all, "episodes": episodes}); err != nil {
			return err
		}
	} else if len(all) == 0 {
		fmt.Fprintf(std.out, "no XID in %d lines\n", s.Lines())
	} else if err := writeEpisodes(std.out, len(all), episodes); err != nil {
		return err
	}
	if len(all) == 0 {
		return nothingFound
	}
	return nil
}

func writeEvent(w io.Writer, d decoded) {
	process := ""
	switch {
	case d.Process != "":
		process = fmt.Sprintf(" [%s %d]", d.Process, d.PID)
	case d.PID != 0:
		process = fmt.Sprintf(" [pid %d]", d.PID)
	}
	where := orDash(d.PCI)
	if d.Device != "" {
		where += " " + d.Device
	}
	fmt.Fprintf(w, "%s  %s  %s  %s  %s: %s%s: %s\n", eventTime(d.Event), where, codeName(d.Kind, d.Code),
		orDash(string(d.Verdict.Severity)), d.Verdict.Name, orDash(strings.Join(d.Verdict.Action, " ")), process, d.Text)
}

func eventTime(e xid.Event) string {
	switch {
	case e.Time.Year() == 0:
		return e.Time.Format("01-02T15:04:05")
	case !e.Time.IsZero():
		return e.Time.UTC().Format("2006-01-02T15:04:05Z")
	case e.Uptime != nil:
		return fmt.Sprintf("+%.3fs", e.Uptime.Seconds())
	}
	return undatedInList
}

func codeName(kind xid.Kind, code int) string {
	switch kind {
	case xid.KindXID:
		return fmt.Sprintf("XID %d", code)
	case xid.KindSXid:
		return fmt.Sprintf("SXid %d", code)
	}
	return string(kind)
}

func writeEpisodes(w io.Writer, events int, episodes []episode) error {
	fmt.Fprintf(w, "\n%d events in %d episodes\n", events, len(episodes))
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "FROM\tTO\tGPU\tCAUSE\tSEVERITY\tDO\tLINES")
	for _, ep := range episodes {
		cause := codeName(ep.Cause.Kind, ep.Cause.Code)
		if ep.Consequence {
			cause = "unknown before " + cause
		}
		var lines []string
		for _, n := range ep.Counts {
			lines = append(lines, fmt.Sprintf("%s x%d", codeName(n.Kind, n.Code), n.Lines))
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", eventTime(ep.First), eventTime(ep.Last), orDash(strings.TrimSpace(ep.PCI+" "+ep.Device)),
			cause, orDash(string(ep.Verdict.Severity)), orDash(strings.Join(ep.Verdict.Action, " ")), strings.Join(lines, ", "))
	}
	return tw.Flush()
}
