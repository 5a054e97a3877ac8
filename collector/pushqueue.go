// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	promconfig "github.com/prometheus/common/config"
)

// Outcomes of rackpulse_push_samples_total.
const (
	outcomeSent     = "sent"
	outcomeRejected = "rejected"
	outcomeDropped  = "dropped"
)

// pushRequest is one encoded request on its way.
type pushRequest struct {
	body    encodedPush
	samples int
	at      time.Time // when it was put
}

// pushQueue holds requests, bounded by age and samples. Its methods never block.
type pushQueue struct {
	maxAge     time.Duration
	maxSamples int
	count      func(outcome string, samples int)
	filled     chan struct{} // holds a token after a put

	mu       sync.Mutex
	requests []*pushRequest // oldest first
	total    int            // samples in requests
	busy     bool           // requests[0] is on its way to the receiver
}

func newPushQueue(maxAge time.Duration, maxSamples int, count func(string, int)) *pushQueue {
	return &pushQueue{maxAge: maxAge, maxSamples: maxSamples, count: count, filled: make(chan struct{}, 1)}
}

// put adds a request and drops what is beyond the bounds.
func (q *pushQueue) put(r *pushRequest) {
	q.mu.Lock()
	q.requests = append(q.requests, r)
	q.total += r.samples
	q.trim(r.at)
	q.mu.Unlock()
	select {
	case q.filled <- struct{}{}:
	default:
	}
}

// trim drops the oldest requests beyond the bounds, but not the one on its way,
// which may have arrived already, nor the newest.
func (q *pushQueue) trim(now time.Time) {
	first := 0
	if q.busy {
		first = 1
	}
	for first < len(q.requests)-1 && (q.total > q.maxSamples || now.Sub(q.requests[first].at) > q.maxAge) {
		q.remove(first, 0, outcomeDropped)
	}
}

// remove takes a request out and counts its samples: so many as sent, the rest as
// the outcome says.
func (q *pushQueue) remove(i, sent int, rest string) {
	q.total -= q.requests[i].samples
	q.count(outcomeSent, sent)
	q.count(rest, q.requests[i].samples-sent)
	q.requests = slices.Delete(q.requests, i, i+1)
}

// next returns the oldest request, which stays in the queue, or nil. The caller
// must then call done or keep.
func (q *pushQueue) next() *pushRequest {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.requests) == 0 {
		return nil
	}
	q.busy = true
	return q.requests[0]
}

// done takes the request that next returned out; the receiver took so many of its
// samples and rejected the rest.
func (q *pushQueue) done(sent int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy = false
	q.remove(0, min(max(sent, 0), q.requests[0].samples), outcomeRejected)
}

// keep leaves the request that next returned for another try.
func (q *pushQueue) keep(now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy = false
	q.trim(now)
}

// clear drops everything and returns how many samples that were.
func (q *pushQueue) clear() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	left := q.total
	for len(q.requests) > 0 {
		q.remove(0, 0, outcomeDropped)
	}
	return left
}

func (q *pushQueue) samples() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total
}

// maxAnswer is how much of a receiver's answer is read: its message.
const maxAnswer = 4 << 10

// boundedAnswers reads the answers of a transport itself, but no more of them
// than a message. One that breaks off is then an error of the transport, after
// which the request is sent again.
type boundedAnswers struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b boundedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(r)
	if err != nil {
		// The port of this end differs each time: it must not be in a label.
		if op := (*net.OpError)(nil); errors.As(err, &op) {
			op.Source = nil
		}
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(data))
	return resp, nil
}

// CloseIdleConnections lets http.Client close those of the transport.
func (b boundedAnswers) CloseIdleConnections() {
	if c, ok := b.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// readableSecrets tells about a missing file now and not with each request. The
// files are read again for each request, so that they can be replaced.
func readableSecrets(cfg promconfig.HTTPClientConfig) error {
	files := []string{cfg.BearerTokenFile}
	if cfg.BasicAuth != nil {
		files = append(files, cfg.BasicAuth.PasswordFile)
	}
	if cfg.Authorization != nil {
		files = append(files, cfg.Authorization.CredentialsFile)
	}
	for _, name := range files {
		if name == "" {
			continue
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		f.Close()
	}
	return nil
}
