// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/exp/api/remote"
	"github.com/prometheus/client_golang/prometheus"
	promconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/version"
)

// Versions of the remote write protocol.
const (
	PushV1 = "1.0"
	PushV2 = "2.0"
)

// pushSource is the name under which a Pusher shows its status in the Store.
const pushSource = "push"

// Defaults and bounds of a Pusher. Prometheus refuses samples that are an hour
// older than the newest it has (half of its two-hour blocks), so there is no use
// in keeping rounds much longer than half of that.
const (
	minPushInterval   = 100 * time.Millisecond // under that it is a mistake, such as a number without a unit
	defaultQueueFor   = 30 * time.Minute
	defaultMaxSamples = 100_000
	pushTimeout       = 30 * time.Second // of one request, as Prometheus' remote_timeout
	flushTimeout      = 5 * time.Second  // of all that is sent after the stop
	pushMinBackoff    = time.Second
	pushMaxBackoff    = 30 * time.Second
	maxRetryAfter     = 5 * time.Minute // a server that asks for more gets this
)

// PushConfig says what is pushed, where to and how much is kept meanwhile.
type PushConfig struct {
	// Store and Extra are those of HandlerConfig; the same series are pushed.
	Store *Store
	Extra prometheus.Gatherer
	// URL is the whole address of the receiver, for example
	// https://prometheus.example/api/v1/write.
	URL string
	// Interval is how often a round is taken, at least 100 ms; 0 means 15 s.
	Interval time.Duration
	// Protocol is PushV2 or PushV1; empty means PushV2.
	Protocol string
	// HTTP is how to authenticate, TLS and proxies.
	HTTP promconfig.HTTPClientConfig
	// Labels are the target labels (instance, job, site): what a scrape with
	// honor_labels adds to the series that lack them.
	Labels map[string]string
	// QueueFor is how long a round is kept that cannot be delivered; 0 means 30 min.
	QueueFor time.Duration
	// MaxSamples bounds the samples kept (about 300 bytes each with PushV1 and
	// 60 with PushV2, see BenchmarkPushRound); 0 means 100000. The oldest go first.
	MaxSamples int
	// Silent, if set, leaves a round out when it returns true.
	Silent func() bool
	Logger log.Logger
}

func (cfg *PushConfig) setDefaults() {
	if cfg.Interval == 0 {
		cfg.Interval = defaultInterval
	}
	if cfg.Protocol == "" {
		cfg.Protocol = PushV2
	}
	if cfg.QueueFor == 0 {
		cfg.QueueFor = defaultQueueFor
	}
	if cfg.MaxSamples == 0 {
		cfg.MaxSamples = defaultMaxSamples
	}
}

