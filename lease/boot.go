// SPDX-License-Identifier: Apache-2.0

package lease

// EvidenceBoot is the key of the evidence that the event of a node's return after
// a loss holds where that is known: BootSame or BootAnother. A node that was not
// booted kept its work while it was given up.
const (
	EvidenceBoot = "boot"
	BootSame     = "the same"
	BootAnother  = "another"
)

// boot is what a beat tells of the node's boot, held against the beat before.
type boot uint8

const (
	bootUnknown boot = iota
	bootSame
	bootAnother
)

// String is the boot as evidence.
func (b boot) String() string { return [...]string{"", BootSame, BootAnother}[b] }

// recall takes in what the first beat of a lost node tells of its boot.
func (n *node) recall(b *beat) {
	if n.state == Expired {
		n.boot = n.bootOf(b)
	}
}

// bootOf compares: the same start of the agent is the same boot, else its boot id
// tells, if it is known from before.
func (n *node) bootOf(b *beat) boot {
	switch {
	case b.epoch != 0 && b.epoch == n.epoch:
		return bootSame
	case b.hello == nil || n.info == nil || b.hello.BootID == "" || n.info.BootID == "":
		return bootUnknown
	case b.hello.BootID == n.info.BootID:
		return bootSame
	}
	return bootAnother
}
