// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/rackpulse/rackpulse/site"
)

// Bounds of what a hostile pack may cost.
const (
	hostileTime   = 2 * time.Second // of processor time
	hostileMemory = 256 << 20       // bytes, resident
)

// raced says that the race detector is on. What measures, or plays halls for
// minutes, does little under it; make test runs those tests once more without.
var raced bool

// playable tells whether a scenario is played: all are, but two under the race
// detector.
func playable(scenario string) bool {
	return !raced || scenario == "cooling-loss" || scenario == "load-only"
}

// hostile are packs of at most 1 MiB made to cost time or memory, by name: the
// file beside contract.yml, and a part of the message that refuses it.
func hostile() map[string][2]string {
	fans := func(old, replacement string) string {
		data, err := os.ReadFile("testdata/minipack/fans.yml")
		if err != nil || !strings.Contains(string(data), old) {
			panic(fmt.Sprintf("%v, %q", err, old))
		}
		return strings.Replace(string(data), old, replacement, 1)
	}
	const mib = 1<<20 - 3000
	fill := func(format string) string {
		var b strings.Builder
		for i := 0; b.Len() < mib; i++ {
			b.WriteString(strings.ReplaceAll(format, "#", fmt.Sprint(i)))
		}
		return b.String()
	}
	fill3 := func(line string) string { return strings.Join(strings.SplitAfterN(fill(line), "\n", 1999)[:1998], "") }
	bomb := "signals: []\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 12; i++ {
		bomb += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i, i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9), i-1)
	}
	inlet := `expr: '{{signal "inlet"}}'`
	return map[string][2]string{
		"alias bomb":           {bomb, "aliases (*a0) are not read in a pack"},
		"aliases of one value": {"signals: &a []\nx: [" + strings.Repeat("*a,", mib/3) + "]\n", "aliases (*a) are not read"},
		"merge keys":           {"a: &a {b: c}\n" + fill("k#: {<<: *a}\n"), "aliases (*a) are not read"},
		"nested lists":         {"signals: " + strings.Repeat("[", mib), "exceeded max depth"},
		"nested and closed":    {"signals: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000), "nested deeper than 20"},
		"nested blocks":        {fill("- "), "exceeded max depth"},
		"many small values":    {"signals:\n" + strings.Repeat("- \n", mib/3), "values in one file"},
		"many flow values":     {"signals: [" + strings.Repeat("a,", mib/2) + "]", "values in one file"},
		"many keys":            {fill("k#: 1\n"), "values in one file"},
		"100,000 signals":      {"signals:\n" + strings.Repeat("- {}\n", 100000), "values in one file"},
		"30,000 signals":       {"signals:\n" + fill("- {name: s#, level: rack, unit: u}\n"), "values in one file"},
		"9,000 signals":        {"signals:\n" + strings.Repeat("- {name: a, level: rack, unit: u, description: d, expr: x}\n", 9000), "9000 signals in one file, want at most 2000"},
		"2,000 wrong signals":  {"signals:\n" + strings.Repeat("- {name: a, level: shelf, unit: u, description: d, expr: x}\n", 2000), `unknown level "shelf"`},
		"one long text":        {"signals: [{name: " + strings.Repeat("a", mib) + "}]", "a text of 1045576 bytes"},
		"one long key":         {strings.Repeat("a", mib) + ": 1", "mapping values are not allowed"},
		"one long comment":     {"#" + strings.Repeat("a", mib), "empty"},
		"control characters":   {strings.Repeat("\x01", mib), "control characters are not allowed"},
		"long regex":           {fans(inlet, `expr: 'up{job=~"`+strings.Repeat("a|", mib/2)+`"}'`), "a text of 1045"},
		"regex of repeats":     {fans(inlet, `expr: 'up{job=~"((((a{1000}){1000}){1000}){1000})"}'`), "error parsing regexp"},
		"wide regex":           {fans(inlet, `expr: 'max by (site, rack_id) (up{job=~"`+strings.Repeat(`[a-z0-9]{1,90}`, 250)+`"})'`), ""},
		"open brackets":        {fans(inlet, "expr: "+strings.Repeat("(", 4000)), "more than 50 open brackets"},
		"signs":                {fans(inlet, "expr: '"+strings.Repeat("-", 4000)+"up'"), ""},
		"sums":                 {fans(inlet, "expr: up"+strings.Repeat("+up", 1300)), ""},
		"2,000 sums":           {"signals:\n" + fill3("- {name: s#, level: rack, unit: u, description: d, expr: up"+strings.Repeat("+up", 140)+"}\n"), "the expressions have"},
		"500 sums":             {"signals:\n" + strings.Join(strings.SplitAfterN(fill("- {name: s#, level: rack, unit: u, description: d, expr: up"+strings.Repeat("+up", 160)+"}\n"), "\n", 520)[:519], ""), ""},
		"subqueries":           {fans(inlet, "expr: up"+strings.Repeat("[1m:]", 800)), "signal inlet_hot"},
		"long expression":      {fans(inlet, "expr: up"+strings.Repeat("+up", 2000)), "an expression of 6002 bytes, want at most 4096"},
		"cycle of signals":     {chain(2000, true), "refers to itself"},
		"chain of signals":     {chain(2000, false), ""},
		"references":           {fans(inlet, "expr: '"+strings.Repeat(`{{signal "inlet"}}+`, 200)+"1'"), ""},
		"cyclic suppresses":    {fans("{alert: FanSlow, equal: [site, node]}", "{alert: NodeFanFault, equal: [site, node]}"), "mutes"},
		"many suppresses":      {fans("    - {alert: FanSlow, equal: [site, node]}\n", strings.Repeat("    - {alert: FanSlow, equal: [site, node]}\n", 5000)), "suppresses 5000 alerts, want at most 100"},
		"many unless":          {fans("  for: 1m", "  unless: ["+strings.Repeat("inlet,", 50000)+"]\n  for: 1m"), "branches and causes, want at most 100"},
		"many causes":          {fans("        - {signal: inlet_hot,", strings.Repeat("        - {signal: inlet_hot, role: required, weight: 0.5, lead: 5m}\n", 5000)+"        - {signal: inlet_hot,"), "5002 branches and causes"},
		"expressions of two":   {double(1900), ""},
		"tests with many series": {fans("over: {rack: [r01]}", "over: {rack: ["+strings.Repeat("r,", 1600)+"]}") +
			strings.Repeat("  - {name: x, branch: slow, at: 1m, over: {a: ["+strings.Repeat("r,", 300)+"]}, inputs: [{series: 'up{a=\"<a>\"}', bad: 1x40}]}\n", 150), "more than 5000 series"},
		"product of values": {fans("over: {rack: [r01]}", "over: {rack: ["+strings.Repeat("r,", 5000)+"], a: ["+strings.Repeat("r,", 5000)+"]}") +
			"  - {name: x, branch: slow, at: 1m, over: {a: [" + strings.Repeat("r,", 5000) + "], b: [" + strings.Repeat("r,", 5000) + "]}, inputs: [{series: 'up{a=\"<a>\",b=\"<b>\"}', bad: 1x40}]}\n", "more than 5000 series"},
		"long series":      {fans("bad: 0.1x40", "bad: 0.1x99999999999"), "more than 5000 samples"},
		"long test":        {fans("    at: 5m", "    at: 1000000h"), "at 1000000h0m0s, want at most 24h0m0s"},
		"template":         {fans("Fans of rack {{ $labels.rack_id }} are slow.", "'"+strings.Repeat("{{if .}}", 900)+"'"), "template: "},
		"templates nested": {fans("Fans of rack {{ $labels.rack_id }} are slow.", "'{{"+strings.Repeat("(", 3500)+"1"+strings.Repeat(")", 3500)+"}}'"), ""},
		"limit calls":      {fans("Fans of rack {{ $labels.rack_id }} are slow.", "'"+strings.Repeat(`{{limit "fan"}}`, 500)+"'"), `unknown limit "fan"`},
	}
}

