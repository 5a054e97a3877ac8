// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/site"
)

const (
	// factsInterval is how often the facts are looked at; it takes some microseconds.
	factsInterval = 2 * time.Second
	// toolkitTimeout bounds the command that prints a version.
	toolkitTimeout = 10 * time.Second
	// commandRetry is how often a container that did not start is tried again: the
	// image may not be there yet.
	commandRetry = 5 * time.Minute
	// maxFactBytes keeps a command's last words within the wire's bound of a text.
	maxFactBytes = 200
	// commandsFile in the state directory holds what the commands said in this boot.
	commandsFile = "baseline.json"
)

// nodeFacts gathers what an agent tells of its node.
type nodeFacts struct {
	cfg      baselineConfig
	logger   log.Logger
	stateDir string
	boot     string
	every    time.Duration // between two looks
	// gpu is what the GPUs tell; nil: there are none.
	gpu func() site.Facts
	// noCommands says that none is to be run.
	noCommands bool
	// simulated are the facts of a simulated node, which win; nil: the node is real.
	simulated *site.Facts
	// burnable says whether the node may be burnt in now: it has no work.
	burnable func() bool
	// changed is called when the facts are not what they were.
	changed func()

	mu       sync.Mutex
	commands site.Facts // what the commands told
	latest   site.Facts
}

// facts returns what is known now; it never waits.
func (f *nodeFacts) facts() site.Facts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.latest
}

// look gathers the facts and tells whether they are other ones than before.
func (f *nodeFacts) look() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := f.commands.Or(kernelFacts())
	if f.gpu != nil {
		next = next.Or(f.gpu())
	}
	if f.simulated != nil {
		next = f.simulated.Or(next)
	}
	changed := next != f.latest
	f.latest = next
	return changed
}

// run looks at the facts, and runs the commands, until ctx is done.
func (f *nodeFacts) run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	if !f.noCommands {
		wg.Go(func() { f.runCommands(ctx) })
	}
	for wait(ctx, f.every) {
		if f.look() {
			f.changed()
		}
	}
	return nil
}

// wait lets d pass; false: ctx is done.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// runCommands runs the commands once for each driver that the node has: a driver may
// come late, or be replaced, and none of them works without.
func (f *nodeFacts) runCommands(ctx context.Context) {
	told, next := "", time.Time{}
	for first := true; first || wait(ctx, f.every); first = false {
		driver := "none"
		if f.gpu != nil {
			driver = f.gpu().Driver
		}
		now := time.Now()
		if driver == "" || driver == told && (next.IsZero() || now.Before(next)) {
			continue
		}
		told, next = driver, time.Time{}
		f.toolkit(ctx)
		if f.container(ctx, driver) {
			f.burnIn(ctx, driver)
		} else {
			next = time.Now().Add(commandRetry)
		}
	}
}

// tell changes the facts that the commands tell.
func (f *nodeFacts) tell(change func(*site.Facts)) {
	f.mu.Lock()
	change(&f.commands)
	f.mu.Unlock()
}

// toolkitVersion is the version in the first line that nvidia-ctk prints:
// "NVIDIA Container Toolkit CLI version 1.17.5".
var toolkitVersion = regexp.MustCompile(`\b\d+\.\d+\.\d+\S*`)

func (f *nodeFacts) toolkit(ctx context.Context) {
	out, err := runCommand(ctx, f.cfg.ToolkitCommand, toolkitTimeout)
	version := toolkitVersion.FindString(out)
	if err != nil || version == "" {
		level.Info(f.logger).Log("msg", "version of the container toolkit not known", "command", strings.Join(f.cfg.ToolkitCommand, " "), "err", err)
		version = ""
	}
	f.tell(func(facts *site.Facts) { facts.Toolkit = cut(version) })
}

// container runs the container's command, unless it passed in this boot already, and
// tells whether it passed, or there is none.
func (f *nodeFacts) container(ctx context.Context, driver string) bool {
	if len(f.cfg.ContainerCommand) == 0 {
		return true
	}
	result := f.once(ctx, "container_cuda", f.cfg.ContainerCommand, f.cfg.Timeout, driver)
	f.tell(func(facts *site.Facts) { facts.ContainerCUDA = result })
	return result == site.Passed
}