// check returns what is wrong, by the names that agent.yml uses.
func (cfg *PushConfig) check() error {
	u, err := url.Parse(cfg.URL)
	switch {
	case err != nil:
		return fmt.Errorf("url: %w", err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("url: must be http://... or https://..., with a host")
	case u.User != nil:
		return errors.New("url: must hold no user and password; use basic_auth")
	case cfg.Interval < minPushInterval:
		return fmt.Errorf("interval: %s is under %s", cfg.Interval, minPushInterval)
	case cfg.Protocol != PushV1 && cfg.Protocol != PushV2:
		return fmt.Errorf("protocol: %q is neither %q nor %q", cfg.Protocol, PushV2, PushV1)
	case cfg.QueueFor < 0 || cfg.MaxSamples < 0:
		return errors.New("the queue's bounds are negative")
	}
	for name, value := range cfg.Labels {
		if !model.LegacyValidation.IsValidLabelName(name) || strings.HasPrefix(name, "__") {
			return fmt.Errorf("labels: invalid name %q", name)
		}
		if !utf8.ValidString(value) {
			return fmt.Errorf("labels: the value of %s is not UTF-8", name)
		}
	}
	return cfg.HTTP.Validate()
}

// Pusher sends what /metrics shows to a receiver of Prometheus remote write, for
// agents that cannot be scraped. Beside it go `up` with value 1 and a stale
// marker for each series that has vanished. It is a prometheus.Collector of its
// own metrics; its status is the Store's source "push".
type Pusher struct {
	cfg     PushConfig
	logger  log.Logger
	client  *http.Client
	api     *remote.API
	queue   *pushQueue
	success *prometheus.Desc
	waiting *prometheus.Desc
	counts  *prometheus.CounterVec

	// Of the goroutine that gathers.
	previous map[string]pushSeries
	last     int64 // timestamp of the latest round, in ms

	mu     sync.Mutex // guards status, which the sender writes
	status Status
}

// NewPusher checks the configuration, the files that it names included.
func NewPusher(cfg PushConfig) (*Pusher, error) {
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	if err := readableSecrets(cfg.HTTP); err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	client, err := promconfig.NewClientFromConfig(cfg.HTTP, "push", promconfig.WithUserAgent("rackpulse/"+version.Version))
	if err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	return newPusher(cfg, client)
}

// newPusher builds a Pusher of a configuration that is complete and good.
func newPusher(cfg PushConfig, client *http.Client) (*Pusher, error) {
	client.Transport = boundedAnswers{client.Transport}
	api, err := remote.NewAPI(cfg.URL,
		remote.WithAPIHTTPClient(client),
		remote.WithAPIPath(""),
		// Retries are the Pusher's own: meanwhile the queue goes on.
		remote.WithAPIBackoff(remote.BackoffConfig{MaxRetries: -1}))
	if err != nil {
		return nil, fmt.Errorf("push: url: %w", err)
	}
	p := &Pusher{
		cfg:     cfg,
		logger:  log.With(cfg.Logger, "source", pushSource),
		client:  client,
		api:     api,
		success: prometheus.NewDesc("rackpulse_push_last_success_timestamp_seconds", "When the receiver last took samples.", nil, nil),
		waiting: prometheus.NewDesc("rackpulse_push_queue_samples", "Samples that wait for the receiver.", nil, nil),
		counts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rackpulse_push_samples_total",
			Help: "Samples by what became of them: sent, rejected by the receiver, or dropped since they waited too long or were too many.",
		}, []string{"outcome"}),
	}
	for _, outcome := range []string{outcomeSent, outcomeRejected, outcomeDropped} {
		p.counts.WithLabelValues(outcome)
	}
	p.queue = newPushQueue(cfg.QueueFor, cfg.MaxSamples, func(outcome string, samples int) {
		p.counts.WithLabelValues(outcome).Add(float64(samples))
	})
	return p, nil
}

// Describe implements prometheus.Collector.
func (p *Pusher) Describe(ch chan<- *prometheus.Desc) {
	ch <- p.success
	ch <- p.waiting
	p.counts.Describe(ch)
}

// Collect implements prometheus.Collector.
func (p *Pusher) Collect(ch chan<- prometheus.Metric) {
	p.mu.Lock()
	at := p.status.LastSample
	p.mu.Unlock()
	if !at.IsZero() {
		ch <- prometheus.MustNewConstMetric(p.success, prometheus.GaugeValue, float64(at.UnixMilli())/1000)
	}
	ch <- prometheus.MustNewConstMetric(p.waiting, prometheus.GaugeValue, float64(p.queue.samples()))
	p.counts.Collect(ch)
}

// Run takes a round in each interval, from a random point in the first one, and
// sends the rounds in their order until ctx ends. Then it adds a last round, in
// which `up` is 0 and all other series end, and sends what it can of all that
// waits within 5 s, up to the first failure. It must be called once. The error is
// always nil.
func (p *Pusher) Run(ctx context.Context) error {
	defer p.client.CloseIdleConnections()
	if (p.cfg.HTTP.BasicAuth != nil || p.cfg.HTTP.Authorization != nil) && strings.HasPrefix(p.cfg.URL, "http:") {
		level.Warn(p.logger).Log("msg", "credentials are pushed in plain text; use https", "url", p.cfg.URL)
	}
	p.publish(Status{Reason: "nothing pushed yet", Since: time.Now()})
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ending, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		p.send(sending, ending)
	}()
	p.sample(ctx)
	close(ending)
	timer := time.NewTimer(flushTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		stop()
		<-done
	}
	if left := p.queue.clear(); left > 0 {
		level.Warn(p.logger).Log("msg", "stopped before all samples were pushed", "samples", left)
	}
	return nil
}

