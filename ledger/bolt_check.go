// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
)

// A file of bbolt's is mapped into memory: a truncated one would end the process
// with SIGBUS, a damaged one with a panic, at any later time. So it is looked at
// before it is opened, and read through once.

const (
	boltMagic = 0xED0CDAED
	// boltMetas is how many bytes hold the two meta pages, at the largest page.
	boltMetas = 2 * 64 << 10
	// Offsets within a page: its header, and the meta's fields behind it.
	metaAt, pageSizeAt, highAt, txAt, sumAt = 16, 16 + 8, 16 + 40, 16 + 48, 16 + 56
)

// checkSize refuses a file that ends before its last page. A file that is not
// there, or empty, is a new one.
func checkSize(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	head := make([]byte, boltMetas)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	pages, size, ok := newestMeta(head[:n])
	switch {
	case !ok:
		return errors.New("is not a ledger, or its beginning is damaged")
	case info.Size() < int64(pages)*int64(size):
		return fmt.Errorf("is cut: %d bytes, its pages take %d; restore a backup", info.Size(), int64(pages)*int64(size))
	}
	return nil
}

// newestMeta returns the number of pages and their size that the newer of the
// valid meta pages tells. The second lies one page behind the first, whose size
// only they know.
func newestMeta(head []byte) (pages uint64, size uint32, ok bool) {
	le := binary.LittleEndian
	var newest uint64
	for at := 0; at+sumAt+8 <= len(head); at += 1 << 10 { // pages have 1 to 64 KiB
		p := head[at:]
		if le.Uint32(p[metaAt:]) != boltMagic {
			continue
		}
		h := fnv.New64a()
		_, _ = h.Write(p[metaAt:sumAt])
		if h.Sum64() != le.Uint64(p[sumAt:]) {
			continue
		}
		if tx := le.Uint64(p[txAt:]); !ok || tx > newest {
			pages, size, newest, ok = le.Uint64(p[highAt:]), le.Uint32(p[pageSizeAt:]), tx, true
		}
	}
	return pages, size, ok
}

// openWhole opens a file that was checked and reads all of it once. What bbolt
// panics at becomes an error.
func openWhole(path string, lock time.Duration) (db *bbolt.DB, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			db, err = nil, fmt.Errorf("is damaged (%v); restore a backup", r)
		}
	}()
	db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lock, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return nil, err
	}
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				if len(k) == 0 || v == nil {
					return fmt.Errorf("is damaged: bucket %q holds what is none of ours", name)
				}
				return nil
			})
		})
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}
