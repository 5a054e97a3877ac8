// SPDX-License-Identifier: Apache-2.0

package xid

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The parts that may stand before the kernel's message, in any order.
var (
	kmsgPart     = regexp.MustCompile(`^[0-7],\d{1,20},(\d{1,18}),[^;]{0,64};`) // level, sequence, microseconds; 8 and more are programs
	levelPart    = regexp.MustCompile(`^<[0-7]>`)
	uptimePart   = regexp.MustCompile(`^\[ *(\d{1,10})\.(\d{6})\] ?`)
	callerPart   = regexp.MustCompile(`^\[ *[TC]\d{1,10}\] ?`)
	deltaPart    = regexp.MustCompile(`^\[[ <]*\+?\d{1,10}\.\d{6}>?\] ?`)
	bracketPart  = regexp.MustCompile(`^\[([A-Z][^\]]{8,30})\] ?`) // dmesg -T and -e
	facilityPart = regexp.MustCompile(`^kern +:[a-z]{3,6} *: `)    // dmesg -x
	isoPart      = regexp.MustCompile(`^(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))? ?(Z|UTC|[+-]\d\d:?\d\d)? ?`)
	syslogPart   = regexp.MustCompile(`^[\pL\d.]{2,16} (?:[ 0-3]\d|\d) \d\d:\d\d:\d\d(?:\.\d{1,9})? `) // the month in any language
	talosPart    = regexp.MustCompile(`^(?:[A-Za-z0-9._:-]{1,255}: )?kern: +[a-z]{3,7}: +\[([0-9T:.-]{19,29}Z)\]: `)
	unixPart     = regexp.MustCompile(`^(\d{9,11})\.(\d{6}) `)
	kernelPart   = regexp.MustCompile(`^(?:[A-Za-z0-9._-]{1,255} )?kernel(?:\[0\])?: ?`)
)

// prefix reads all of s, the part of a line before the message. It is false
// when something in it is not known: then the kernel may not have written it.
func prefix(s string, e *Event) bool {
	for s = strings.TrimLeft(s, " "); s != ""; s = strings.TrimLeft(s, " ") {
		n := timePart(s, e)
		if n == 0 {
			for _, part := range []*regexp.Regexp{levelPart, callerPart, deltaPart, facilityPart, kernelPart} {
				if n = len(part.FindString(s)); n > 0 {
					break
				}
			}
		}
		if n == 0 {
			return false
		}
		s = s[n:]
	}
	return true
}

// timePart reads a time at the start of s and returns its length, or 0.
func timePart(s string, e *Event) int {
	if m := kmsgPart.FindStringSubmatch(s); m != nil {
		e.setUptime(m[1], "")
		return len(m[0])
	}
	if m := uptimePart.FindStringSubmatch(s); m != nil {
		e.setUptime(m[1], m[2])
		return len(m[0])
	}
	if m := unixPart.FindStringSubmatch(s); m != nil {
		sec, _ := strconv.ParseInt(m[1], 10, 64) // at most eleven digits
		micro, _ := strconv.ParseInt(m[2], 10, 64)
		e.Time = time.Unix(sec, micro*1000).UTC()
		return len(m[0])
	}
	if m := isoPart.FindStringSubmatch(s); m != nil {
		return e.setTime(len(m[0]), m[1]+"T"+m[2]+fraction(m[3])+zone(m[4]), "2006-01-02T15:04:05Z07:00")
	}
	if m := syslogPart.FindString(s); m != "" {
		e.setTime(len(m), strings.TrimSpace(m), time.Stamp)
		return len(m) // a month in another language is no time, but no forgery either
	}
	if m := talosPart.FindStringSubmatch(s); m != nil {
		return e.setTime(len(m[0]), m[1], time.RFC3339Nano)
	}
	if m := bracketPart.FindStringSubmatch(s); m != nil {
		return e.setTime(len(m[0]), m[1], time.ANSIC, "Jan_2 15:04")
	}
	return 0
}

// setUptime takes seconds and microseconds, or microseconds alone.
func (e *Event) setUptime(whole, micro string) {
	n, _ := strconv.ParseInt(whole+micro, 10, 64) // at most 18 digits
	if n > int64(1<<63-1)/1000 {
		return
	}
	d := time.Duration(n) * time.Microsecond
	e.Uptime = &d
}

// setTime is n when one of the layouts fits, else 0. The first time of a line
// is the log's own and stays.
func (e *Event) setTime(n int, s string, layouts ...string) int {
	for _, layout := range layouts {
		if t, err := time.Parse(layout, s); err == nil {
			if e.Time.IsZero() {
				e.Time = t.UTC()
			}
			return n
		}
	}
	return 0
}

func fraction(digits string) string {
	if digits == "" {
		return ""
	}
	return "." + digits
}

func zone(s string) string {
	switch {
	case s == "", s == "UTC":
		return "Z"
	case len(s) == 5:
		return s[:3] + ":" + s[3:]
	}
	return s
}

// journalJSON reads a line of "journalctl -o json"; empty unless the kernel
// wrote the message. What programs write into /dev/kmsg has the kernel's
// transport, but not its facility, 0.
func journalJSON(line string) (string, time.Time) {
	var entry struct {
		Message   journalText `json:"MESSAGE"`
		Transport string      `json:"_TRANSPORT"`
		Ident     string      `json:"SYSLOG_IDENTIFIER"`
		Facility  string      `json:"SYSLOG_FACILITY"`
		Micros    string      `json:"__REALTIME_TIMESTAMP"`
	}
	if json.Unmarshal([]byte(line), &entry) != nil || entry.Transport != "" && entry.Transport != "kernel" {
		return "", time.Time{}
	}
	if entry.Transport == "" && entry.Ident != "kernel" || entry.Facility != "" && entry.Facility != "0" {
		return "", time.Time{}
	}
	var at time.Time
	if n, err := strconv.ParseInt(entry.Micros, 10, 64); err == nil && n > 0 {
		at = time.UnixMicro(n).UTC()
	}
	return string(entry.Message), at
}

// journalText is a field of a journal's JSON: a string, or the array of its
// bytes where it is not printable, as with the name of a process.
type journalText string

func (t *journalText) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err == nil {
		*t = journalText(s)
		return nil
	}
	var numbers []uint8Number
	if err := json.Unmarshal(data, &numbers); err != nil {
		return err
	}
	text := make([]byte, len(numbers))
	for i, n := range numbers {
		text[i] = byte(n)
	}
	*t = journalText(text)
	return nil
}

// uint8Number keeps encoding/json from taking a list of bytes for base64.
type uint8Number uint8
