// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mappedKiB is how much of a file is mapped in this process and in memory.
func mappedKiB(t *testing.T, path string) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	_, of, ok := strings.Cut(string(data), path+"\n")
	if !ok {
		t.Fatalf("%s is not mapped", path)
	}
	_, rss, _ := strings.Cut(of, "\nRss:")
	kib := 0
	if _, err := fmt.Sscan(rss, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}

// TestIdleGivesBack writes some megabytes, gives the pages back and reads all.
func TestIdleGivesBack(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir, BoltOptions{})
	token, _ := campaign(t, b)
	var batch Batch
	for i := range 5000 {
		e := event(uint64(i+1), "a", t0)
		e.Reason = strings.Repeat("x", 1000)
		batch.Events = append(batch.Events, e)
	}
	if err := b.Commit(context.Background(), token, batch); err != nil {
		t.Fatal(err)
	}
	whole := func() {
		t.Helper()
		if events, err := b.Events(context.Background(), Query{Limit: maxLimit}); err != nil || len(events) != len(batch.Events) {
			t.Errorf("%d events, %v", len(events), err)
		}
	}
	whole()
	path := filepath.Join(dir, FileName)
	before := mappedKiB(t, path)
	b.giveBack()
	if after := mappedKiB(t, path); before < 1000 || after > before/10 {
		t.Errorf("%d KiB are mapped, before it were %d", after, before)
	}
	whole()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b.giveBack() // a timer that was late
}
