// SPDX-License-Identifier: Apache-2.0

package action

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/ledger"
)

func init() { register("slurm", newSlurm) }

const (
	// slurmTimeout bounds one call of scontrol; its own, MessageTimeout, is 10 s
	// by default.
	slurmTimeout = 20 * time.Second
	// maxSlurmOutput bounds what is read of a call, bytes.
	maxSlurmOutput = 64 << 10
	// slurmSilent is the reason that slurmctld gives a node which it lost itself.
	slurmSilent = "Not responding"
)

// slurmConfig is a target {action: slurm}.
type slurmConfig struct {
	head `yaml:",inline"`
	// Scontrol is the program; empty: the one in PATH.
	Scontrol string `yaml:"scontrol"`
	// ConfFile is Slurm's configuration; empty: Slurm's own default.
	ConfFile string `yaml:"conf_file"`
}

// slurm marks nodes in Slurm: DRAIN keeps new jobs away and lets running ones
// end; DOWN ends and requeues them. A node that somebody else drained or set
// down keeps its reason, and is never resumed.
type slurm struct {
	scontrol string
	env      []string
}

func newSlurm(part config.Part, deps Deps) (Target, error) {
	var c slurmConfig
	if err := part.Decode(&c); err != nil {
		return nil, err
	}
	name := c.Scontrol
	if name == "" {
		name = "scontrol"
	} else {
		name = deps.Resolve(name)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("scontrol: %w", err)
	}
	s := &slurm{scontrol: path, env: append(os.Environ(), "LC_ALL=C", "SLURM_TIME_FORMAT=standard")}
	if c.ConfFile != "" {
		file := deps.Resolve(c.ConfFile)
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("conf_file: %w", err)
		}
		s.env = append(s.env, "SLURM_CONF="+file)
	}
	return s, nil
}

// slurmNode is what Slurm says of a node.
type slurmNode struct {
	state  string          // as Slurm writes it
	flags  map[string]bool // its words: IDLE, DRAIN, DOWN, NOT_RESPONDING, ...
	reason string
	by     string // who set the reason
}

// taken says whether somebody else keeps work off the node.
func (n *slurmNode) taken() bool {
	off := n.flags["DRAIN"] || n.flags["DOWN"] || n.flags["FAIL"]
	return off && !Ours(n.reason) && (n.flags["DRAIN"] || n.flags["FAIL"] || n.reason != slurmSilent && n.reason != "")
}

// left is the note of a node that is left as it is.
func (n *slurmNode) left() string {
	return fmt.Sprintf("left as it is: %s, by %s: %s", n.state, n.by, n.reason)
}

var (
	slurmNodeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	slurmState    = regexp.MustCompile(` State=(\S+)`)
	slurmReason   = regexp.MustCompile(` Reason=(.*?) \[([^\]@]*)@[^\]]*\]`)
)

// parseSlurmNode reads the line of "scontrol show node NAME --oneliner". The
// first State stands before all free text.
func parseSlurmNode(line string) (*slurmNode, error) {
	m := slurmState.FindStringSubmatch(line)
	if m == nil {
		return nil, fmt.Errorf("scontrol shows no state: %q", line[:min(len(line), maxMark)])
	}
	n := &slurmNode{state: m[1], flags: map[string]bool{}}
	for word := range strings.SplitSeq(m[1], "+") {
		if strings.Contains(word, "*") {
			n.flags["NOT_RESPONDING"] = true
		}
		n.flags[strings.TrimRight(word, "*$~#!%@^-")] = true
	}
	if m := slurmReason.FindStringSubmatch(line); m != nil {
		n.reason, n.by = m[1], m[2]
	}
	return n, nil
}

// Apply implements Target.
func (s *slurm) Apply(ctx context.Context, o Order) (string, error) {
	if !slurmNodeName.MatchString(o.Node) {
		return "", fmt.Errorf("node name %q is none of Slurm's", o.Node)
	}
	n, err := s.show(ctx, o.Node)
	if err != nil {
		return "", err
	}
	switch {
	case o.Action == ledger.ActionResume:
		return s.resume(ctx, &o, n)
	case o.Hard && o.Action == ledger.ActionEvict:
		return s.down(ctx, &o, n)
	}
	return s.drain(ctx, &o, n)
}

