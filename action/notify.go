// SPDX-License-Identifier: Apache-2.0

package action

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	promconfig "github.com/prometheus/common/config"

	"github.com/rackpulse/rackpulse/config"
)

// Notice is one message for people.
type Notice struct {
	// Key tells a message from all others; one that is sent again has the same.
	Key string
	// Title is one line, Markdown the whole text.
	Title, Markdown string
	// Body is the message for programs, as JSON.
	Body any
}

// Sink takes messages, one at a time.
type Sink interface {
	// Send delivers a notice. An error that is no *RefusedError is tried again, a
	// *LaterError after its time.
	Send(ctx context.Context, n Notice) error
	// Close gives connections back.
	Close() error
}

// RefusedError says that a sink will never take a message.
type RefusedError struct{ Reason string }

// Error implements error.
func (e *RefusedError) Error() string { return "refused: " + e.Reason }

// LaterError says that a sink takes nothing for a while.
type LaterError struct {
	After  time.Duration
	Reason string
}

// Error implements error.
func (e *LaterError) Error() string { return fmt.Sprintf("not before %s: %s", e.After, e.Reason) }

var sinks = map[string]func(config.Part, Deps) (Sink, error){"dingtalk": newDingTalk, "webhook": newWebhookSink}

// SinkNames are the kinds of sinks there are, sorted.
func SinkNames() []string {
	out := make([]string, 0, len(sinks))
	for name := range sinks {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// sinkHead are the keys that every sink has.
type sinkHead struct {
	Sink string `yaml:"sink"`
	Name string `yaml:"name"`
	// URL is called; URLFile holds it, where it is a secret.
	URL     string `yaml:"url"`
	URLFile string `yaml:"url_file"`
	// SecretFile holds the key of the signature.
	SecretFile string `yaml:"secret_file"`
	// CAFile holds the authorities of an https URL; empty: the system's.
	CAFile string `yaml:"ca_file"`
}

// open reads what the head names. secret is that of SecretFile.
func (h *sinkHead) open(deps Deps) (address *url.URL, secret config.Secret, client *http.Client, err error) {
	text := h.URL
	if (h.URL == "") == (h.URLFile == "") {
		return nil, secret, nil, errors.New("give one of url and url_file")
	}
	if h.URLFile != "" {
		s, err := config.ReadSecret(deps.Resolve(h.URLFile))
		if err != nil {
			return nil, secret, nil, fmt.Errorf("url_file: %w", err)
		}
		text = strings.TrimSpace(s.Reveal())
	}
	if address, err = callURL(text); err != nil {
		return nil, secret, nil, err
	}
	if h.SecretFile != "" {
		if secret, err = config.ReadSecret(deps.Resolve(h.SecretFile)); err != nil {
			return nil, secret, nil, fmt.Errorf("secret_file: %w", err)
		}
	}
	client, err = callClient(h.CAFile, deps)
	return address, secret, client, err
}

// callURL checks a URL that is called; errors do not show it, for it may hold a
// token.
func callURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("url is not a URL") // err would show a password
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("url %q, want http://HOST/PATH or https://HOST/PATH", u.Scheme+"://"+u.Host)
	case u.User != nil:
		return nil, errors.New("url holds a user: sign with secret_file instead")
	}
	return u, nil
}

// callClient makes a client that follows no redirects.
func callClient(caFile string, deps Deps) (*http.Client, error) {
	h := promconfig.DefaultHTTPClientConfig
	h.FollowRedirects = false
	if caFile != "" {
		h.TLSConfig.CAFile = deps.Resolve(caFile)
	}
	return promconfig.NewClientFromConfig(h, "webhook")
}

const (
	// maxSinks bounds the sinks, maxQueued the messages that wait for one.
	maxSinks  = 16
	maxQueued = 256
	// firstRetry doubles with each failure until lastRetry.
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
	// noticeLife is how long a message is worth delivering.
	noticeLife = time.Hour
	// sendTimeout bounds one attempt.
	sendTimeout = 10 * time.Second
)

// Results of a message, as rackpulse_notifications_total counts them.
const (
	resultSent    = "sent"
	resultRetried = "retried" // an attempt that failed
	resultRefused = "refused"
	resultExpired = "expired"
	resultFull    = "queue_full"
)

// Notifier delivers messages to all sinks, each from a queue of its own: one that
// hangs holds up no other. It is a prometheus.Collector.
type Notifier struct {
	logger log.Logger
	queues []*sinkQueue
	total  *prometheus.CounterVec
}

type sinkQueue struct {
	name string
	sink Sink
	wait chan queued
}

type queued struct {
	notice Notice
	at     time.Time
	done   func(bool)
}