// burnIn runs the burn-in, when the node has no work, unless it passed in this boot.
func (f *nodeFacts) burnIn(ctx context.Context, driver string) {
	c := f.cfg.BurnIn
	if len(c.Command) == 0 {
		return
	}
	result := site.Passed
	if f.passed("burn_in", c.Command, driver) {
		f.tell(func(facts *site.Facts) { facts.BurnIn = result })
		return
	}
	for !f.burnable() {
		if !wait(ctx, f.every) {
			return
		}
	}
	f.tell(func(facts *site.Facts) { facts.BurnIn = "running" })
	level.Info(f.logger).Log("msg", "burn-in begins", "command", strings.Join(c.Command, " "))
	result = f.once(ctx, "burn_in", c.Command, c.Timeout, driver)
	f.tell(func(facts *site.Facts) { facts.BurnIn = result })
}

// once returns how a command ended: Passed, also where it did so earlier in this boot
// with this driver, or "failed: ...".
func (f *nodeFacts) once(ctx context.Context, fact string, argv []string, timeout time.Duration, driver string) string {
	if f.passed(fact, argv, driver) {
		return site.Passed
	}
	_, err := runCommand(ctx, argv, timeout)
	if err != nil {
		level.Warn(f.logger).Log("msg", "command of the baseline failed", "fact", fact, "command", strings.Join(argv, " "), "err", err)
		return cut("failed: " + err.Error())
	}
	results := f.read()
	results.Passed[fact] = commandKey(argv, driver)
	if err := f.write(results); err != nil {
		level.Warn(f.logger).Log("msg", "result of the baseline's command not kept", "fact", fact, "err", err)
	}
	return site.Passed
}

// commandResults is the content of commandsFile.
type commandResults struct {
	BootID string `json:"boot_id"`
	// Passed has the command, with the driver, behind each fact that passed.
	Passed map[string]string `json:"passed"`
}

func commandKey(argv []string, driver string) string {
	return strings.Join(append([]string{driver}, argv...), "\x00")
}

func (f *nodeFacts) passed(fact string, argv []string, driver string) bool {
	return f.read().Passed[fact] == commandKey(argv, driver)
}

// keeps tells whether results outlive the process.
func (f *nodeFacts) keeps() bool { return f.stateDir != "" && f.boot != "" }

// read returns the results of this boot.
func (f *nodeFacts) read() commandResults {
	none := commandResults{BootID: f.boot, Passed: map[string]string{}}
	if !f.keeps() {
		return none
	}
	data, err := os.ReadFile(filepath.Join(f.stateDir, commandsFile))
	var r commandResults
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		level.Warn(f.logger).Log("msg", "results of the baseline's commands not read", "err", err)
	}
	if err != nil || r.BootID != f.boot || r.Passed == nil {
		return none
	}
	return r
}

func (f *nodeFacts) write(r commandResults) error {
	if !f.keeps() {
		return nil
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return config.ReplaceFile(filepath.Join(f.stateDir, commandsFile), data)
}

// cut bounds a fact.
func cut(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxFactBytes)], "")
}

// Status bits and states of adjtimex(2), linux/timex.h.
const (
	staUnsync = 0x40
	staNano   = 0x2000
	timeError = 5
)

// kernelFacts are those that the kernel tells.
func kernelFacts() site.Facts {
	f := site.Facts{Kernel: kernelRelease()}
	var tx syscall.Timex
	state, err := syscall.Adjtimex(&tx)
	if err != nil {
		return f
	}
	f.TimeSynchronised = site.Yes
	if state == timeError || tx.Status&staUnsync != 0 {
		f.TimeSynchronised = site.No
		return f // the offset to what?
	}
	unit := 1e-6
	if tx.Status&staNano != 0 {
		unit = 1e-9
	}
	offset := max(float64(tx.Offset), -float64(tx.Offset)) * unit
	f.TimeOffsetSeconds = strconv.FormatFloat(offsetBound(max(offset, float64(tx.Esterror)*1e-6)), 'g', -1, 64)
	return f
}

// offsetBound rounds seconds up to 1, 2 or 5 of a decade, so that a clock that is held
// well does not change its node's facts all the time; a millisecond at least.
func offsetBound(seconds float64) float64 {
	bounds := []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20}
	for _, bound := range bounds {
		if seconds <= bound {
			return bound
		}
	}
	return seconds
}
