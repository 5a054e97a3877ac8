// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"context"
	"reflect"
	"strings"
	"testing"
	"time"
)

// fill commits some history: fence 3, two nodes, one open intent, 250 events.
func fill(t *testing.T, s Store) {
	t.Helper()
	campaign(t, s)
	campaign(t, s)
	token, _ := campaign(t, s)
	var events []Event
	for i := range 250 {
		events = append(events, event(token.Fence<<32+uint64(i+1), "a", t0.Add(time.Duration(i)*time.Second)))
	}
	events[249].Evidence = map[string]string{"missing": "GPU-a"}
	err := s.Commit(context.Background(), token, Batch{
		Nodes:   []NodeRecord{{Node: "a", State: "SUSPECT", Since: t0, Accepted: []string{"GPU-a"}}, {Node: "b", State: "READY"}},
		Records: []Record{{Kind: RecordAgent, ID: "fac1", Data: []byte(`{"address":"10.8.0.1:9400"}`)}},
		Events:  events,
		Intents: []Intent{{ID: token.Fence<<32 + 9, Node: "b", Action: ActionSuspend, State: IntentDone},
			{ID: token.Fence<<32 + 250, Node: "a", Action: ActionSuspend, State: IntentPending, Steps: []Step{{Target: "slurm", Soft: true}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// whole reads all of a ledger.
func whole(t *testing.T, s Store) (State, []Event) {
	t.Helper()
	st, _, err := s.Load(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	events, err := s.Events(context.Background(), Query{Limit: maxLimit})
	if err != nil {
		t.Fatal(err)
	}
	return st, events
}

// TestBackup carries a ledger from each kind of store to each.
func TestBackup(t *testing.T) {
	now := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	eachStore(t, func(t *testing.T, from place) {
		source := from.open(BoltOptions{})
		fill(t, source)
		var file bytes.Buffer
		n, err := Backup(context.Background(), source, "ams1", now, &file)
		if want := (BackupCounts{Nodes: 2, Records: 1, Intents: 1, Events: 250}); err != nil || n != want {
			t.Fatalf("backup: %+v, %v", n, err)
		}
		if err := source.Close(); err != nil {
			t.Fatal(err)
		}
		state, events := whole(t, from.open(BoltOptions{}))
		eachStore(t, func(t *testing.T, to place) {
			target := to.open(BoltOptions{})
			if n, err = Restore(context.Background(), target, "ams1", bytes.NewReader(file.Bytes())); err != nil || n.Events != 250 {
				t.Fatalf("restore: %+v, %v", n, err)
			}
			if st, got := whole(t, target); !reflect.DeepEqual(st, state) || !reflect.DeepEqual(got, events) {
				t.Errorf("restored %+v and %d events, want %+v and %d", st, len(got), state, len(events))
			}
			if token, _ := campaign(t, target); token.Fence != 4 {
				t.Errorf("the first leadership after the restore has fence %d, want one above the history's 3", token.Fence)
			}
			if _, err := Restore(context.Background(), target, "ams1", bytes.NewReader(file.Bytes())); err == nil || !strings.Contains(err.Error(), "the ledger is not empty: it has 2 nodes") {
				t.Errorf("restore over a ledger: %v", err)
			}
		})
	})
}

// TestBackupDamaged restores nothing of a file that is not whole.
func TestBackupDamaged(t *testing.T) {
	source := open(t, t.TempDir(), BoltOptions{})
	fill(t, source)
	var file bytes.Buffer
	if _, err := Backup(context.Background(), source, "ams1", t0, &file); err != nil {
		t.Fatal(err)
	}
	good := file.String()
	lines := strings.SplitAfter(good, "\n")
	lines = lines[:len(lines)-1]
	target := open(t, t.TempDir(), BoltOptions{})
	for _, c := range []struct{ name, file, want string }{
		{"empty", "", "its last line is missing"},
		{"cut", good[:len(good)/2], "not a line of a backup"},
		{"without the end", strings.Join(lines[:len(lines)-1], ""), "its last line is missing"},
		{"a line lost", strings.Join(append(append([]string{}, lines[:5]...), lines[6:]...), ""), "it should have"},
		{"more behind the end", good + lines[1], "line 257: is behind the end"},
		{"no head", strings.Join(lines[1:], ""), "line 1: not the head of a backup"},
		{"a later format", strings.Replace(good, `"version":1`, `"version":2`, 1), "line 1: format 2, this version knows 1"},
		{"an unknown line", strings.Replace(good, `{"node"`, `{"other"`, 1), "line 2: holds nothing that is known"},
		{"another site", strings.Replace(good, `"ams1"`, `"fra1"`, 1), `backup of site "fra1", not of "ams1"`},
	} {
		_, err := Restore(context.Background(), target, "ams1", strings.NewReader(c.file))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if st, events := whole(t, target); len(st.Nodes)+len(events) != 0 {
		t.Errorf("a damaged file restored %+v and %d events", st, len(events))
	}
}
