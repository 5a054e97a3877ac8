// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
)

// Why a child process ended other than by request; label values of
// rackpulse_gpu_child_restarts_total.
const (
	endHang  = "hang"  // no answer within the deadline
	endCrash = "crash" // it ended, or wrote what is no answer
	endError = "error" // its source failed too often
)

var endReasons = []string{endCrash, endError, endHang}

const (
	// maxAbandoned is how many children may sit in uninterruptible sleep before
	// no more are started: each of them holds device files and memory.
	maxAbandoned = 2
	// killGrace is how long a killed child may take to end before it is
	// abandoned. The kernel needs milliseconds unless the process sleeps in D state.
	killGrace = 2 * time.Second
)

// childMalloc makes the C library give the memory of large blocks back: DCGM takes 4 MB
// for each call, and its threads would keep 20 MB of that between them.
var childMalloc = []string{"MALLOC_ARENA_MAX=2", "MALLOC_MMAP_THRESHOLD_=1048576"}

// deadError says that a source's child is gone and the source of no more use.
type deadError struct {
	end string // endHang, endCrash
	err error
}

func (e *deadError) Error() string { return e.err.Error() }
func (e *deadError) Unwrap() error { return e.err }

// launcher starts children and knows those that it could not end.
type launcher struct {
	argv   []string
	logger log.Logger
	grace  time.Duration
	kill   func(pid int) error

	mu        sync.Mutex
	abandoned int
}

func newLauncher(argv []string, logger log.Logger) *launcher {
	return &launcher{argv: argv, logger: logger, grace: killGrace,
		// The child leads its own process group; its helpers go with it.
		kill: func(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }}
}

// stuck returns how many abandoned children still exist.
func (l *launcher) stuck() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.abandoned
}

// open starts a child and opens the source in it. A *deadError means that the
// child hung or crashed; any other error is the source's own.
func (l *launcher) open(ctx context.Context, name string, cfg SourceConfig) (Source, error) {
	if n := l.stuck(); n >= maxAbandoned {
		return nil, fmt.Errorf("%d child processes are stuck in the kernel, no more are started", n)
	}
	c, err := l.start()
	if err != nil {
		return nil, fmt.Errorf("child process: %w", err)
	}
	if _, err := c.call(ctx, request{Op: opOpen, Source: name, Config: cfg}); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// child is one child process with one source in it. It implements Source.
type child struct {
	launcher *launcher
	pid      int
	requests *os.File
	answers  *os.File
	writer   *frameWriter
	reader   *frameReader
	stderr   *tail
	nextID   uint64
	dead     error // why no call is possible any more
	over     bool  // end has run

	ended   chan struct{} // closed when the process has ended
	waitErr error         // valid once ended is closed
}

// start runs the child. Its environment is the agent's, LD_LIBRARY_PATH included.
func (l *launcher) start() (*child, error) {
	var pipes [3][2]*os.File // requests, answers, stderr
	closeAll := func() {
		for _, p := range pipes {
			for _, f := range p {
				if f != nil {
					f.Close()
				}
			}
		}
	}
	for i := range pipes {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll()
			return nil, err
		}
		pipes[i] = [2]*os.File{r, w}
	}
	cmd := exec.Command(l.argv[0], l.argv[1:]...)
	cmd.Stdin = pipes[0][0]
	cmd.Stdout = pipes[2][1]
	cmd.Stderr = pipes[2][1]
	cmd.ExtraFiles = []*os.File{pipes[1][1]}                     // ChildFD
	cmd.Env = append(slices.Clone(childMalloc), os.Environ()...) // the agent's own wins
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}

	c := &child{
		launcher: l,
		requests: pipes[0][1],
		answers:  pipes[1][0],
		writer:   newFrameWriter(pipes[0][1]),
		reader:   newFrameReader(pipes[1][0]),
		ended:    make(chan struct{}),
	}
	started := make(chan error)
	go c.keep(cmd, started)
	if err := <-started; err != nil {
		closeAll()
		return nil, err
	}
	pipes[0][0].Close()
	pipes[1][1].Close()
	pipes[2][1].Close()
	c.pid = cmd.Process.Pid
	c.stderr = newTail(pipes[2][0], log.With(l.logger, "pid", c.pid))
	return c, nil
}

