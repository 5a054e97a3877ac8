// SPDX-License-Identifier: Apache-2.0

// Package engine is a small Prometheus in the process: storage, PromQL, rules
// and notifier, fed from gatherers instead of from the network. It is the only
// package that links them.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/util/compression"
)

const (
	// DefaultInterval is the scrape and evaluation interval.
	DefaultInterval = 15 * time.Second
	// DefaultRetention and DefaultMaxBytes bound what is kept on disk.
	DefaultRetention = 24 * time.Hour
	// DefaultMaxBytes is the size of all blocks, in bytes; the head (the last
	// two to three hours) comes on top.
	DefaultMaxBytes = 2 << 30

	queryTimeout = 30 * time.Second
	// maxSamples bounds the samples one query holds in memory, at 16 bytes
	// each. All series of 64 racks x 8 nodes x 8 GPUs at one instant are 164k.
	maxSamples = 10_000_000
	lookback   = 5 * time.Minute // Prometheus' default
)

// Config is what an engine is made of. The zero value works: a temporary
// folder, no rules, no targets, no Alertmanager.
type Config struct {
	// Dir keeps the data across restarts. Empty: a temporary folder, removed
	// by Close, without a write-ahead log.
	Dir string
	// Retention is how long data is kept; 0 means DefaultRetention.
	Retention time.Duration
	// MaxBytes bounds the blocks on disk, in bytes; 0 means DefaultMaxBytes.
	MaxBytes int64
	// RuleFiles are Prometheus rule files by name. They are evaluated in the
	// order of their names.
	RuleFiles map[string][]byte
	// ExternalLabels are put on alerts sent to Alertmanagers.
	ExternalLabels map[string]string
	// ExternalURL is where users reach this process; used in alerts' links.
	ExternalURL string
	// AlertmanagerURLs are base URLs, without /api/v2; user and password in
	// them are used for basic authentication.
	AlertmanagerURLs []string
	// ScrapeInterval is how often Sources are read; 0 means DefaultInterval.
	ScrapeInterval time.Duration
	// EvalInterval is for rule groups without an interval of their own; 0
	// means DefaultInterval.
	EvalInterval time.Duration
	// Sources lists the targets; it is asked anew before each round.
	Sources func() []Target
	// Logger of the Prometheus components; nil logs nothing.
	Logger *slog.Logger
}

// Engine is an embedded Prometheus. It answers queries from New until Close.
type Engine struct {
	cfg       Config
	logger    *slog.Logger
	dir       string // of the storage
	external  labels.Labels
	url       *url.URL
	parser    parser.Parser
	db        *tsdb.DB
	promql    *promql.Engine
	ingester  *ingester
	notify    *notifications // nil without an Alertmanager
	manager   *rules.Manager
	rulesCtx  context.Context // ends the evaluations under way
	stopRules context.CancelFunc
	virtual   []*rules.Group // in file order, for EvalAt
	slots     chan struct{}  // HTTP queries at a time

	closing context.Context // ends the queries under way
	cancel  context.CancelFunc
	users   sync.WaitGroup // queries and rounds under way

	mu     sync.Mutex
	mode   mode
	closed bool
}

// mode is who drives the rules: nobody yet, Run or EvalAt.
type mode int

const (
	idle mode = iota
	realTime
	virtualTime
)

var errClosed = errors.New("engine is closed")

// New opens the storage and checks the rule files. The caller ends it with
// Run or, where Run is not called, with Close.
func New(cfg Config) (*Engine, error) {
	setDefaults(&cfg)
	e := &Engine{cfg: cfg, logger: cfg.Logger, parser: parser.NewParser(parser.Options{}), slots: make(chan struct{}, maxConcurrent)}
	e.external = labels.FromMap(cfg.ExternalLabels)
	var err error
	if e.url, err = url.Parse(cfg.ExternalURL); err != nil {
		return nil, fmt.Errorf("engine: external url: %w", err)
	}
	if e.notify, err = newNotifications(cfg.AlertmanagerURLs, e.external, e.logger); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	if err := e.open(); err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	e.closing, e.cancel = context.WithCancel(context.Background())
	e.rulesCtx, e.stopRules = context.WithCancel(context.Background())
	e.promql = promql.NewEngine(promql.EngineOpts{
		Logger: e.logger, MaxSamples: maxSamples, Timeout: queryTimeout, LookbackDelta: lookback,
		EnableAtModifier: true, EnableNegativeOffset: true, Parser: e.parser,
		NoStepSubqueryIntervalFn: func(int64) int64 { return cfg.EvalInterval.Milliseconds() },
	})
	e.ingester = newIngester(e.db, cfg.ScrapeInterval)
	if err := e.loadRules(); err != nil {
		return nil, errors.Join(fmt.Errorf("engine: %w", err), e.Close())
	}
	return e, nil
}

func setDefaults(cfg *Config) {
	if cfg.Retention <= 0 {
		cfg.Retention = DefaultRetention
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	if cfg.ScrapeInterval <= 0 {
		cfg.ScrapeInterval = DefaultInterval
	}
	if cfg.EvalInterval <= 0 {
		cfg.EvalInterval = DefaultInterval
	}
	if cfg.Sources == nil {
		cfg.Sources = func() []Target { return nil }
	}
	if cfg.Logger == nil {
		cfg.Logger = promslog.NewNopLogger()
	}
}

// open opens the storage in the configured or a temporary folder.
func (e *Engine) open() error {
	opts := tsdb.DefaultOptions()
	opts.RetentionDuration = e.cfg.Retention.Milliseconds()
	opts.MaxBytes = e.cfg.MaxBytes
	opts.WALCompression = compression.Snappy
	// Blocks may not be longer than a tenth of what is kept, or dropping one
	// drops too much; Prometheus does the same.
	opts.MaxBlockDuration = max(opts.MinBlockDuration, opts.RetentionDuration/10)
	e.dir = e.cfg.Dir
	if e.cfg.Dir == "" {
		dir, err := os.MkdirTemp("", "rackpulse-engine-")
		if err != nil {
			return err
		}
		e.dir = dir
		opts.WALSegmentSize = -1 // nothing to recover: no log
	}
	db, err := tsdb.Open(e.dir, e.logger, nil, opts, nil)
	if err != nil {
		return errors.Join(fmt.Errorf("storage %s: %w", e.dir, err), e.removeTemporary())
	}
	e.db = db
	return nil
}

func (e *Engine) removeTemporary() error {
	if e.cfg.Dir != "" {
		return nil
	}
	return os.RemoveAll(e.dir)
}

// Close ends the queries under way and closes the storage. Run does so by
// itself; a second Close does nothing.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	e.mu.Unlock()
	e.stopRules()
	e.cancel()
	// The storage unmaps its files, so nobody may read them any more.
	e.users.Wait()
	return errors.Join(e.promql.Close(), e.db.Close(), e.removeTemporary())
}

// use enters the storage: the returned context ends with the caller's or when
// the engine closes, and leave must be called at the end.
func (e *Engine) use(ctx context.Context) (_ context.Context, leave func(), _ error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, nil, errClosed
	}
	e.users.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(e.closing, cancel)
	return ctx, func() { stop(); cancel(); e.users.Done() }, nil
}

// drive claims the rules for Run or for EvalAt.
func (e *Engine) drive(m mode) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return errClosed
	case e.mode == idle || (e.mode == m && m == virtualTime):
		e.mode = m
		return nil
	case m == realTime && e.mode == realTime:
		return errors.New("engine runs already")
	default:
		return errors.New("engine: Run and EvalAt exclude each other")
	}
}
