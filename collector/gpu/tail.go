// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"bufio"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
)

const (
	maxTailLine = 300 // bytes that are kept of a line
	maxTailLogs = 20  // lines of one child that reach the log
)

// tellingLines begin lines that explain an end better than the last line does:
// Go prints registers last, the dynamic linker one line only.
var tellingLines = []string{"fatal error:", "panic:", "SIG", "symbol lookup error", "terminate called"}

// tail reads a child's stderr to its end and keeps the line that tells most.
type tail struct {
	file *os.File
	done chan struct{}

	mu      sync.Mutex
	line    string
	telling bool
}

func newTail(f *os.File, logger log.Logger) *tail {
	t := &tail{file: f, done: make(chan struct{})}
	go t.run(logger)
	return t
}

func (t *tail) run(logger log.Logger) {
	defer close(t.done)
	r := bufio.NewReaderSize(t.file, 4096)
	for logged := 0; ; {
		part, isPrefix, err := r.ReadLine()
		if err != nil {
			return
		}
		line := strings.TrimSpace(strings.ToValidUTF8(string(part[:min(len(part), maxTailLine)]), "?"))
		for isPrefix && err == nil {
			_, isPrefix, err = r.ReadLine()
		}
		if line == "" {
			continue
		}
		t.keep(line)
		if logged < maxTailLogs {
			logged++
			level.Debug(logger).Log("msg", "child process says", "line", line)
		}
	}
}

func (t *tail) keep(line string) {
	telling := false
	for _, s := range tellingLines {
		telling = telling || strings.Contains(line, s)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.telling { // the first telling line stays
		t.line, t.telling = line, telling
	}
}

// wait waits for the end of the output, but not for ever: a grandchild may hold
// the pipe. It returns the line that tells most.
func (t *tail) wait(limit time.Duration) string {
	select {
	case <-t.done:
	case <-time.After(limit):
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.line
}

// close ends the reader.
func (t *tail) close() {
	t.file.Close()
	<-t.done
}
