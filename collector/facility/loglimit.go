// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"sync"
	"time"
)

// logEvery is the shortest time between two log lines about the same device's
// garbage.
const logEvery = time.Minute

// logLimit lets one message a minute through.
type logLimit struct {
	mu      sync.Mutex
	next    time.Time
	dropped int
}

// allow says whether to log now, and how many messages were held back since.
func (l *logLimit) allow(now time.Time) (dropped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.next) {
		l.dropped++
		return 0, false
	}
	dropped, l.dropped, l.next = l.dropped, 0, now.Add(logEvery)
	return dropped, true
}
