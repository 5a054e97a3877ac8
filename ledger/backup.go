// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Entry is one line of a backup; exactly one field is set.
type Entry struct {
	// Begin is the first line, End the last: a file without it is not whole.
	Begin  *BackupHeader `json:"begin,omitempty"`
	Node   *NodeRecord   `json:"node,omitempty"`
	Record *Record       `json:"record,omitempty"`
	Intent *Intent       `json:"intent,omitempty"`
	Event  *Event        `json:"event,omitempty"`
	End    *BackupCounts `json:"end,omitempty"`
}

// BackupHeader says what a backup is of.
type BackupHeader struct {
	Version int       `json:"version"`
	Site    string    `json:"site"`
	Time    time.Time `json:"time"`
}

// BackupCounts are the numbers of entries in a backup.
type BackupCounts struct {
	Nodes   int `json:"nodes"`
	Records int `json:"records"`
	Intents int `json:"intents"`
	Events  int `json:"events"`
}

const (
	// backupVersion is that of the format: JSON, one Entry a line.
	backupVersion = 1
	// maxBackupLine bounds a line, bytes: a record with 512 UUIDs has 30 kB.
	maxBackupLine = 4 << 20
	// maxBackupEntries bounds a backup: 100,000 events and 100,000 nodes, five times.
	maxBackupEntries = 1000000
	// restoreWait is how long a restore waits to lead: longer than a registry's
	// session outlives it.
	restoreWait = 15 * time.Second
	// restoreBatch is how many entries are written at a time.
	restoreBatch = 100
)

// count adds e to the numbers and says whether it is an entry of the ledger.
func (c *BackupCounts) count(e *Entry) bool {
	switch {
	case e.Node != nil:
		c.Nodes++
	case e.Record != nil:
		c.Records++
	case e.Intent != nil:
		c.Intents++
	case e.Event != nil:
		c.Events++
	default:
		return false
	}
	return true
}

// Backup writes the whole ledger of a site to w, as it is at one moment.
func Backup(ctx context.Context, s Store, site string, now time.Time, w io.Writer) (BackupCounts, error) {
	var n BackupCounts
	enc := json.NewEncoder(w)
	err := enc.Encode(Entry{Begin: &BackupHeader{Version: backupVersion, Site: site, Time: now.UTC().Round(0)}})
	if err != nil {
		return n, err
	}
	err = s.Dump(ctx, func(e Entry) error {
		n.count(&e)
		return enc.Encode(e)
	})
	if err != nil {
		return n, err
	}
	return n, enc.Encode(Entry{End: &n})
}

// CheckBackup reads a backup and says what is in it. Its errors name the line.
func CheckBackup(r io.Reader) (BackupCounts, error) {
	_, n, err := readBackup("", r)
	return n, err
}

// readBackup reads a backup whole.
func readBackup(site string, r io.Reader) ([]Entry, BackupCounts, error) {
	var n BackupCounts
	var out []Entry
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxBackupLine)
	ended := false
	for line := 1; lines.Scan(); line++ {
		var e Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, n, fmt.Errorf("line %d: not a line of a backup: %w", line, err)
		}
		switch {
		case line == 1:
			if err := e.Begin.check(site); err != nil {
				return nil, n, fmt.Errorf("line 1: %w", err)
			}
		case ended || len(out) >= maxBackupEntries:
			return nil, n, fmt.Errorf("line %d: is behind the end, or over %d entries", line, maxBackupEntries)
		case e.End != nil:
			if ended = true; *e.End != n {
				return nil, n, fmt.Errorf("line %d: the file has %+v, it should have %+v", line, n, *e.End)
			}
		case !n.count(&e):
			return nil, n, fmt.Errorf("line %d: holds nothing that is known", line)
		default:
			out = append(out, e)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, n, fmt.Errorf("read backup: %w", err)
	}
	if !ended {
		return nil, n, errors.New("the backup is not whole: its last line is missing")
	}
	return out, n, nil
}

// check refuses what is not the backup of a site; an empty name stands for any.
func (h *BackupHeader) check(site string) error {
	switch {
	case h == nil:
		return errors.New("not the head of a backup")
	case h.Version != backupVersion:
		return fmt.Errorf("format %d, this version knows %d", h.Version, backupVersion)
	case site != "" && h.Site != site:
		return fmt.Errorf("backup of site %q, not of %q", h.Site, site)
	}
	return nil
}

// Restore writes a backup of the site into an empty ledger. The file is checked
// whole before anything is written. It leads the ledger meanwhile, and waits 15 s
// for that.
func Restore(ctx context.Context, s Store, site string, r io.Reader) (BackupCounts, error) {
	entries, n, err := readBackup(site, r)
	if err != nil {
		return n, err
	}
	leadCtx, cancel := context.WithTimeout(ctx, restoreWait)
	token, _, err := s.Campaign(leadCtx)
	cancel()
	if err != nil {
		return n, fmt.Errorf("a registry may be running: %w", err)
	}
	st, last, err := s.Load(ctx)
	if err != nil {
		return n, err
	}
	if len(st.Nodes)+len(st.Records)+len(st.Intents) > 0 || last != 0 {
		return n, fmt.Errorf("the ledger is not empty: it has %d nodes, nothing was restored", len(st.Nodes))
	}
	for done := 0; done < len(entries); {
		part := entries[done:min(done+restoreBatch, len(entries))]
		var b Batch
		for i := range part {
			b.add(&part[i])
		}
		if err := s.Commit(ctx, token, b); err != nil {
			return n, fmt.Errorf("stopped after %d of %d entries, empty the ledger before another try: %w", done, len(entries), err)
		}
		done += len(part)
	}
	return n, nil
}

func (b *Batch) add(e *Entry) {
	switch {
	case e.Node != nil:
		b.Nodes = append(b.Nodes, *e.Node)
	case e.Record != nil:
		b.Records = append(b.Records, *e.Record)
	case e.Intent != nil:
		b.Intents = append(b.Intents, *e.Intent)
	case e.Event != nil:
		b.Events = append(b.Events, *e.Event)
	}
}
