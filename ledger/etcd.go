// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

const (
	// sessionTTL is how long etcd keeps the leadership of a registry that it does
	// not hear from, seconds.
	sessionTTL = 10
	// callTimeout bounds each call to etcd.
	callTimeout = 5 * time.Second
	// releaseTimeout bounds giving the leadership back.
	releaseTimeout = 2 * time.Second
	// campaignRetry is the wait after a campaign that failed.
	campaignRetry = time.Second
	// leaderInterval is how often it is asked who leads, and leaderStale how old
	// the answer may be.
	leaderInterval = time.Second
	leaderStale    = sessionTTL * time.Second
)

// EtcdOptions say where the ledger is and how to get there.
type EtcdOptions struct {
	// Endpoints are etcd's URLs, such as https://etcd1:2379.
	Endpoints []string
	// Prefix is that of all its keys; it ends with a slash.
	Prefix string
	// TLS may be nil: the scheme of the endpoints decides.
	TLS *tls.Config
	// Username and Password are empty where etcd asks for none.
	Username, Password string
	// Self is what others learn of this registry while it leads.
	Self Leader
	// MaxEvents and MaxAge bound the history as in BoltOptions.
	MaxEvents int
	MaxAge    time.Duration
	// Logger may be nil.
	Logger log.Logger
}

// Etcd is a Store in etcd, for several registries of which one leads. Its keys
// under the prefix:
//
//	leader/<lease>   one for each registry that runs; the oldest one leads
//	fence            the last leadership's number
//	head             bounds of the log
//	log/<number>     the events of one commit
//	node/<node>      a NodeRecord
//	open/<node>      the node's one open Intent
//
// A commit is one transaction on the condition that its leader's key still is
// the one that won.
type Etcd struct {
	opts   EtcdOptions
	client *clientv3.Client
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	lead     *leadership
	leader   Leader
	leaderAt time.Time // when it was learnt
	closeErr error
}

// leadership is one won election.
type leadership struct {
	session *concurrency.Session
	key     string
	rev     int64 // at which the key was made
	token   Token
}

// holds is the condition of all that the leader writes.
func (l *leadership) holds() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(l.key), "=", l.rev)
}

// OpenEtcd makes the client; it dials when it is used, but for a user, whose
// password is checked at once.
func OpenEtcd(opts EtcdOptions) (*Etcd, error) {
	if len(opts.Endpoints) == 0 || !strings.HasSuffix(opts.Prefix, "/") {
		return nil, errors.New("ledger etcd: endpoints and a prefix that ends with a slash are needed")
	}
	if opts.MaxEvents <= 0 {
		opts.MaxEvents = defaultEvents
	}
	if opts.MaxAge <= 0 {
		opts.MaxAge = defaultAge
	}
	if opts.Logger == nil {
		opts.Logger = log.NewNopLogger()
	}
	e := &Etcd{opts: opts}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	var err error
	e.client, err = clientv3.New(clientv3.Config{
		Endpoints: opts.Endpoints, TLS: opts.TLS, Username: opts.Username, Password: opts.Password,
		DialTimeout: callTimeout, DialKeepAliveTime: callTimeout, DialKeepAliveTimeout: callTimeout,
		Context: e.ctx, Logger: zap.NewNop(), // what fails is told by its caller
	})
	if err != nil {
		err = e.wrap("connect", err)
		e.cancel()
		return nil, err
	}
	e.work.Go(e.followLeader)
	return e, nil
}

// Close implements Store. The next registry leads at once when etcd hears of it.
func (e *Etcd) Close() error {
	e.mu.Lock()
	first := !e.closed
	e.closed = true
	lead := e.lead
	e.lead = nil
	e.mu.Unlock()
	if !first {
		e.work.Wait()
		return e.closeErr
	}
	if lead != nil {
		e.release(lead.session)
	}
	e.cancel()
	if err := e.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		e.closeErr = e.wrap("close", err)
	}
	e.work.Wait()
	return e.closeErr
}

// release ends a session. Where etcd does not hear of it, the session ends with
// its time.
func (e *Etcd) release(s *concurrency.Session) {
	s.Orphan()
	ctx, cancel := context.WithTimeout(e.ctx, releaseTimeout)
	defer cancel()
	if _, err := e.client.Revoke(ctx, s.Lease()); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		level.Warn(e.opts.Logger).Log("msg", "leadership not given back, it ends by itself", "within_s", sessionTTL, "err", e.wrap("release", err))
	}
}

// Leader returns the registry that leads, as learnt within the last 10 s; false
// when there is none, it is not known, or it is this one.
func (e *Etcd) Leader() (Leader, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	known := e.leader.Beats != "" && e.leader != e.opts.Self && time.Since(e.leaderAt) < leaderStale
	return e.leader, known
}

// followLeader asks who leads until the store closes.
func (e *Etcd) followLeader() {
	ticker := time.NewTicker(leaderInterval)
	defer ticker.Stop()
	for {
		if leader, err := e.readLeader(); err == nil {
			e.mu.Lock()
			e.leader, e.leaderAt = leader, time.Now()
			e.mu.Unlock()
		}
		select {
		case <-ticker.C:
		case <-e.ctx.Done():
			return
		}
	}
}

// readLeader reads the value of the oldest candidate's key.
func (e *Etcd) readLeader() (Leader, error) {
	ctx, cancel := e.call(e.ctx)
	defer cancel()
	resp, err := e.client.Get(ctx, e.leaderPrefix()+"/", clientv3.WithFirstCreate()...)
	if err != nil || len(resp.Kvs) == 0 {
		return Leader{}, err
	}
	var l Leader
	err = json.Unmarshal(resp.Kvs[0].Value, &l)
	return l, err
}

func (e *Etcd) leaderPrefix() string { return e.opts.Prefix + "leader" }
func (e *Etcd) fenceKey() string     { return e.opts.Prefix + "fence" }
func (e *Etcd) headKey() string      { return e.opts.Prefix + "head" }
func (e *Etcd) logPrefix() string    { return e.opts.Prefix + "log/" }
func (e *Etcd) nodePrefix() string   { return e.opts.Prefix + "node/" }
func (e *Etcd) recordPrefix() string { return e.opts.Prefix + "record/" }
func (e *Etcd) openPrefix() string   { return e.opts.Prefix + "open/" }

// logKey is that of the n-th commit; keys sort as numbers do.
func (e *Etcd) logKey(n uint64) string { return fmt.Sprintf("%s%016x", e.logPrefix(), n) }

// call bounds one call to etcd, which ends with the store, too.
func (e *Etcd) call(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	stop := context.AfterFunc(e.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// wrap names the endpoints and what was done there.
func (e *Etcd) wrap(what string, err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrTooManyOps), errors.Is(err, rpctypes.ErrRequestTooLarge):
		err = fmt.Errorf("%w: %w", ErrTooLarge, err)
	case e.ctx.Err() != nil:
		return ErrClosed
	}
	return fmt.Errorf("ledger etcd %s: %s: %w", strings.Join(e.opts.Endpoints, ","), what, err)
}