// drain keeps new jobs away.
func (s *slurm) drain(ctx context.Context, o *Order, n *slurmNode) (string, error) {
	switch {
	case strings.HasPrefix(o.Reason, windowReason):
		return "is in a reservation of Slurm's own: " + n.state, nil
	case n.taken():
		return n.left(), nil
	case Ours(n.reason) && (n.flags["DRAIN"] || n.flags["DOWN"]):
		return "is drained already: " + n.reason, nil
	}
	return s.set(ctx, o, "drained", func(n *slurmNode) bool { return n.flags["DRAIN"] && Ours(n.reason) }, "State=DRAIN", "Reason="+o.Mark())
}

// down ends the node's jobs; those that may be are requeued. The reason of
// somebody else stays.
func (s *slurm) down(ctx context.Context, o *Order, n *slurmNode) (string, error) {
	switch {
	case n.flags["DOWN"] && (Ours(n.reason) || n.taken()):
		return "is down already: " + n.reason, nil
	case n.taken():
		// Slurm wants a reason with every DOWN: it gets the one that is there.
		reason := cmp.Or(n.reason, "no reason was given")
		return s.set(ctx, o, "set down, jobs requeued; the reason of "+n.by+" stays",
			func(now *slurmNode) bool { return now.flags["DOWN"] && now.reason == reason }, "State=DOWN", "Reason="+reason)
	}
	return s.set(ctx, o, "set down, jobs requeued", func(n *slurmNode) bool { return n.flags["DOWN"] && Ours(n.reason) }, "State=DOWN", "Reason="+o.Mark())
}

// resume takes our own mark off.
func (s *slurm) resume(ctx context.Context, o *Order, n *slurmNode) (string, error) {
	switch {
	case n.taken():
		return n.left(), nil
	case !Ours(n.reason) || !n.flags["DRAIN"] && !n.flags["DOWN"]:
		return "holds no mark of ours: " + n.state, nil
	}
	return s.set(ctx, o, "resumed", func(n *slurmNode) bool { return !n.flags["DRAIN"] && !n.flags["DOWN"] }, "State=RESUME")
}

// set changes the node and reads it back. An answer that came too late may have
// been carried out all the same: what counts is what is read.
func (s *slurm) set(ctx context.Context, o *Order, done string, good func(*slurmNode) bool, args ...string) (string, error) {
	_, err := s.call(ctx, append([]string{"update", "NodeName=" + o.Node}, args...)...)
	n, readErr := s.show(ctx, o.Node)
	switch {
	case readErr != nil:
		return "", errors.Join(err, readErr)
	case good(n):
		return fmt.Sprintf("%s: %s", done, n.state), nil
	case err != nil:
		return "", err
	}
	return "", fmt.Errorf("slurm took the change, but shows %s, reason %q", n.state, n.reason)
}

// show reads one node.
func (s *slurm) show(ctx context.Context, node string) (*slurmNode, error) {
	out, err := s.call(ctx, "--oneliner", "show", "node", node)
	if err != nil {
		return nil, err
	}
	return parseSlurmNode(out)
}

// Witness implements Witness: a node that slurmctld lost as well is dead for
// both. One that it has not lost yet says nothing: it looks less often.
func (s *slurm) Witness(ctx context.Context, node string) (ledger.Witness, string) {
	if !slurmNodeName.MatchString(node) {
		return ledger.WitnessSilent, ""
	}
	n, err := s.show(ctx, node)
	switch {
	case err != nil:
		return ledger.WitnessSilent, err.Error()
	case n.flags["NOT_RESPONDING"]:
		return ledger.WitnessDead, "slurmctld gets no answer from it either"
	}
	return ledger.WitnessSilent, "slurmctld has not missed it"
}

// call runs scontrol.
func (s *slurm) call(ctx context.Context, args ...string) (string, error) {
	return runSlurm(ctx, s.scontrol, s.env, maxSlurmOutput, args...)
}

// runSlurm runs a program of Slurm and returns the first most bytes of what it
// prints.
func runSlurm(ctx context.Context, program string, env []string, most int, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, slurmTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = env
	cmd.WaitDelay = time.Second
	out, bad := limited{most: most}, limited{most: maxSlurmOutput}
	cmd.Stdout, cmd.Stderr = &out, &bad
	err := cmd.Run()
	text := strings.Join(strings.Fields(bad.String()+" "+out.String()), " ")
	name := filepath.Base(program)
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s %s: no answer: %w", name, args[0], ctx.Err())
	case err != nil:
		return "", fmt.Errorf("%s: %w: %s", name, err, text[:min(len(text), maxMark)])
	}
	return out.String(), nil
}

// Close implements Target.
func (s *slurm) Close() error { return nil }

// limited keeps the first bytes that are written to it.
type limited struct {
	bytes.Buffer
	most int
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	if room := l.most - l.Len(); room > 0 {
		l.Buffer.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}
