// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/rackpulse/rackpulse/lease/leasepb"
	"github.com/rackpulse/rackpulse/ledger"
	"github.com/rackpulse/rackpulse/site"
)

const (
	// sweepInterval is how often the leases are swept, so the most by which a
	// state changes too late.
	sweepInterval = 100 * time.Millisecond
	// maxStreams bounds the open streams of the server, at some 40 kB each.
	maxStreams = 50000
	// streamsPerConn bounds the streams of one connection; an agent needs one.
	streamsPerConn = 1000
	// bufferSize is that of a connection's read and write buffers, bytes. A
	// beat without its UUIDs has about 60.
	bufferSize = 1024
	// window is the flow control window, bytes; HTTP/2's own default.
	window = 64 << 10
	// flushTimeout bounds the last commit when the server stops.
	flushTimeout = 3 * time.Second
)

// errNotLeading is the operator's answer while this registry holds no leases.
var errNotLeading = errors.New("this registry does not lead yet")

// Deps are what a Server needs of its surroundings. Site and Store must be set.
type Deps struct {
	// Site returns the present site; a new pointer means it was reloaded.
	Site func() *site.Site
	// Store is the ledger. The Server campaigns in it and writes it, it does
	// not close it.
	Store ledger.Store
	// Logger may be nil.
	Logger log.Logger
	// Identity returns the labels of a node (nil for a facility-only agent) and
	// of each of the devices. It may be nil.
	Identity func(node string, devices []string) (map[string]string, map[string]map[string]string)
	// Authorize decides whether the peer of ctx may beat as the node or agent
	// of that id. It may be nil: everybody may.
	Authorize func(ctx context.Context, id string) error
	// Leader returns the address that the registry which leads takes beats on; ""
	// when it is not known or it is this one. It is set where there are several
	// registries: then a Server that waits to lead answers beats with it.
	Leader func() string
	// Lead is called when this registry leads, before its leases are there, with
	// the records of the ledger. It may be nil.
	Lead func(records []ledger.Record)
	// Credentials are the server's TLS credentials; nil: plain text.
	Credentials credentials.TransportCredentials
}

// Server takes beats, keeps the leases and writes their changes to the ledger.
// It is a prometheus.Collector of the lease metrics.
type Server struct {
	leasepb.UnimplementedLeaseServer

	cfg  Config
	deps Deps

	mu       sync.Mutex // guards all below; never held over I/O
	core     *core      // nil until Run leads
	token    ledger.Token
	lost     <-chan struct{} // closed when the leadership ends
	stopping bool
	early    []ledger.Event // noted before it leads
	siteGen  uint64         // counts reloads of the site
	// committed is the id of the last event in the ledger; flushed is closed
	// and replaced when it moves.
	committed uint64
	flushed   chan struct{}

	wake    chan struct{} // tells the committer that there are changes
	streams atomic.Int64
	nextID  atomic.Uint64 // of streams
	beats   atomic.Uint64
	outside refusals
	ledger  ledgerStats
	// messages are those in work: a stream that waits holds none.
	messages *messages
}

// NewServer makes a Server; Run starts it.
func NewServer(cfg Config, deps Deps) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Site == nil || deps.Store == nil {
		return nil, errors.New("lease server: a site and a store are needed")
	}
	if deps.Logger == nil {
		deps.Logger = log.NewNopLogger()
	}
	return &Server{cfg: cfg.WithDefaults(), deps: deps, flushed: make(chan struct{}), wake: make(chan struct{}, 1), messages: newMessages()}, nil
}

// Run campaigns for the ledger, restores the leases from it and serves beats on
// ln until ctx ends, the leadership is lost or serving fails. Where there are
// several registries it answers beats with the leader's address while it waits.
// It closes ln, and all its goroutines have ended when it returns. It is one
// actor: sweeping stops first, then the streams, then the ledger is brought up to
// date. A Server runs once.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	gs := grpc.NewServer(s.options()...)
	leasepb.RegisterLeaseServer(gs, s)
	served := make(chan error, 1)
	serve := func() { served <- gs.Serve(ln) }
	if s.deps.Leader != nil {
		go serve()
	} else {
		defer ln.Close()
	}
	defer gs.Stop() // closes ln, and waits for the handlers
	token, lost, err := s.campaign(ctx, served)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("lease server: %w", err)
	}
	st, _, err := s.deps.Store.Load(ctx)
	if err != nil {
		return fmt.Errorf("lease server: %w", err)
	}
	if s.deps.Lead != nil {
		s.deps.Lead(st.Records)
	}
	s.lead(token, lost, st, time.Now())
	if s.deps.Leader == nil {
		go serve()
	}
	commitCtx, stopCommits := context.WithCancel(context.WithoutCancel(ctx))
	defer stopCommits()
	fenced := make(chan error, 1)
	go func() { fenced <- s.commitLoop(commitCtx) }()

	err = s.loop(ctx, lost, served, fenced)

	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	gs.Stop()
	stopCommits()
	if !errors.Is(err, ledger.ErrFenced) {
		<-fenced
		flushCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		err = errors.Join(err, s.flush(flushCtx))
	}
	return err
}

