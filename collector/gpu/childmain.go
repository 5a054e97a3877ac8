// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
)

// ChildFD is the file descriptor on which a child writes its answers. It is not
// standard output, because vendor libraries print there.
const ChildFD = 3

// closeGrace is how long a child may take to give its handles back at its end.
const closeGrace = 2 * time.Second

// ChildMain is the child process: it reads requests from in, answers on out, and
// ends when in does (the agent closed it or died) or ctx is done. It returns the
// exit status. A library call that never returns does not keep it. The program
// should ignore SIGINT and SIGTERM meanwhile: a service manager sends them to all
// processes of a service, and the child is to close its handles when the agent says.
func ChildMain(ctx context.Context, in io.Reader, out io.Writer, logger log.Logger) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	requests := make(chan request)
	ended := make(chan error, 1)
	go func() { // ends with the process at the latest: a read of a pipe
		reader := newFrameReader(in)
		for {
			var req request
			if err := reader.read(&req); err != nil {
				ended <- err
				return
			}
			select {
			case requests <- req:
			case <-ctx.Done():
				return
			}
		}
	}()

	w := &childWorker{out: newFrameWriter(out), logger: logger}
	done := make(chan error, 1)
	go func() { done <- w.run(ctx, requests) }()

	select {
	case <-ctx.Done():
	case err := <-ended:
		if err != io.EOF {
			level.Error(logger).Log("msg", "request not understood", "err", err)
		}
		cancel()
	case err := <-done: // the agent does not read any more
		level.Error(logger).Log("msg", "answer not written", "err", err)
		return 1
	}
	select {
	case <-done:
	case <-time.After(closeGrace):
		level.Warn(logger).Log("msg", "source does not close")
		return 1
	}
	return 0
}

// childWorker calls the source; one goroutine.
type childWorker struct {
	out    *frameWriter
	logger log.Logger
	source Source
}

func (w *childWorker) run(ctx context.Context, requests <-chan request) error {
	defer func() {
		if w.source != nil {
			if err := w.source.Close(); err != nil {
				level.Warn(w.logger).Log("msg", "closing source", "err", err)
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case req := <-requests:
			if err := w.out.write(w.answer(ctx, req)); err != nil {
				return err
			}
		}
	}
}

func (w *childWorker) answer(ctx context.Context, req request) *response {
	resp := &response{ID: req.ID}
	var err error
	switch {
	case req.Op == opOpen && w.source == nil:
		r, ok := registry[req.Source]
		if !ok || !r.child {
			err = fmt.Errorf("no source %q for a child process in this build", req.Source)
			break
		}
		w.source, err = r.open(ctx, req.Config, log.With(w.logger, "source", req.Source))
	case req.Op == opRead && w.source != nil:
		resp.Sample, err = w.source.Read(ctx)
	case req.Op == opConfigure && w.source != nil:
		source, ok := w.source.(reconfigurer)
		if !ok {
			err = errors.New("cannot change what it reads while it runs")
			break
		}
		err = source.Reconfigure(ctx, req.Config)
	default:
		err = fmt.Errorf("operation %q out of order", req.Op)
	}
	if err != nil {
		resp.Err = cmp.Or(err.Error(), "failed without a word") // empty means success
		resp.Sample = nil
	}
	return resp
}
