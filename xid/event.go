// SPDX-License-Identifier: Apache-2.0

package xid

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Kind is the form of an event.
type Kind string

// The kinds.
const (
	KindXID        Kind = "xid"
	KindSXid       Kind = "sxid"        // of an NVSwitch
	KindOffBus     Kind = "off-bus"     // GPU has fallen off the bus, without a number
	KindInitFailed Kind = "init-failed" // the driver could not start the GPU
)

const (
	// RecoveryCode is the XID by which the driver says what the GPU needs now.
	RecoveryCode = 154
	// OffBusCode is the XID of a GPU that left the bus.
	OffBusCode   = 79
	maxLine      = 8 << 10 // bytes of a line that are looked at; printk cuts at about 1 KiB
	maxEventText = 512     // bytes of text that an event keeps
)

// Event is one line of a kernel log that tells of a GPU's or NVSwitch's fault.
type Event struct {
	Kind Kind `json:"kind"`
	Code int  `json:"code,omitempty"` // 0 for a line without a number
	// Time is zero when the line has none; year 0 when it has no year. A time
	// without a zone counts as UTC.
	Time time.Time `json:"time,omitzero"`
	// Uptime is the time since boot; nil when the line has none.
	Uptime *time.Duration `json:"uptime_ns,omitempty"`
	// PCI is like 00000000:1A:00.0; empty when the line does not say.
	PCI string `json:"pci,omitempty"`
	// Device is the name of a switch, for example nvidia-nvswitch2.
	Device string `json:"device,omitempty"`
	// Instance is the MIG GPU instance; nil when there is none.
	Instance *int   `json:"gpu_instance,omitempty"`
	PID      int    `json:"pid,omitempty"` // 0 when unknown
	Process  string `json:"process,omitempty"`
	// Word is Fatal or Non-fatal where an SXid says so.
	Word string `json:"word,omitempty"`
	// Detail says that the line adds to the SXid of the line before: its severity
	// and registers.
	Detail bool `json:"detail,omitempty"`
	// Recovery is what XID 154 says is needed now, for example "GPU Reset Required".
	Recovery string `json:"recovery,omitempty"`
	// Driver is the version of the node's driver where it is known, for example
	// "570.124.06"; a Scanner takes it from the log.
	Driver string `json:"driver,omitempty"`
	// CausedBy is the XID that the line names as its cause, or 0.
	CausedBy int     `json:"caused_by,omitempty"`
	NVLink   *NVLink `json:"nvlink,omitempty"`
	// Text is the rest of the message, printable and cut to 512 bytes.
	Text string `json:"text,omitempty"`
}

var (
	xidForm = regexp.MustCompile(`(?s)^Xid \((?:PCI:)?([0-9A-Fa-f:.]{5,20})(?: GPU-I:(\d{1,3}))?[^)]{0,64}\)[^:]{0,64}: (\d{1,5})(?:, ?(.*)|\s*)$`)
	sxForm  = regexp.MustCompile(`(?s)^(nvidia-nvswitch\d{1,4}): SXid \((?:PCI:)?([0-9A-Fa-f:.]{5,20})\): (\d{1,5})(?:, ?(.*)|\s*)$`)
	sxMore  = regexp.MustCompile(`^(Severity \d|Data \{)`)
	sxWord  = regexp.MustCompile(`^(Fatal|Non-fatal|Nonfatal)\b`)
	pidForm = regexp.MustCompile(`^pid=(?:(\d{1,10})|'?<?unknown>?'?),? ?(?:name=([^,]{0,64}),? ?)?`)
	cause   = regexp.MustCompile(`caused by previous Xid (\d{1,5})`)
	action  = regexp.MustCompile(`^GPU recovery action changed from 0x[0-9a-fA-F]{1,8} \(([^)]{0,64})\) to 0x[0-9a-fA-F]{1,8} \(([^)]{0,64})\)`)

	pciForm = regexp.MustCompile(`^(?:([0-9A-Fa-f]{1,8}):)?([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.([0-7]))?$`)
	gpuForm = regexp.MustCompile(`^(?:The NVIDIA )?GPU (?:at )?(?:PCI:)?([0-9A-Fa-f:.]{5,20}?):?(?:\s|$|\\)`)
	noXid   = []struct {
		text string
		kind Kind
	}{
		{"fallen off the bus", KindOffBus},
		{"RmInitAdapter failed", KindInitFailed},
		{"rm_init_adapter failed", KindInitFailed},
		{"rm_init_adapter(", KindInitFailed},
		{"RmInitAdapter: Cannot initialize GSP firmware", KindInitFailed},
		{"osInitNvMapping: *** Cannot attach gpu", KindInitFailed},
		{"bailing out of RmInitAdapter", KindInitFailed},
	}
)

