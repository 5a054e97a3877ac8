// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

func open(t *testing.T, dir string, opts BoltOptions) *Bolt {
	t.Helper()
	b, err := OpenBolt(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func TestLockedByAnother(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, BoltOptions{})
	_, err := OpenBolt(dir, BoltOptions{LockTimeout: 50 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, FileName)+" is held by another process") {
		t.Errorf("second open: %v", err)
	}
}

func TestForeignFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, FileName), []byte(strings.Repeat("not a ledger ", 2000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenBolt(dir, BoltOptions{}); err == nil || !strings.Contains(err.Error(), FileName) {
		t.Errorf("garbage: %v", err)
	}

	dir = t.TempDir()
	b := open(t, dir, BoltOptions{})
	err := b.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put(keySchema, bytesOf(2)) })
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	if _, err := OpenBolt(dir, BoltOptions{}); err == nil || !strings.Contains(err.Error(), "has schema 2, this version knows 1") {
		t.Errorf("newer schema: %v", err)
	}
}
