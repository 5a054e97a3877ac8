// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Run reads the sources, evaluates the rules and sends alerts until ctx ends,
// then stops in order (rules, notifier, PromQL, storage) and closes the
// engine. It is called at most once. Failing targets, rules and Alertmanagers
// are logged, never returned.
func (e *Engine) Run(ctx context.Context) error {
	if err := e.drive(realTime); err != nil {
		return err
	}
	if err := e.notify.start(); err != nil {
		return fmt.Errorf("engine: %w", errors.Join(err, e.Close()))
	}
	err := e.manager.Update(e.cfg.EvalInterval, e.ruleFileNames(), e.external, e.url.String(), nil)
	// Stop waits for groups that wait for Run, so Run always comes first.
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		e.manager.Run()
	}()
	if err == nil {
		e.ingestLoop(ctx)
	}
	e.stopRules()
	e.manager.Stop()
	<-stopped
	e.notify.stop()
	return errors.Join(err, e.Close())
}

// ingestLoop reads the sources at once and then every interval.
func (e *Engine) ingestLoop(ctx context.Context) {
	ticker := time.NewTicker(e.cfg.ScrapeInterval)
	defer ticker.Stop()
	var last string
	for {
		err := e.Ingest(ctx, time.Now(), e.cfg.Sources())
		// A target that stays broken is reported once, not every round.
		if now := errorText(err); now != last && ctx.Err() == nil {
			last = now
			if err != nil {
				e.logger.Warn("reading targets failed", "err", err)
			} else {
				e.logger.Info("all targets are read again")
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