// OpenNotifier makes the sinks of a configuration; nil for none. Two of a kind
// are told apart by their key name.
func OpenNotifier(parts []config.Part, deps Deps) (*Notifier, error) {
	switch {
	case len(parts) == 0:
		return nil, nil
	case len(parts) > maxSinks:
		return nil, fmt.Errorf("%d sinks, at most %d are taken", len(parts), maxSinks)
	}
	if deps.Logger == nil {
		deps.Logger = log.NewNopLogger()
	}
	n := &Notifier{logger: deps.Logger, total: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rackpulse_notifications_total", Help: "Messages about incidents, by sink and what became of them; retried counts attempts that failed.",
	}, []string{"sink", "result"})}
	for _, part := range parts {
		var h map[string]any
		if err := part.Decode(&h); err != nil {
			return nil, errors.Join(err, n.Close())
		}
		kind, _ := h["sink"].(string)
		given, _ := h["name"].(string)
		name := cmp.Or(given, kind)
		open := sinks[kind]
		if open == nil {
			return nil, errors.Join(fmt.Errorf("%s: sink %q is none of %s", part.Position(), kind, strings.Join(SinkNames(), ", ")), n.Close())
		}
		if slices.ContainsFunc(n.queues, func(q *sinkQueue) bool { return q.name == name }) {
			return nil, errors.Join(fmt.Errorf("%s: two sinks are named %q: give one a name of its own", part.Position(), name), n.Close())
		}
		sink, err := open(part, deps)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: sink %s: %w", part.Position(), kind, err), n.Close())
		}
		n.queues = append(n.queues, &sinkQueue{name: name, sink: sink, wait: make(chan queued, maxQueued)})
		for _, result := range []string{resultSent, resultRetried, resultRefused, resultExpired, resultFull} {
			n.total.WithLabelValues(name, result)
		}
	}
	return n, nil
}

// Describe implements prometheus.Collector.
func (n *Notifier) Describe(ch chan<- *prometheus.Desc) { n.total.Describe(ch) }

// Collect implements prometheus.Collector.
func (n *Notifier) Collect(ch chan<- prometheus.Metric) { n.total.Collect(ch) }

// Notify queues a message for all sinks and does not wait. done is called once:
// true when the first sink took it, false when none did. A sink whose queue is
// full misses it.
func (n *Notifier) Notify(notice Notice, done func(bool)) {
	var mu sync.Mutex
	left, told := len(n.queues), false
	one := func(took bool) {
		mu.Lock()
		left--
		call := !told && (took || left == 0)
		told = told || call
		mu.Unlock()
		if call {
			done(took)
		}
	}
	for _, q := range n.queues {
		select {
		case q.wait <- queued{notice, time.Now(), one}:
		default:
			n.count(q, resultFull, notice, errors.New("the queue is full"))
			one(false)
		}
	}
}

// Run delivers until ctx ends, then closes the sinks. What waits then is lost
// here; who gave it knows by done, which is not called any more.
func (n *Notifier) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, q := range n.queues {
		all.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case one := <-q.wait:
					n.deliver(ctx, q, one)
				}
			}
		})
	}
	all.Wait()
	return n.Close()
}

// deliver sends one message, again and again while that may help.
func (n *Notifier) deliver(ctx context.Context, q *sinkQueue, one queued) {
	pause := firstRetry
	for {
		attempt, cancel := context.WithTimeout(ctx, sendTimeout)
		err := q.sink.Send(attempt, one.notice)
		cancel()
		var refused *RefusedError
		var later *LaterError
		wait := pause
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			n.count(q, resultSent, one.notice, nil)
			one.done(true)
			return
		case errors.As(err, &refused):
			n.count(q, resultRefused, one.notice, err)
			one.done(false)
			return
		case errors.As(err, &later):
			wait = later.After
		default:
			pause = min(2*pause, lastRetry)
		}
		if time.Since(one.at)+wait > noticeLife {
			n.count(q, resultExpired, one.notice, err)
			one.done(false)
			return
		}
		n.count(q, resultRetried, one.notice, err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

func (n *Notifier) count(q *sinkQueue, result string, notice Notice, err error) {
	n.total.WithLabelValues(q.name, result).Inc()
	if err != nil {
		level.Warn(n.logger).Log("msg", "notification not delivered", "sink", q.name, "result", result, "key", notice.Key, "err", err)
	}
}

// Close closes the sinks of a Notifier that does not run.
func (n *Notifier) Close() error {
	var errs []error
	for _, q := range n.queues {
		errs = append(errs, q.sink.Close())
	}
	return errors.Join(errs...)
}
