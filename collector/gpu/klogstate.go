// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/xid"
)

const (
	logStateFile     = "kernel_log.json"
	maxLogStateBytes = 1 << 20
	// The position is written soon after an event, else once in a while.
	saveEvent = time.Second
	savePlain = 10 * time.Second
)

// logPosition is how far the kernel log was read.
type logPosition struct {
	BootID string `json:"boot_id"`
	// Sequence is the last record of /dev/kmsg; it is of this boot only.
	Sequence *uint64 `json:"sequence,omitempty"`
	// Cursor and CursorTime, in microseconds of Unix time, are the journal's.
	Cursor     string    `json:"cursor,omitempty"`
	CursorTime int64     `json:"cursor_time,omitempty"`
	File       *fileMark `json:"file,omitempty"`
	// Recovery is the text of the last XID 154 of this boot, by PCI address.
	Recovery map[string]string `json:"recovery,omitempty"`
}

// fileMark is a place in a log file.
type fileMark struct {
	Path   string `json:"path"`
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	Offset int64  `json:"offset"`
}

// logState keeps the position in the state directory.
type logState struct {
	path string // "": memory only

	mu             sync.Mutex
	pos            logPosition
	dirty, counted bool
	saved          time.Time
}

// loadLogState reads the position. With an error the state is an empty one.
func loadLogState(dir, boot string) (*logState, error) {
	s := &logState{pos: logPosition{BootID: boot}}
	if dir == "" {
		return s, nil
	}
	s.path = filepath.Join(dir, logStateFile)
	f, err := os.Open(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	defer f.Close()
	var pos logPosition
	if err := json.NewDecoder(io.LimitReader(f, maxLogStateBytes)).Decode(&pos); err != nil {
		return s, fmt.Errorf("%s: %w", s.path, err)
	}
	if pos.BootID != boot || boot == "" {
		pos.BootID, pos.Sequence, pos.Recovery = boot, nil, nil
	}
	for pci := range pos.Recovery {
		if is, ok := xid.NormalizePCI(pci); !ok || is != pci || len(pos.Recovery) > maxGPUs {
			pos.Recovery = nil
			break
		}
	}
	s.pos = pos
	return s, nil
}

// kept tells whether the position outlives the agent. Where it does not, a log
// is read from its end: nobody knows what an earlier run has counted.
func (s *logState) kept() bool { return s.path != "" }

// position returns a copy.
func (s *logState) position() logPosition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pos
}

// read notes a new position.
func (s *logState) read(set func(p *logPosition)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set(&s.pos)
	s.dirty = true
}

// event says that the position is after something that was counted.
func (s *logState) event() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counted = true
}

func (s *logState) recovery(pci, text string) {
	s.read(func(p *logPosition) {
		if p.Recovery == nil {
			p.Recovery = make(map[string]string)
		}
		if len(p.Recovery) < maxGPUs {
			p.Recovery[pci] = text
		}
	})
}

func (s *logState) recoveries() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.pos.Recovery)
}

// save writes the position if it is time to, or at the end.
func (s *logState) save(end bool, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait := savePlain
	if s.counted {
		wait = saveEvent
	}
	if s.path == "" || !s.dirty || !end && now.Sub(s.saved).Abs() < wait {
		return nil
	}
	data, err := json.Marshal(&s.pos)
	if err != nil {
		return err
	}
	s.saved = now
	if err := config.ReplaceFile(s.path, append(data, '\n')); err != nil {
		return err
	}
	s.dirty, s.counted = false, false
	return nil
}

// bootID identifies this boot of the kernel; empty where it cannot be known.
func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
