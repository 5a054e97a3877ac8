// SPDX-License-Identifier: Apache-2.0

package xid

import (
	"fmt"
	"slices"
	"strings"
)

// Verdict is what the catalogue says about one event.
type Verdict struct {
	Known    bool     `json:"known"`
	Name     string   `json:"name"`
	Severity Severity `json:"severity,omitempty"` // empty when unknown
	Action   []string `json:"action,omitempty"`   // empty when unknown
	Why      string   `json:"why,omitempty"`      // what decided, when it was not the code alone
}

// Judge says how bad an event is and what to do. Words of the line (the text of
// XID 154, Fatal or Non-fatal) decide before the table. Without Event.Driver the
// registers of 144 to 150 may be of either layout.
func (c *Catalogue) Judge(e Event) Verdict {
	switch e.Kind {
	case KindSXid:
		return c.judgeSXid(e)
	case KindOffBus, KindInitFailed:
		return verdict(c.lines[string(e.Kind)], "")
	}
	entry, known := c.xids[e.Code]
	if !known {
		return Verdict{Name: fmt.Sprintf("unknown XID %d", e.Code)}
	}
	switch {
	case e.Code == RecoveryCode:
		if r, ok := c.recovery[strings.ToLower(e.Recovery)]; ok {
			return verdict(r, "the driver's text")
		}
	case e.NVLink != nil:
		return c.judgeNVLink(e, entry)
	}
	return verdict(entry, "")
}

// JudgeEpisode says how bad an episode is: as bad as its worst event. What to do
// is what the driver asks for in XID 154, else what the worst event asks for.
func (c *Catalogue) JudgeEpisode(ep Episode) Verdict {
	v := c.Judge(ep.Worst)
	if ep.Recovery == nil {
		return v
	}
	if r := c.Judge(*ep.Recovery); r.Why != "" {
		v.Action, v.Why = r.Action, r.Why
	}
	return v
}

// worse says whether a is worse than b; an unknown severity is the least.
func worse(a, b Severity) bool {
	rank := func(s Severity) int {
		if i := slices.Index(severities, s); i >= 0 {
			return i
		}
		return len(severities)
	}
	return rank(a) < rank(b)
}

func verdict(e Entry, why string) Verdict {
	return Verdict{Known: true, Name: e.Name, Severity: e.Severity, Action: e.Action, Why: why}
}

func (c *Catalogue) judgeSXid(e Event) Verdict {
	entry, known := c.sxids[e.Code]
	v := verdict(entry, "")
	if !known {
		v = Verdict{Name: fmt.Sprintf("unknown SXid %d", e.Code)}
	}
	switch e.Word {
	case "Fatal":
		v.Severity, v.Action, v.Why = Critical, []string{"CHECK_FABRIC"}, "the line says Fatal"
	case "Non-fatal", "Nonfatal":
		v.Severity, v.Action, v.Why = Warning, []string{"CHECK_FABRIC"}, "the line says Non-fatal"
	}
	return v
}

func (c *Catalogue) judgeNVLink(e Event, entry Entry) Verdict {
	v := verdict(entry, "the line says "+e.NVLink.Word)
	then, look := "none", []string(nil)
	if e.NVLink.fatal() {
		then = "reset"
	}
	for i := range c.nvlink5 {
		if r := &c.nvlink5[i]; r.matches(e.Code, e.NVLink, branch(e.Driver)) {
			then, look, v.Why = r.Then, r.Look, "the registers"
			break
		}
	}
	switch then {
	case "none":
		v.Severity, v.Action = Warning, []string{"NONE"}
		if len(look) > 0 {
			v.Action = nil
		}
	case "follow":
		v.Severity, v.Action, v.Why = Error, nil, v.Why+"; XID 154 says what to do"
	case "reset":
		v.Severity, v.Action = Critical, []string{"RESET_GPU"}
	}
	v.Action = slices.Concat(v.Action, look)
	if strings.Contains(strings.ToLower(e.Text), "thermal event") {
		v.Action = append(v.Action, "CHECK_COOLING")
	}
	return v
}
