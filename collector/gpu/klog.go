// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/rackpulse/rackpulse/collector"
	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/xid"
)

const (
	logName = "kernel_log"
	// logFlush is how often counts and the reader's position are looked at.
	logFlush = 500 * time.Millisecond
	// logRetry and logRetryMax bound the pause after a log could not be read.
	logRetry    = time.Second
	logRetryMax = time.Minute
	// maxOverridesFile bounds a site's catalogue, in bytes.
	maxOverridesFile = 1 << 20
)

// Why lines were lost; label values of rackpulse_kernel_log_lost_total.
const (
	lostOverrun = "overrun" // the kernel overwrote them before they were read
	lostFlood   = "flood"   // more of the driver's lines than are taken apart
	lostLong    = "long"    // longer than a line may be
)

var lostReasons = []string{lostFlood, lostLong, lostOverrun}

var (
	descLogLines = &collector.Desc{Name: "rackpulse_kernel_log_lines_total",
		Help: "Lines of the kernel log that were read since the agent started.", Type: collector.Counter}
	descLogLost = &collector.Desc{Name: "rackpulse_kernel_log_lost_total",
		Help: "Lines of the kernel log that could not be read or were left out, by reason.", Type: collector.Counter,
		Labels: []string{"reason"}}
)

// logSource is one way to read the kernel log.
type logSource struct {
	name string
	// run reads until ctx is done or the log cannot be read; it calls up once it can.
	run func(ctx context.Context, k *KernelLog, up func()) error
}

// KernelLog reads the GPU and NVSwitch errors of the kernel log. It runs in the
// agent, so that it tells of them while the driver and its libraries hang.
type KernelLog struct {
	logger log.Logger
	store  Store
	book   *xidBook
	state  *logState
	// journalctl, kmsg and uptime are the system's; tests have their own.
	journalctl []string
	kmsg, boot string
	quiet      bool // auto is none

	settings atomic.Pointer[settings]
	wake     chan struct{} // use has new settings

	// The rest belongs to the goroutine that reads.
	decoder xid.Decoder
	flood   floodGate

	mu       sync.Mutex
	lines    float64
	lost     map[string]float64
	noted    bool // lines or lost changed
	statusOf collector.Status
}

// NewKernelLog reads the kernel log of a node whose GPUs are not sampled. Of the
// configuration it takes KernelLog and XIDOverridesFile.
func NewKernelLog(cfg Config, deps Deps) (*KernelLog, error) {
	s := &settings{cfg: cfg.withDefaults()}
	if err := s.loadLog(deps.Sim != nil); err != nil {
		return nil, err
	}
	if deps.Logger == nil {
		deps.Logger = log.NewNopLogger()
	}
	book := newXIDBook()
	known, err := loadKnown(deps.StateDir)
	if err != nil { // a cache: go on without
		level.Warn(deps.Logger).Log("msg", "list of known GPUs not read", "err", err)
	}
	book.remember(known)
	return newKernelLog(s, deps, book), nil
}

func newKernelLog(s *settings, deps Deps, book *xidBook) *KernelLog {
	k := &KernelLog{
		logger:     log.With(deps.Logger, "component", logName),
		store:      deps.Store,
		book:       book,
		journalctl: []string{"journalctl"},
		kmsg:       "/dev/kmsg",
		boot:       bootID(),
		quiet:      deps.quietLog,
		wake:       make(chan struct{}, 1),
		lost:       make(map[string]float64),
	}
	var err error
	if k.state, err = loadLogState(deps.StateDir, k.boot); err != nil { // as if it had never run
		level.Warn(k.logger).Log("msg", "position in the kernel log not read", "err", err)
	}
	for pci, text := range k.state.recoveries() {
		book.recover(pci, text)
	}
	k.use(s)
	return k
}

// Apply validates a new configuration and hands it to Run. An error changes nothing.
func (k *KernelLog) Apply(cfg Config) error {
	s := &settings{cfg: cfg.withDefaults()}
	if err := s.loadLog(false); err != nil {
		return err
	}
	k.use(s)
	return nil
}

// use takes settings that are valid.
func (k *KernelLog) use(s *settings) {
	k.book.begin(s.catalogue.Counted())
	old := k.settings.Swap(s)
	if old != nil && old.cfg.KernelLog != s.cfg.KernelLog {
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
}

// loadLog validates the keys about XIDs and reads the site's catalogue.
func (s *settings) loadLog(simulated bool) error {
	switch l := s.cfg.KernelLog; {
	case l == "auto" && simulated: // the machine's own GPUs are not those of the hall
		s.cfg.KernelLog = "none"
	case l != "auto" && l != "kmsg" && l != "journal" && l != "none" && !filepath.IsAbs(l):
		return fmt.Errorf("gpu.kernel_log: %q is none of auto, kmsg, journal, none, /path/file", l)
	}
	var err error
	if s.catalogue, err = xid.Default(); err != nil {
		return err
	}
	if name := s.cfg.XIDOverridesFile; name != "" {
		data, err := config.ReadFile(name, maxOverridesFile)
		if err == nil {
			s.catalogue, err = s.catalogue.Override(name, data)
		}
		if err != nil {
			return fmt.Errorf("gpu.xid_overrides_file: %w", err)
		}
	}
	return nil
}

// Run reads until ctx is done. Its error is always nil: whatever fails is
// published and tried again.
func (k *KernelLog) Run(ctx context.Context) error {
	for {
		setting := k.settings.Load().cfg.KernelLog
		if k.quiet && setting == "auto" {
			setting = "none"
		}
		if again := k.runOne(ctx, setting); !again {
			return nil
		}
	}
}

// runOne reads as one setting says until there is another (true) or ctx is done.
func (k *KernelLog) runOne(ctx context.Context, setting string) (again bool) {
	if setting == "none" {
		k.store.Remove(logName)
		select {
		case <-ctx.Done():
			return false
		case <-k.wake:
			return true
		}
	}
	readCtx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.follow(readCtx, k.sources(setting))
	}()
	defer func() {
		cancel()
		<-done
		k.flush(true)
	}()
	flush := time.NewTicker(logFlush)
	defer flush.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-k.wake:
			return true
		case <-flush.C:
			k.flush(false)
		}
	}
}

