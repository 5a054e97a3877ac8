// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// idleAfter is how long nothing is committed until the pages of the file that are
// mapped are given back.
const idleAfter = 10 * time.Second

// giveBack takes the pages of the file out of this process's memory: a storm of
// changes touches all of them, and a registry that only takes beats needs none.
// They stay in the kernel's cache of the file, and whoever reads one has it again.
// Nothing is lost, for bbolt writes the file itself, not what is mapped; and while
// a transaction is open, the file is not mapped elsewhere.
func (b *Bolt) giveBack() {
	_ = b.db.View(func(tx *bbolt.Tx) error { // closed meanwhile: nothing is mapped
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, tx.DB().Info().Data, uintptr(tx.Size()), unix.MADV_DONTNEED) // only advice
		return nil
	})
}