// chain is a file of signals each of which reads the next one.
func chain(n int, closed bool) string {
	var b strings.Builder
	b.WriteString("signals:\n")
	for i := range n {
		expr := fmt.Sprintf(`{{signal "s%d"}}`, (i+1)%n)
		if i == n-1 && !closed {
			expr = "max by (site, rack_id) (up)"
		}
		fmt.Fprintf(&b, "- {name: s%d, level: rack, unit: u, description: d, expr: '%s'}\n", i, expr)
	}
	return b.String()
}

// double is a file of signals each of which reads the next one twice.
func double(n int) string {
	return regexp.MustCompile(`'(\{\{.*\}\})'`).ReplaceAllString(chain(n, false), `'$1 + on (site, rack_id) max by (site, rack_id) ($1)'`)
}

// TestHostilePacks reads and builds each hostile pack in a process of its own and
// holds what it cost, by the kernel's account.
func TestHostilePacks(t *testing.T) {
	for name, pack := range hostile() {
		if raced && name != "alias bomb" && name != "cyclic suppresses" {
			continue // these only run to be seen by the detector
		}
		t.Run(name, func(t *testing.T) {
			if len(pack[0]) > 1<<20 {
				t.Fatalf("%d bytes", len(pack[0]))
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHostileChild$")
			cmd.Env = append(os.Environ(), "HOSTILE_PACK="+name)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%.2000s", err, out)
			}
			usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
			spent := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
			message := strings.TrimSuffix(strings.TrimSuffix(string(out), "PASS\n"), "\n")
			t.Logf("%d bytes: %s, %d MiB: %.200s", len(pack[0]), spent.Round(time.Millisecond), usage.Maxrss>>10, message)
			if !raced && (spent > hostileTime || usage.Maxrss<<10 > hostileMemory) {
				t.Errorf("took %s and %d MiB, want at most %s and %d MiB", spent, usage.Maxrss>>10, hostileTime, hostileMemory>>20)
			}
			if !strings.Contains(message, pack[1]) || pack[1] == "" && message != "" || len(message) > 100<<10 {
				t.Errorf("message of %d bytes %.500q\nwant one with %q", len(message), message, pack[1])
			}
		})
	}
}

// TestHostileChild is the process of TestHostilePacks.
func TestHostileChild(t *testing.T) {
	name := os.Getenv("HOSTILE_PACK")
	if name == "" {
		return
	}
	dir := minipack(t, "", "", "")
	dir["fans.yml"] = &fstest.MapFile{Data: []byte(hostile()[name][0])}
	pack, err := ReadPack(dir)
	if err == nil {
		var built map[string][]byte
		if built, err = pack.Build(site.DefaultLimits()); err == nil {
			maps.DeleteFunc(built, func(name string, _ []byte) bool { return !strings.HasSuffix(name, ".rules.yml") })
			pack.LintPack(built, KnownMetrics())
			return
		}
	}
	fmt.Println(err)
	var list Problems
	if !errors.As(err, &list) || list[0].Line < 1 || list[0].Column < 1 || list[0].File == "" {
		t.Errorf("%T without a place", err)
	}
}