func (k *KernelLog) sources(setting string) []logSource {
	kmsg, journal := logSource{"kmsg", followKmsg}, logSource{"journal", followJournal}
	switch setting {
	case "auto":
		return []logSource{kmsg, journal}
	case "kmsg":
		return []logSource{kmsg}
	case "journal":
		return []logSource{journal}
	}
	return []logSource{{setting, func(ctx context.Context, k *KernelLog, up func()) error {
		return followFile(ctx, k, setting, up)
	}}}
}

// follow reads the first of the sources that can be read, again and again.
func (k *KernelLog) follow(ctx context.Context, sources []logSource) {
	for pause := logRetry; ctx.Err() == nil; pause = min(2*pause, logRetryMax) {
		var reasons []string
		for _, s := range sources {
			k.decoder = xid.Decoder{}
			var since time.Time
			err := s.run(ctx, k, func() {
				since = time.Now()
				k.setStatus(true, strings.Join(append([]string{s.name}, parenthesis(reasons)...), " "))
			})
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				err = errors.New("ended")
			}
			if !since.IsZero() && time.Since(since) > logRetryMax {
				pause = logRetry
			}
			reasons = append(reasons, s.name+": "+err.Error())
		}
		k.setStatus(false, strings.Join(reasons, "; "))
		sleep(ctx, pause)
	}
}

func parenthesis(reasons []string) []string {
	if len(reasons) == 0 {
		return nil
	}
	return []string{"(" + strings.Join(reasons, "; ") + ")"}
}

// sleep pauses; it is false when ctx ended that.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (k *KernelLog) setStatus(up bool, reason string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	st, now := &k.statusOf, time.Now()
	if st.Up != up || st.Since.IsZero() {
		st.Since = now
		msg := "kernel log is read"
		if !up {
			msg = "kernel log cannot be read"
		}
		level.Info(k.logger).Log("msg", msg, "reason", reason)
	}
	st.Up, st.Reason = up, reason
	if up {
		st.Consecutive, st.LastSample = 0, now
	} else {
		st.Consecutive++
		st.Errors++
	}
	k.store.SetStatus(logName, *st)
}

// flush publishes what changed and keeps the reader's position.
func (k *KernelLog) flush(end bool) {
	k.book.publish(k.store)
	if err := k.state.save(end, time.Now()); err != nil {
		level.Warn(k.logger).Log("msg", "position in the kernel log not written", "err", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.noted {
		return
	}
	k.noted = false
	points := []collector.Point{{Desc: descLogLines, Value: k.lines}}
	for _, reason := range lostReasons {
		points = append(points, collector.Point{Desc: descLogLost, Values: []string{reason}, Value: k.lost[reason]})
	}
	k.store.Put(collector.Snapshot{Source: logName, At: time.Now(), Interval: neverOld, Points: points})
}

// telling are what a line has that is worth to be taken apart. The journal writes
// a message that is not printable as a list of its bytes.
var telling = []string{"NVRM: ", "nvidia-nvswitch", `"MESSAGE":[`, `"MESSAGE" : [`}

// lose counts lines that were not read.
func (k *KernelLog) lose(reason string, n uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lost[reason] += float64(n)
	k.noted = true
}

// line takes one line of the log, which was written at a time.
func (k *KernelLog) line(line string, at time.Time) {
	k.mu.Lock()
	k.lines++
	k.noted = true
	k.mu.Unlock()
	if !slices.ContainsFunc(telling, func(s string) bool { return strings.Contains(line, s) }) {
		return
	}
	if !k.flood.pass(line, time.Now()) {
		k.lose(lostFlood, 1)
		return
	}
	if e, ok := k.decoder.Line(line); ok {
		k.event(e, at)
		k.state.event()
	}
}

func (k *KernelLog) event(e xid.Event, at time.Time) {
	first := false
	switch e.Kind {
	case xid.KindXID:
		first = k.book.logged(e.PCI, e.Code, fromLog, at)
		if e.Recovery != "" {
			k.book.recover(e.PCI, e.Recovery)
			k.state.recovery(e.PCI, e.Recovery)
		}
	case xid.KindOffBus:
		first = k.book.logged(e.PCI, xid.OffBusCode, fromLogText, at)
	case xid.KindSXid:
		first = k.book.sxid(e, at)
	case xid.KindInitFailed:
		k.book.initFailed(e.PCI, at)
	}
	if first {
		v := k.settings.Load().catalogue.Judge(e)
		level.Warn(k.logger).Log("msg", "driver error in the kernel log", "kind", e.Kind, "code", e.Code, "pci", e.PCI,
			"severity", v.Severity, "do", strings.Join(v.Action, " "), "line", e.Text)
	}
}
