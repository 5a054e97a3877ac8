// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/go-kit/log/level"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// errOvertaken says that the session ended while it waited to lead.
var errOvertaken = errors.New("the session ended before it led")

// Campaign implements Store. It waits for the other registries, and through
// failures of etcd. lost is closed when the session ends: at the latest when
// etcd has not answered for its whole time, 10 s, so before another one leads.
// A second Campaign ends the first one's leadership.
func (e *Etcd) Campaign(ctx context.Context) (Token, <-chan struct{}, error) {
	e.mu.Lock()
	former := e.lead
	e.lead = nil
	e.mu.Unlock()
	if former != nil {
		e.release(former.session)
	}
	for {
		lead, err := e.campaign(ctx)
		if err == nil {
			return lead.token, lead.session.Done(), nil
		}
		if ctx.Err() != nil {
			return Token{}, nil, e.wrap("campaign", ctx.Err())
		}
		if e.ctx.Err() != nil {
			return Token{}, nil, ErrClosed
		}
		level.Warn(e.opts.Logger).Log("msg", "campaign for the ledger failed, it is tried again", "err", e.wrap("campaign", err))
		select {
		case <-time.After(campaignRetry):
		case <-ctx.Done():
		case <-e.ctx.Done():
		}
	}
}

// campaign is one try.
func (e *Etcd) campaign(ctx context.Context) (*leadership, error) {
	value, err := json.Marshal(e.opts.Self)
	if err != nil {
		return nil, err
	}
	grantCtx, cancel := e.call(ctx)
	defer cancel()
	grant, err := e.client.Grant(grantCtx, sessionTTL)
	if err != nil {
		return nil, err
	}
	session, err := concurrency.NewSession(e.client, concurrency.WithLease(grant.ID), concurrency.WithContext(e.ctx))
	if err != nil {
		return nil, err
	}
	lead := &leadership{session: session}
	election := concurrency.NewElection(session, e.leaderPrefix())
	err = e.await(ctx, session, func(ctx context.Context) error { return election.Campaign(ctx, string(value)) })
	if err == nil {
		lead.key, lead.rev = election.Key(), election.Rev()
		err = e.takeFence(ctx, lead)
	}
	if err == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		if !e.closed {
			e.lead = lead
			return lead, nil
		}
		err = ErrClosed
	}
	e.release(session)
	return nil, err
}

// await runs wait until it ends, the session ends, or ctx does. In the last case
// it does not wait for etcd to hear of it: that ends with the store.
func (e *Etcd) await(ctx context.Context, s *concurrency.Session, wait func(context.Context) error) error {
	waitCtx, stop := context.WithCancel(ctx)
	defer stop()
	won := make(chan error, 1)
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return ErrClosed
	}
	e.work.Go(func() { won <- wait(waitCtx) })
	e.mu.Unlock()
	select {
	case err := <-won:
		return err
	case <-s.Done():
		return errOvertaken
	case <-ctx.Done():
		return ctx.Err()
	}
}

// takeFence counts the leadership, on the condition that it was won: the
// election alone does not prove that its session still lives.
func (e *Etcd) takeFence(ctx context.Context, lead *leadership) error {
	ctx, cancel := e.call(ctx)
	defer cancel()
	resp, err := e.client.Txn(ctx).Then(clientv3.OpGet(e.fenceKey()), clientv3.OpGet(e.headKey())).Commit()
	if err != nil {
		return err
	}
	var last uint64
	var seen int64
	if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		if last, err = strconv.ParseUint(string(kvs[0].Value), 10, 64); err != nil {
			return err
		}
		seen = kvs[0].ModRevision
	}
	h, err := decodeHead(resp.Responses[1].GetResponseRange().Kvs)
	if err != nil {
		return err
	}
	lead.token.Fence = nextFence(last, h.LastEvent)
	won, err := e.client.Txn(ctx).
		If(lead.holds(), clientv3.Compare(clientv3.ModRevision(e.fenceKey()), "=", seen)).
		Then(clientv3.OpPut(e.fenceKey(), strconv.FormatUint(lead.token.Fence, 10))).Commit()
	if err == nil && !won.Succeeded {
		err = errOvertaken
	}
	return err
}
