// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/oklog/run"
)

// stopTimeout bounds an orderly end; a process that needs longer says who hangs.
const stopTimeout = 10 * time.Second

// actor is one long-running part of the process. It returns when its ctx ends.
type actor struct {
	name string
	run  func(ctx context.Context) error
	// drain makes the actors after it wait, at the end, until this one is done:
	// HTTP goes first, so that no request sees half a process.
	drain bool
}

// runActors runs all actors until ctx ends or the first of them returns, then
// stops the rest in order. The error is that of the first to fail.
func runActors(ctx context.Context, actors ...actor) error {
	var group run.Group
	stopping := make(chan struct{})
	var stopOnce sync.Once
	running := newNames()
	waiting, stopWaiting := context.WithCancel(ctx)
	group.Add(func() error {
		<-waiting.Done()
		return nil
	}, func(error) { stopWaiting() })
	for _, a := range actors {
		// The actors outlive ctx: each is stopped in its turn.
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		done := make(chan struct{})
		running.add(a.name)
		group.Add(func() error {
			defer close(done)
			defer running.remove(a.name)
			if err := a.run(own); err != nil && own.Err() == nil {
				return fmt.Errorf("%s: %w", a.name, err)
			}
			return nil
		}, func(error) {
			stopOnce.Do(func() { close(stopping) })
			cancel()
			if a.drain {
				select {
				case <-done:
				case <-time.After(stopTimeout):
				}
			}
		})
	}
	ended := make(chan error, 1)
	go func() { ended <- group.Run() }()
	select {
	case err := <-ended:
		return err
	case <-stopping:
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(stopTimeout + time.Second):
		return fmt.Errorf("still running %s after the stop: %s", stopTimeout, running)
	}
}

// names is the set of the actors that still run.
type names struct {
	mu  sync.Mutex
	set map[string]bool
}

func newNames() *names { return &names{set: map[string]bool{}} }

func (n *names) add(name string) {
	n.mu.Lock()
	n.set[name] = true
	n.mu.Unlock()
}

func (n *names) remove(name string) {
	n.mu.Lock()
	delete(n.set, name)
	n.mu.Unlock()
}

func (n *names) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []string
	for name := range n.set {
		all = append(all, name)
	}
	return strings.Join(all, ", ")
}
