// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"
)

// Inventory is what an agent's beat tells of its GPUs. Reading it never waits
// for a device.
type Inventory struct {
	UUIDs  []string // the GPUs present
	Status InventoryStatus
	// At is when they were enumerated; zero: not yet.
	At time.Time
	// Reason says why the inventory is not fresh.
	Reason string
}

// Identity is what the registry says of an agent.
type Identity struct {
	// Node holds the labels of its node; empty for a facility-only agent.
	Node map[string]string
	// Devices holds the labels of each device that it may poll, by id.
	Devices map[string]map[string]string
	// Refused holds the devices that it must not poll, with the reason.
	Refused map[string]string
	// ExpectedGPUs is how many GPUs the site file says that the node has; 0: it
	// does not say.
	ExpectedGPUs int
}

// BeaterConfig says where and how an agent beats.
type BeaterConfig struct {
	// Node is the node's name, or the name of a facility-only agent.
	Node string
	// Addresses are the registries' host:port, tried in turn.
	Addresses []string
	// Credentials are the client's TLS credentials; nil: plain text.
	Credentials credentials.TransportCredentials
	// Token returns the bearer token sent with each stream; it needs
	// Credentials, for a token must not travel in clear. It may be nil.
	Token func() (string, error)
	// BeatInterval is used until the registry tells its own; 0 means 5 s.
	BeatInterval time.Duration
	// Misses is how many beats in a row may stay without an answer before the
	// node takes itself out of scheduling; 0 means 3.
	Misses int
	// Leave says that a graceful stop is a leave, not a maintenance of 60 s.
	Leave bool
	// Dial replaces the dialler of TCP addresses. It may be nil.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

const (
	// stopMaintenance is the maintenance that a stopping agent declares: time
	// for an upgrade of the agent.
	stopMaintenance = 60 * time.Second
	// stopTimeout bounds the last beat of a stopping agent.
	stopTimeout = 2 * time.Second
	// redialMin and redialMax bound the full jitter between two diallings.
	redialMin = 5 * time.Second
	redialMax = 30 * time.Second
	// fullEvery is how often the whole inventory is sent unasked, in beats.
	fullEvery = 12
	// hookTimeout bounds the hook.
	hookTimeout = 30 * time.Second
)

// Beater is the agent's side of the lease: it beats whatever the devices do. Set
// the fields, then Run it once. All funcs but Inventory may be nil; they are
// called from Run's goroutines and must not block. It is a prometheus.Collector.
type Beater struct {
	Config BeaterConfig
	Logger log.Logger
	// Inventory returns what is known of the GPUs now.
	Inventory func() Inventory
	// Breaches returns the names of the limits that the node breaches now.
	Breaches func() []string
	// Maintenance returns how much longer a maintenance of the node that its agent
	// knows of will last, and why; 0: there is none.
	Maintenance func() (time.Duration, string)
	// Hello describes the agent; called at each connection and after Announce.
	Hello func() Hello
	// OnIdentity is called with what the registry says of the agent.
	OnIdentity func(Identity)
	// OnState is called when the registry sees the node in another state.
	OnState func(State)
	// Clock maps the true time to what this machine's clock shows, for a
	// simulated clock; nil: they are the same.
	Clock func(time.Time) time.Time
	// Hook is called, one call at a time, when the node takes itself out of
	// scheduling and when it is back. It may take up to 30 s.
	Hook func(ctx context.Context, schedulable bool)

	epoch    uint64
	seq      uint64 // Run's session only
	state    State  // Run's session only
	declared string // the maintenance that the registry knows of; Run's session only
	announce atomic.Bool
	interval atomic.Int64 // nanoseconds
	lastAck  atomic.Int64 // Unix nanoseconds; 0: none yet
	acked    chan struct{}
	out      atomic.Bool // of scheduling
	sent     atomic.Uint64
	acks     atomic.Uint64
	failures atomic.Uint64
	online   atomic.Bool
}

// clock is the time that a beat tells.
func (b *Beater) clock(now time.Time) time.Time {
	if b.Clock == nil {
		return now
	}
	return b.Clock(now)
}

// Announce makes the next beat tell Hello again, after a reload.
func (b *Beater) Announce() { b.announce.Store(true) }

// Schedulable is the node's own view: false after three beats in a row without
// an answer, true again with the next one.
func (b *Beater) Schedulable() bool { return !b.out.Load() }

// validate names what is wrong with the configuration.
func (b *Beater) validate() error {
	c := &b.Config
	switch {
	case c.Node == "" || len(c.Node) > maxText:
		return fmt.Errorf("lease: node name of %d bytes, 1 to %d are allowed", len(c.Node), maxText)
	case len(c.Addresses) == 0:
		return errors.New("lease: no registry address")
	case c.Token != nil && c.Credentials == nil:
		return errors.New("lease: a registry token needs TLS, it would travel in clear")
	case b.Inventory == nil:
		return errors.New("lease: no inventory")
	}
	return nil
}

// Run beats until ctx ends, then declares maintenance, or a leave, within 2 s.
// It returns an error only for a bad configuration: a registry that cannot be
// reached is tried for ever.
func (b *Beater) Run(ctx context.Context) error {
	if err := b.validate(); err != nil {
		return err
	}
	if b.Logger == nil {
		b.Logger = log.NewNopLogger()
	}
	if b.Config.BeatInterval <= 0 {
		b.Config.BeatInterval = 5 * time.Second
	}
	if b.Config.Misses <= 0 {
		b.Config.Misses = 3
	}
	b.interval.Store(int64(b.Config.BeatInterval))
	b.epoch = rand.Uint64() | 1
	b.acked = make(chan struct{}, 1)

	var wg sync.WaitGroup
	watchCtx, stopWatch := context.WithCancel(ctx)
	wg.Go(func() { b.watch(watchCtx) })
	b.connect(ctx)
	stopWatch()
	wg.Wait()
	return nil
}

// connect holds a session with one registry after the other until ctx ends.
func (b *Beater) connect(ctx context.Context) {
	redirect, next, wait := "", 0, redialMin
	for ctx.Err() == nil {
		address := redirect
		if address == "" {
			address = b.Config.Addresses[next%len(b.Config.Addresses)]
			next++
		}
		acks := b.acks.Load()
		to, err := b.session(ctx, address)
		if ctx.Err() != nil {
			return
		}
		if b.acks.Load() > acks {
			wait = redialMin
		}
		if to != "" && redirect == "" {
			// Only one hop is followed at once: two registries that point at
			// each other must not be spun between.
			level.Info(b.Logger).Log("msg", "registry redirects", "from", address, "to", to)
			// Somebody answers: another leader is a matter of seconds.
			redirect, wait = to, redialMin
			continue
		}
		redirect = to
		b.failures.Add(1)
		// Within a round over the addresses the wait is short, so that a
		// fail-over is found within the registry's grace; between rounds it grows.
		delay := rand.N(redialMin)
		if next%len(b.Config.Addresses) == 0 {
			delay = rand.N(wait)
			wait = min(2*wait, redialMax)
		}
		level.Warn(b.Logger).Log("msg", "connection to registry ended", "address", address, "retry_in", delay.Round(time.Millisecond), "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
}

// watch takes the node out of scheduling when the answers stay away, at the same
// silence at which the registry suspects the node: the missed beats and a half.
func (b *Beater) watch(ctx context.Context) {
	for {
		beat := time.Duration(b.interval.Load())
		timer := time.NewTimer(time.Duration(b.Config.Misses)*beat + beat/2)
		select {
		case <-b.acked:
			timer.Stop()
			b.setOut(ctx, false)
		case <-timer.C:
			b.setOut(ctx, true)
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// setOut records the node's own view and runs the hook when it changes.
func (b *Beater) setOut(ctx context.Context, out bool) {
	if b.out.Swap(out) == out {
		return
	}
	level.Warn(b.Logger).Log("msg", "own view of scheduling changed", "schedulable", !out)
	if b.Hook != nil {
		hookCtx, cancel := context.WithTimeout(ctx, hookTimeout)
		defer cancel()
		b.Hook(hookCtx, !out)
	}
}

var (
	descBeaterSent    = prometheus.NewDesc("rackpulse_agent_beats_sent_total", "Beats sent to the registry.", nil, nil)
	descBeaterAcks    = prometheus.NewDesc("rackpulse_agent_beats_acknowledged_total", "Beats that the registry accepted.", nil, nil)
	descBeaterFailed  = prometheus.NewDesc("rackpulse_agent_registry_connection_failures_total", "Connections to a registry that failed or ended.", nil, nil)
	descBeaterUp      = prometheus.NewDesc("rackpulse_agent_registry_connected", "1 while the agent has a stream on which a beat was accepted.", nil, nil)
	descBeaterLastAck = prometheus.NewDesc("rackpulse_agent_last_acknowledged_timestamp_seconds", "When the registry last accepted a beat, on the agent's clock.", nil, nil)
	descSchedulable   = prometheus.NewDesc("rackpulse_node_schedulable", "The node's own view: 0 after three beats without an answer.", nil, nil)
)

// Describe implements prometheus.Collector.
func (b *Beater) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descBeaterSent, descBeaterAcks, descBeaterFailed, descBeaterUp, descBeaterLastAck, descSchedulable} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (b *Beater) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	flag := func(d *prometheus.Desc, v bool) {
		value := 0.0
		if v {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value)
	}
	counter(descBeaterSent, b.sent.Load())
	counter(descBeaterAcks, b.acks.Load())
	counter(descBeaterFailed, b.failures.Load())
	flag(descBeaterUp, b.online.Load())
	flag(descSchedulable, b.Schedulable())
	if at := b.lastAck.Load(); at != 0 {
		ch <- prometheus.MustNewConstMetric(descBeaterLastAck, prometheus.GaugeValue, float64(at)/1e9)
	}
}