// sample takes the rounds until ctx ends, and the last one.
func (p *Pusher) sample(ctx context.Context) {
	offset := time.NewTimer(rand.N(p.cfg.Interval))
	defer offset.Stop()
	select {
	case <-ctx.Done():
		return
	case <-offset.C:
	}
	ticker := time.NewTicker(p.cfg.Interval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		if p.cfg.Silent == nil || !p.cfg.Silent() {
			p.enqueue(p.round(time.Now()))
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	if p.last != 0 && (p.cfg.Silent == nil || !p.cfg.Silent()) {
		p.enqueue(p.lastRound(time.Now()))
	}
}

// enqueue encodes a round in pieces that any receiver takes.
func (p *Pusher) enqueue(at int64, round []pushSeries) {
	now := time.Now()
	for len(round) > 0 {
		part := round[:min(len(round), maxRequestSamples)]
		round = round[len(part):]
		body, err := encodePush(p.cfg.Protocol, part, at)
		if err != nil { // a programming error
			level.Error(p.logger).Log("msg", "samples not encoded", "err", err)
			continue
		}
		p.queue.put(&pushRequest{body: body, samples: len(part), at: now})
	}
}

// send delivers the queue, oldest first. Once ending is closed it returns as soon
// as the queue is empty or a request fails.
func (p *Pusher) send(ctx context.Context, ending <-chan struct{}) {
	for ctx.Err() == nil {
		r := p.queue.next()
		if r == nil {
			select {
			case <-p.queue.filled:
				continue
			case <-ending:
			}
			if r = p.queue.next(); r == nil {
				return
			}
		}
		wait := p.deliver(ctx, r)
		if wait == 0 {
			continue
		}
		select {
		case <-ending:
			return // failed with no time left to try again
		default:
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ending: // one try more
		}
		timer.Stop()
	}
}

// deliver sends one request and returns how long to wait before it is sent again,
// or 0 when it is done with.
func (p *Pusher) deliver(ctx context.Context, r *pushRequest) (wait time.Duration) {
	attempt, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	start := time.Now()
	stats, err := p.api.Write(attempt, pushMessageType(p.cfg.Protocol), r.body)
	st := p.status
	st.Duration = time.Since(start)
	var again interface{ RetryAfter() time.Duration }
	switch {
	case err == nil:
		p.queue.done(r.samples)
		st.Reason, st.LastSample, st.Consecutive = "", time.Now(), 0
	case errors.As(err, &again):
		p.queue.keep(time.Now())
		st.Consecutive++
		wait = max(pushBackoff(st.Consecutive), min(again.RetryAfter(), maxRetryAfter))
	default:
		p.queue.done(stats.Samples) // with 2.0 the receiver tells; else 0
		st.Consecutive++
	}
	if err != nil {
		st.Errors++
		st.Reason = err.Error()
	}
	p.logResult(st, err, wait)
	if up := err == nil; up != st.Up {
		st.Up, st.Since = up, time.Now()
	}
	p.publish(st)
	return wait
}

// logResult tells rejections and the first of several failures, and their end.
func (p *Pusher) logResult(next Status, err error, wait time.Duration) {
	switch {
	case err != nil && wait == 0:
		level.Warn(p.logger).Log("msg", "receiver rejects samples", "err", next.Reason)
	case err != nil && next.Consecutive == 1:
		level.Warn(p.logger).Log("msg", "push failed, will be repeated", "err", next.Reason, "wait", wait)
	case err == nil && !p.status.Up:
		level.Info(p.logger).Log("msg", "pushing", "failures", p.status.Consecutive)
	}
}

func (p *Pusher) publish(st Status) {
	p.mu.Lock()
	p.status = st
	p.mu.Unlock()
	p.cfg.Store.SetStatus(pushSource, st)
}

// pushBackoff doubles with each failure in a row; half of it is jitter.
func pushBackoff(failures int) time.Duration {
	d := pushMaxBackoff
	if failures < 6 { // 2^5 s > 30 s
		d = min(pushMinBackoff<<(failures-1), pushMaxBackoff)
	}
	return d/2 + rand.N(d/2)
}
