// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func init() {
	Register("exec", "a sensor tool that is run as a command and prints lines or JSON", newExec)
}

const (
	maxOutput = 64 << 10 // bytes of standard output
	maxStderr = 512      // bytes of standard error shown in an error
	// execGrace is how long the pipes of a killed or ended command may stay open.
	execGrace = 500 * time.Millisecond
)

// execEnv is all the environment that a command gets.
var execEnv = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}

// execConfig is the block "exec" of an entry.
type execConfig struct {
	// Command is the absolute path of the program; no shell is involved.
	Command    string   `yaml:"command"`
	Args       []string `yaml:"args"`
	LineConfig `yaml:",inline"`
}

func newExec(fc FactoryConfig) (Plan, error) {
	var c execConfig
	if err := fc.Decode(&c); err != nil {
		return Plan{}, err
	}
	if !filepath.IsAbs(c.Command) {
		return Plan{}, fmt.Errorf("exec: command %q is not an absolute path", c.Command)
	}
	parser, err := newLineParser(c.LineConfig, fc.Device.ID, fc.Kind)
	if err != nil {
		return Plan{}, fmt.Errorf("exec: %w", err)
	}
	open := func(context.Context) (Driver, error) {
		info, err := os.Stat(c.Command)
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			return nil, fmt.Errorf("%s is not an executable file", c.Command)
		}
		return &execDriver{config: c, parser: parser}, nil
	}
	return Plan{Open: open, Serves: parser.devices(fc.Device.ID)}, nil
}

// execDriver runs a command for each read.
type execDriver struct {
	config execConfig
	parser *lineParser
}

var errFlood = fmt.Errorf("killed: more than %d KiB of output", maxOutput>>10)

// Read runs the command and parses what it prints. The command is killed with
// all its children at the deadline or when it prints too much.
func (d *execDriver) Read(ctx context.Context) ([]Reading, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stdout := &boundedBuffer{limit: maxOutput, full: func() { cancel(errFlood) }}
	stderr := &boundedBuffer{limit: maxStderr}
	cmd := exec.CommandContext(ctx, d.config.Command, d.config.Args...)
	cmd.Env, cmd.Dir = execEnv, "/"
	cmd.Stdout, cmd.Stderr = stdout, stderr
	// Pdeathsig: a hung command does not outlive an agent that was killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	cmd.WaitDelay = execGrace
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		// The command itself has ended; a child of it still holds the pipes.
		err = errors.Join(err, killGroup(cmd.Process.Pid))
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errFlood):
		return nil, fmt.Errorf("%s: %w", d.config.Command, errFlood)
	case errors.Is(cause, context.DeadlineExceeded):
		return nil, fmt.Errorf("%s: killed: it did not end within the deadline", d.config.Command)
	case err != nil && stderr.buf.Len() > 0:
		return nil, fmt.Errorf("%s: %w: %q", d.config.Command, err, strings.TrimSpace(stderr.buf.String()))
	case err != nil:
		return nil, fmt.Errorf("%s: %w", d.config.Command, err)
	}
	out, err := d.parser.text(stdout.buf.Bytes())
	if err != nil {
		err = fmt.Errorf("%s: %w", d.config.Command, err)
	}
	return out, err
}

// Close does nothing: no command runs between reads.
func (d *execDriver) Close() error { return nil }

// killGroup kills a process and its children; one that is gone is no error.
func killGroup(pid int) error {
	if err := syscall.Kill(-pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// boundedBuffer keeps the first limit bytes and swallows the rest.
type boundedBuffer struct {
	buf   bytes.Buffer
	limit int
	full  func() // called when there was more; nil: nothing
}

// Write keeps what fits. It never fails, so that the writer is not blocked.
func (b *boundedBuffer) Write(p []byte) (int, error) {
	room := min(b.limit-b.buf.Len(), len(p))
	b.buf.Write(p[:room])
	if room < len(p) && b.full != nil {
		b.full()
	}
	return len(p), nil
}