// campaign waits until this registry leads, or serving fails meanwhile.
func (s *Server) campaign(ctx context.Context, served chan error) (ledger.Token, <-chan struct{}, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	won := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case err := <-served:
			served <- err
			stop(fmt.Errorf("serve beats: %w", err))
		case <-won:
		}
	}()
	token, lost, err := s.deps.Store.Campaign(ctx)
	close(won)
	<-watched
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return token, lost, err
}

// loop sweeps until something ends the server.
func (s *Server) loop(ctx context.Context, lost <-chan struct{}, served, fenced chan error) error {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-lost:
			return errors.New("lease server: leadership lost")
		case err := <-served:
			return fmt.Errorf("lease server: serve beats: %w", err)
		case err := <-fenced:
			return fmt.Errorf("lease server: %w", err)
		case <-ticker.C:
			s.sweep(time.Now())
		}
	}
}

// lead makes the leases from the ledger's state.
func (s *Server) lead(token ledger.Token, lost <-chan struct{}, st ledger.State, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token, s.lost = token, lost
	s.core = newCore(s.cfg, indexSite(s.deps.Site()), token.Fence, now)
	s.core.restore(st, now)
	s.nextID.Store(token.Fence << 32)
	s.committed = token.Fence << 32
	for _, e := range s.early {
		s.core.noteEvent(e.Time, e)
	}
	s.early = nil
	level.Info(s.deps.Logger).Log("msg", "leases restored", "nodes", len(s.core.nodes), "registry_epoch", token.Fence)
	s.signal()
}

// Leads says whether this registry has taken the ledger over and restored the
// leases; it stays so when Run has ended.
func (s *Server) Leads() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core != nil
}

// leader is the address that another registry, which leads, takes beats on.
func (s *Server) leader() string {
	if s.deps.Leader == nil {
		return ""
	}
	return s.deps.Leader()
}

// maxEarly bounds the events that wait for the leadership.
const maxEarly = 10000

// Note writes events of others into the history, behind what happened before; it
// returns when the ledger holds them. Before this registry leads they wait, and
// it returns at once; while another one leads, that one notes them.
func (s *Server) Note(ctx context.Context, events []ledger.Event) error {
	s.mu.Lock()
	if s.core == nil {
		defer s.mu.Unlock()
		if s.leader() != "" {
			return nil
		}
		if len(s.early)+len(events) > maxEarly {
			return fmt.Errorf("%d events wait for the ledger, no more are kept", len(s.early))
		}
		s.early = append(s.early, events...)
		return nil
	}
	for _, e := range events {
		s.core.noteEvent(e.Time, e)
	}
	id := s.core.nextID
	s.signal()
	s.mu.Unlock()
	return s.durable(ctx, id)
}

// sweep runs the due transitions and takes a reloaded site in.
func (s *Server) sweep(now time.Time) {
	present := s.deps.Site()
	s.mu.Lock()
	defer s.mu.Unlock()
	if present != s.core.site.of {
		s.core.setSite(indexSite(present), now)
		s.siteGen++
	}
	s.core.sweep(now)
	s.signal()
}

// signal wakes the committer if there is something to commit. mu is held.
func (s *Server) signal() {
	if len(s.core.out) == 0 {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// options are those of the gRPC server: small and shared buffers, bounded
// messages and streams, and dead connections noticed.
func (s *Server) options() []grpc.ServerOption {
	opts := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxConcurrentStreams(streamsPerConn),
		grpc.MaxHeaderListSize(16 << 10),
		// A stream sends its headers once: a table of them would be kept for nothing.
		grpc.HeaderTableSize(0),
		grpc.ConnectionTimeout(20 * time.Second),
		grpc.ReadBufferSize(bufferSize),
		grpc.WriteBufferSize(bufferSize),
		// A fixed window: else gRPC sends a ping with every beat to estimate a
		// bandwidth that nobody needs.
		grpc.StaticStreamWindowSize(window),
		grpc.StaticConnWindowSize(window),
		grpc.WaitForHandlers(true),
		grpc.ForceServerCodecV2(s.messages),
		// Agents may ping every 5 s, with and without a stream; gRPC's own
		// default would cut them off for it.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
	}
	if s.deps.Credentials != nil {
		opts = append(opts, grpc.Creds(s.deps.Credentials))
	}
	return opts
}
