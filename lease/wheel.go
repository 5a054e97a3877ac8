// SPDX-License-Identifier: Apache-2.0

package lease

// tick is the wheel's resolution in nanoseconds: a deadline fires at the first
// tick at or after it.
const tick = int64(100e6)

// slots is the wheel's size: 102.4 s. A later deadline waits in the last slot
// and is filed again from there.
const slots = 1024

// unfiled is the slot of a node without a deadline.
const unfiled = -1

// wheel is a timing wheel of nodes, filed by their next deadline. It is lazy: a
// beat moves the deadline but not the node; a node that comes up too early is
// filed again. So a beat costs nothing here, and a node is touched about once
// in each time-to-suspicion.
type wheel struct {
	heads [slots]*node
	now   int64 // the last tick swept
}

// file puts n where deadline needs it, moving it if it is filed later. 0 means
// no deadline.
func (w *wheel) file(n *node, deadline int64) {
	if deadline == 0 {
		w.remove(n)
		return
	}
	at := (deadline + tick - 1) / tick
	at = min(max(at, w.now+1), w.now+slots-1)
	if n.filed != unfiled {
		if n.filed <= at {
			return
		}
		w.remove(n)
	}
	n.filed = at
	head := &w.heads[at%slots]
	if n.next = *head; n.next != nil {
		n.next.prev = n
	}
	*head = n
}

// remove takes n out.
func (w *wheel) remove(n *node) {
	if n.filed == unfiled {
		return
	}
	if n.prev != nil {
		n.prev.next = n.next
	} else {
		w.heads[n.filed%slots] = n.next
	}
	if n.next != nil {
		n.next.prev = n.prev
	}
	n.prev, n.next, n.filed = nil, nil, unfiled
}

// sweep calls due for each node whose slot has come up to now; the node is
// unfiled then, due files it again if it has a deadline.
func (w *wheel) sweep(now int64, due func(*node)) {
	last := now / tick
	for w.now < last {
		w.now++
		for n := w.heads[w.now%slots]; n != nil; n = w.heads[w.now%slots] {
			w.remove(n)
			due(n)
		}
	}
}