// keep starts the process and waits for it on a thread of its own: the kernel
// sends Pdeathsig when the thread that started the process ends, not the program.
func (c *child) keep(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	started <- err
	if err != nil {
		return
	}
	c.waitErr = cmd.Wait()
	close(c.ended)
}

// Read implements Source.
func (c *child) Read(ctx context.Context) (*Sample, error) {
	resp, err := c.call(ctx, request{Op: opRead})
	if err != nil {
		return nil, err
	}
	if resp.Sample == nil {
		return nil, c.fail(endCrash, errors.New("answer without a sample"))
	}
	return resp.Sample, nil
}

// Reconfigure implements reconfigurer; the source in the child may refuse.
func (c *child) Reconfigure(ctx context.Context, cfg SourceConfig) error {
	_, err := c.call(ctx, request{Op: opConfigure, Config: cfg})
	return err
}

// call sends one request and waits for its answer until ctx's deadline.
func (c *child) call(ctx context.Context, req request) (*response, error) {
	if c.dead != nil {
		return nil, c.dead
	}
	deadline, _ := ctx.Deadline() // none: the zero time, which means the same
	c.requests.SetDeadline(deadline)
	c.answers.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() {
		end := time.Unix(1, 0)                      // past
		if errors.Is(ctx.Err(), context.Canceled) { // the agent's end: a child that answers can close its handles
			end = time.Now().Add(closeGrace)
		}
		c.requests.SetDeadline(end)
		c.answers.SetDeadline(end)
	})
	defer stop()

	c.nextID++
	req.ID = c.nextID
	err := c.writer.write(&req)
	resp := &response{}
	if err == nil {
		err = c.reader.read(resp)
	}
	switch {
	case err == nil && resp.ID != req.ID:
		return nil, c.fail(endCrash, fmt.Errorf("answer %d to request %d", resp.ID, req.ID))
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, c.fail(endHang, fmt.Errorf("no answer to %q in time", req.Op))
	case err != nil:
		return nil, c.fail(endCrash, err)
	case resp.Err != "":
		return nil, errors.New(resp.Err)
	}
	return resp, nil
}

// fail ends a child that is of no more use and returns what killed it.
func (c *child) fail(end string, cause error) error {
	if end == endCrash { // let it tell its own story first
		select {
		case <-c.ended:
			cause = c.story()
		case <-time.After(c.launcher.grace / 2):
		}
	}
	c.dead = &deadError{end: end, err: cause}
	c.end()
	return c.dead
}

// story says how the child ended, with the line of its stderr that tells most.
func (c *child) story() error {
	how := "ended"
	if c.waitErr != nil {
		how = c.waitErr.Error() // "exit status 127", "signal: segmentation fault"
	}
	if line := c.stderr.wait(time.Second); line != "" {
		return fmt.Errorf("child process: %s: %s", how, line)
	}
	return fmt.Errorf("child process: %s", how)
}

// Close implements Source: it closes the child's input and waits for its end.
func (c *child) Close() error {
	c.requests.Close()
	if c.dead == nil {
		select {
		case <-c.ended:
		case <-time.After(closeGrace + time.Second):
		}
		c.dead = errors.New("closed")
	}
	c.end()
	return nil
}

// end kills the child if it still runs, and abandons it if that does not help.
func (c *child) end() {
	if c.over {
		return
	}
	c.over = true
	c.requests.Close()
	c.answers.Close()
	defer c.stderr.close()
	select {
	case <-c.ended:
		return
	default:
	}
	if err := c.launcher.kill(c.pid); err != nil {
		level.Warn(c.launcher.logger).Log("msg", "killing child process", "pid", c.pid, "err", err)
	}
	select {
	case <-c.ended:
	case <-time.After(c.launcher.grace):
		c.launcher.abandon(c)
	}
}

// abandon counts a child that does not end until it does; keep waits for it.
func (l *launcher) abandon(c *child) {
	l.mu.Lock()
	l.abandoned++
	n := l.abandoned
	l.mu.Unlock()
	level.Error(l.logger).Log("msg", "child process cannot be killed, left alone", "pid", c.pid, "abandoned", n)
	go func() { // ends with the process
		<-c.ended
		l.mu.Lock()
		l.abandoned--
		l.mu.Unlock()
		level.Info(l.logger).Log("msg", "abandoned child process ended", "pid", c.pid)
	}()
}
