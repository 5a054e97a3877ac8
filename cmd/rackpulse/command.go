// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// maxCommandOutput is how much of a command's output is kept, bytes.
const maxCommandOutput = 4 << 10

// runCommand runs a command of the configuration, without a shell, in the agent's
// environment. At the deadline it is killed with its children. The error has the last
// line that it printed.
func runCommand(ctx context.Context, argv []string, timeout time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var out lastBytes
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // a child that left the group may hold the pipe
	err := cmd.Run()
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("it did not end within %s", timeout)
	case err != nil:
		lines := strings.Split(strings.TrimSpace(string(out.text)), "\n")
		if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
			err = fmt.Errorf("%w: %s", err, last)
		}
	}
	return string(out.text), err
}

// lastBytes keeps the end of what is written to it.
type lastBytes struct{ text []byte }

// Write implements io.Writer.
func (l *lastBytes) Write(p []byte) (int, error) {
	l.text = append(l.text, p[max(len(p)-maxCommandOutput, 0):]...)
	if extra := len(l.text) - maxCommandOutput; extra > 0 {
		l.text = append(l.text[:0], l.text[extra:]...)
	}
	return len(p), nil
}
