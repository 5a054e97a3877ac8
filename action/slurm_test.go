// SPDX-License-Identifier: Apache-2.0

package action

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackpulse/rackpulse/ledger"
)

// stubSlurm is an scontrol of one node whose line lies in a file; it knows the
// changes that the target asks for. What Slurm itself does is tested against a
// real one.
const stubSlurm = `#!/bin/sh
f=$(dirname "$0")/node
echo "$*" >> "$f.calls"
[ -e "$f.down" ] && { echo "slurm_update error: Unable to contact slurm controller (connect failure)" >&2; exit 1; }
case "$*" in
*"show node"*) cat "$f"; exit 0;;
esac
shift 2
state=IDLE reason=
for a in "$@"; do case "$a" in State=*) state=${a#State=};; Reason=*) reason=" Reason=${a#Reason=} [slurm@2026-03-01T12:00:00]";; esac; done
case "$state" in DRAIN) state=IDLE+DRAIN;; RESUME) state=IDLE\*;; esac
[ "$state" = DOWN ] && [ -z "$reason" ] && { echo "You must specify a reason when DOWNING or DRAINING a node. Request denied" >&2; exit 1; }
echo "NodeName=gpu001 Arch=x86_64 State=$state ThreadsPerCore=1 Comment=State=DOWN$reason" > "$f"
[ -e "$f.late" ] && { rm "$f.late"; echo "slurm_update error: Socket timed out on send/recv operation" >&2; exit 1; }
exit 0
`

func TestSlurm(t *testing.T) {
	mark := Order{ID: 9, Reason: "no beat for 30s"}
	ours := " Reason=" + mark.Mark() + " [root@2026-03-01T11:00:00]"
	admin := " Reason=bad DIMM [eve@2026-03-01T11:00:00]"
	silent := " Reason=Not responding [slurm@2026-03-01T11:00:00]"
	for _, tc := range []struct {
		name, state, action string
		hard                bool
		change              string // what is asked of Slurm; empty: nothing
		note                string
	}{
		{"idle", "IDLE", ledger.ActionSuspend, false, "State=DRAIN Reason=rackpulse:7: no beat for 30s", "drained: IDLE+DRAIN"},
		{"busy", "ALLOCATED+CLOUD", ledger.ActionDrain, false, "State=DRAIN", "drained"},
		{"drain never ends jobs", "ALLOCATED", ledger.ActionDrain, true, "State=DRAIN", "drained"},
		{"lost by Slurm, too", "DOWN*" + silent, ledger.ActionSuspend, false, "State=DRAIN", "drained"},
		{"ours already", "IDLE+DRAIN" + ours, ledger.ActionSuspend, false, "", "is drained already"},
		{"an administrator's", "MIXED+DRAIN" + admin, ledger.ActionSuspend, false, "", "left as it is: MIXED+DRAIN, by eve: bad DIMM"},
		{"an administrator's, down", "DOWN" + admin, ledger.ActionSuspend, false, "", "left as it is"},
		{"dead", "ALLOCATED*+DRAIN" + ours, ledger.ActionEvict, true, "State=DOWN Reason=rackpulse:7:", "set down"},
		{"dead, only marked", "ALLOCATED", ledger.ActionEvict, false, "State=DRAIN", "drained"},
		{"dead, an administrator's", "MIXED+DRAIN" + admin, ledger.ActionEvict, true, "State=DOWN Reason=bad DIMM\n", "reason of eve stays"},
		{"dead, down already", "DOWN" + ours, ledger.ActionEvict, true, "", "is down already"},
		{"back", "DOWN*+DRAIN" + ours, ledger.ActionResume, false, "State=RESUME", "resumed: IDLE*"},
		{"back, an administrator's", "IDLE+DRAIN" + admin, ledger.ActionResume, false, "", "left as it is"},
		{"back, nobody's", "IDLE", ledger.ActionResume, false, "", "holds no mark of ours"},
		{"back, an old reason of ours", "IDLE" + ours, ledger.ActionResume, false, "", "holds no mark of ours"},
		{"back, lost by Slurm", "DOWN*" + silent, ledger.ActionResume, false, "", "holds no mark of ours"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, dir := openStub(t, tc.state)
			note, err := s.Apply(t.Context(), Order{ID: 7, Node: "gpu001", Action: tc.action, Hard: tc.hard, Reason: "no beat\nfor 30s"})
			if err != nil || !strings.Contains(note, tc.note) {
				t.Errorf("%q, %v; want %q", note, err, tc.note)
			}
			calls, _ := os.ReadFile(filepath.Join(dir, "node.calls"))
			changed := ""
			for line := range strings.Lines(string(calls)) {
				if rest, ok := strings.CutPrefix(line, "update NodeName=gpu001 "); ok {
					changed += rest
				}
			}
			if tc.change == "" && changed != "" || !strings.HasPrefix(changed, tc.change) {
				t.Errorf("asked for %q, want %q", changed, tc.change)
			}
		})
	}
}

// openStub makes the target over the stub, with the node in a state.
func openStub(t *testing.T, state string) (Target, string) {
	t.Helper()
	dir := t.TempDir()
	state, reason, _ := strings.Cut(state, " Reason=")
	if reason != "" {
		reason = " Reason=" + reason
	}
	for name, text := range map[string]string{"scontrol": stubSlurm, "node": "NodeName=gpu001 Arch=x86_64 State=" + state + " ThreadsPerCore=1" + reason + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	targets, err := Open(parts(t, "targets: [{action: slurm, scontrol: scontrol}]"), deps(dir))
	if err != nil {
		t.Fatal(err)
	}
	return targets[0].Target, dir
}

// TestSlurmAmbiguous: an answer that came too late counts by what is read back,
// and a controller that is away is an error.
func TestSlurmAmbiguous(t *testing.T) {
	s, dir := openStub(t, "IDLE")
	touch := func(name string) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := Order{ID: 7, Node: "gpu001", Action: ledger.ActionSuspend, Reason: "x"}
	touch("node.late")
	if note, err := s.Apply(t.Context(), o); err != nil || !strings.HasPrefix(note, "drained") {
		t.Errorf("%q, %v", note, err)
	}
	touch("node.down")
	if _, err := s.Apply(t.Context(), o); err == nil || !strings.Contains(err.Error(), "Unable to contact slurm controller") {
		t.Errorf("%v", err)
	}
	o.Node = "gpu001 State=IDLE"
	if _, err := s.Apply(t.Context(), o); err == nil {
		t.Error("a node name with a blank was taken")
	}
}