// Parse reads one line of dmesg, /dev/kmsg, a journal (text or JSON) or syslog.
// It is false for every other line, also for one that a program other than the
// kernel wrote. Only the first 8 KiB of a line are looked at.
func Parse(line string) (Event, bool) {
	msg, e, ok := header(line)
	if !ok {
		return Event{}, false
	}
	if rest, is := strings.CutPrefix(msg, "NVRM: "); is {
		ok = e.nvrm(strings.TrimSpace(rest))
	} else {
		ok = e.nvswitch(msg)
	}
	if !ok {
		return Event{}, false
	}
	return e, true
}

// header takes the time from a line and returns the driver's message.
func header(line string) (string, Event, bool) {
	if len(line) > maxLine {
		line = line[:maxLine]
	}
	line = strings.TrimRight(line, "\r\n")
	e := Event{}
	if strings.HasPrefix(line, "{") {
		if line, e.Time = journalJSON(line); line == "" {
			return "", e, false
		}
	}
	start := strings.Index(line, "NVRM: ")
	if sw := strings.Index(line, "nvidia-nvswitch"); start < 0 || sw >= 0 && sw < start {
		start = sw
	}
	if start < 0 || !prefix(line[:start], &e) {
		return "", e, false
	}
	return line[start:], e, true
}

func (e *Event) nvrm(msg string) bool {
	if i := strings.Index(msg, "NVRM: Xid ("); i > 0 { // a message of several lines
		msg = msg[i+len("NVRM: "):]
	}
	m := xidForm.FindStringSubmatch(msg)
	if m == nil {
		return e.withoutNumber(msg)
	}
	e.Kind = KindXID
	var ok bool
	if e.PCI, ok = NormalizePCI(m[1]); !ok {
		return false
	}
	if m[2] != "" {
		instance, _ := strconv.Atoi(m[2]) // at most three digits
		e.Instance = &instance
	}
	e.Code, _ = strconv.Atoi(m[3]) // at most five digits
	text := m[4]
	if p := pidForm.FindStringSubmatch(text); p != nil {
		e.PID, _ = strconv.Atoi(p[1])
		if !strings.Contains(p[2], "<unknown>") {
			e.Process = printable(p[2])
		}
		text = text[len(p[0]):]
	}
	e.details(text)
	return e.Code > 0
}

// details reads what only some codes have.
func (e *Event) details(text string) {
	if m := cause.FindStringSubmatch(text); m != nil {
		e.CausedBy, _ = strconv.Atoi(m[1])
	}
	switch {
	case e.Code == RecoveryCode:
		if m := action.FindStringSubmatch(text); m != nil {
			e.Recovery = printable(m[2])
		}
	case e.Code >= 144 && e.Code <= 150:
		e.NVLink = parseNVLink(text)
	}
	e.Text = printable(text)
}

// withoutNumber reads the forms that have no XID number.
func (e *Event) withoutNumber(msg string) bool {
	for _, form := range noXid {
		if strings.Contains(msg, form.text) {
			e.Kind = form.kind
			if m := gpuForm.FindStringSubmatch(msg); m != nil {
				e.PCI, _ = NormalizePCI(m[1])
			}
			e.Text = printable(msg)
			return true
		}
	}
	return false
}

func (e *Event) nvswitch(msg string) bool {
	m := sxForm.FindStringSubmatch(msg)
	if m == nil {
		return false
	}
	var ok bool
	if e.PCI, ok = NormalizePCI(m[2]); !ok {
		return false
	}
	e.Kind, e.Device = KindSXid, m[1]
	e.Code, _ = strconv.Atoi(m[3]) // at most five digits
	e.Word = sxWord.FindString(m[4])
	e.Detail = sxMore.MatchString(m[4])
	e.Text = printable(m[4])
	return e.Code > 0
}

// NormalizePCI brings a PCI address to NVML's form 00000000:1A:00.0. The domain
// and the function may be missing and then are 0.
func NormalizePCI(s string) (string, bool) {
	m := pciForm.FindStringSubmatch(s)
	if m == nil {
		return "", false
	}
	domain, _ := strconv.ParseUint("0"+m[1], 16, 64) // at most eight digits
	function := m[4]
	if function == "" {
		function = "0"
	}
	return fmt.Sprintf("%08X:%s:%s.%s", domain, strings.ToUpper(m[2]), strings.ToUpper(m[3]), function), true
}

// printable cuts a text of the log and makes it safe for a terminal: the name
// of a process is anything its owner likes.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.TrimSpace(s))
	if len(s) > maxEventText {
		s = strings.TrimSpace(strings.ToValidUTF8(s[:maxEventText], ""))
	}
	return s
}
