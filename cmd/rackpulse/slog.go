// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
)

// newSlog lets libraries that speak log/slog write through the go-kit logger.
// next filters by level, so the process has one filter. next must not carry a
// caller of its own: the record knows the true one.
func newSlog(next log.Logger) *slog.Logger { return slog.New(slogHandler{next: next}) }

type slogHandler struct {
	next   log.Logger
	prefix string // names of the open groups, each followed by a dot
}

// Enabled leaves the decision to the go-kit filter.
func (slogHandler) Enabled(context.Context, slog.Level) bool { return true }

// Handle writes one record.
func (h slogHandler) Handle(_ context.Context, r slog.Record) error {
	kvs := make([]any, 0, 4+2*r.NumAttrs())
	if r.PC != 0 {
		frame, _ := runtime.CallersFrames([]uintptr{r.PC}).Next()
		kvs = append(kvs, "caller", fmt.Sprintf("%s:%d", filepath.Base(frame.File), frame.Line))
	}
	kvs = append(kvs, "msg", r.Message)
	r.Attrs(func(a slog.Attr) bool {
		kvs = appendAttr(kvs, h.prefix, a)
		return true
	})
	return atLevel(h.next, r.Level).Log(kvs...)
}

// WithAttrs returns a handler that adds attrs to each record.
func (h slogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var kvs []any
	for _, a := range attrs {
		kvs = appendAttr(kvs, h.prefix, a)
	}
	h.next = log.With(h.next, kvs...)
	return h
}

// WithGroup returns a handler that prefixes the keys that follow.
func (h slogHandler) WithGroup(name string) slog.Handler {
	if name != "" {
		h.prefix += name + "."
	}
	return h
}

func appendAttr(kvs []any, prefix string, a slog.Attr) []any {
	v := a.Value.Resolve()
	if v.Kind() != slog.KindGroup {
		if a.Equal(slog.Attr{}) {
			return kvs
		}
		return append(kvs, prefix+a.Key, v.Any())
	}
	if a.Key != "" {
		prefix += a.Key + "."
	}
	for _, member := range v.Group() {
		kvs = appendAttr(kvs, prefix, member)
	}
	return kvs
}

func atLevel(l log.Logger, lv slog.Level) log.Logger {
	switch {
	case lv >= slog.LevelError:
		return level.Error(l)
	case lv >= slog.LevelWarn:
		return level.Warn(l)
	case lv >= slog.LevelInfo:
		return level.Info(l)
	}
	return level.Debug(l)
}
