// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/testtool"
)

// slurmLab is a real Slurm on loopback: munged, slurmctld, and a slurmd for each
// node. slurmctld itself would give a silent node up only after 300 s.
type slurmLab struct {
	t    *testing.T
	dir  string
	conf string
	ctld *process
	d    map[string]*process
}

const slurmConf = `ClusterName=lab
SlurmctldHost=%[1]s(127.0.0.1)
SlurmctldPort=%[3]s
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=%[2]s/munge.sock
CredType=cred/munge
StateSaveLocation=%[2]s/state
SlurmdSpoolDir=%[2]s/spool-%%n
SlurmctldPidFile=%[2]s/slurmctld.pid
SlurmdPidFile=%[2]s/slurmd-%%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
MessageTimeout=5
SlurmctldTimeout=30
SlurmdTimeout=300
ReturnToService=1
`

func startSlurm(t *testing.T, nodes ...string) *slurmLab { return startSlurmWith(t, "", nodes...) }

// startSlurmWith is startSlurm with more lines of slurm.conf.
func startSlurmWith(t *testing.T, extra string, nodes ...string) *slurmLab {
	t.Helper()
	if os.Getuid() != 0 {
		testtool.Missing(t, "a Slurm of several slurmd on one host wants root")
	}
	l := &slurmLab{t: t, dir: t.TempDir(), d: map[string]*process{}}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	taken := map[string]bool{} // the kernel may give a free port twice
	port := func() string {
		for {
			if _, p, _ := net.SplitHostPort(freePort(t)); !taken[p] {
				taken[p] = true
				return p
			}
		}
	}
	conf := fmt.Sprintf(slurmConf, host, l.dir, port()) + extra
	for _, n := range nodes {
		conf += fmt.Sprintf("NodeName=%s NodeHostname=%s NodeAddr=127.0.0.1 Port=%s CPUs=1 RealMemory=500 State=UNKNOWN\n", n, host, port())
	}
	conf += "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
	l.conf = filepath.Join(l.dir, "slurm.conf")
	key := make([]byte, 1024)
	_, _ = rand.Read(key)
	for _, dir := range []string{l.dir, filepath.Dir(l.dir)} {
		if err := os.Chmod(dir, 0o755); err != nil { // munged insists
			t.Fatal(err)
		}
	}
	for name, data := range map[string][]byte{l.conf: []byte(conf), filepath.Join(l.dir, "munge.key"): key} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(l.dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(l.dir, name) }
	start(t, l.dir, "munged", testtool.Binary(t, "munged"), "--foreground", "--force", "--key-file="+in("munge.key"), "--socket="+in("munge.sock"),
		"--pid-file="+in("munged.pid"), "--log-file="+in("munged-own.log"), "--seed-file="+in("munge.seed"))
	l.ctld = l.run("slurmctld", "slurmctld", "-D", "-i")
	for _, n := range nodes {
		l.startd(n)
	}
	for _, n := range nodes {
		l.await(n, 30*time.Second, "State=IDLE ")
	}
	return l
}

// run starts a daemon of Slurm.
func (l *slurmLab) run(name, program string, args ...string) *process {
	return startWith(l.t, l.dir, name, func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), "SLURM_CONF="+l.conf) }, testtool.Binary(l.t, program), args...)
}

func (l *slurmLab) startd(node string) {
	if err := os.MkdirAll(filepath.Join(l.dir, "spool-"+node), 0o700); err != nil {
		l.t.Fatal(err)
	}
	l.d[node] = l.run("slurmd-"+node, "slurmd", "-D", "-N", node)
}

// cmd runs a command of Slurm.
func (l *slurmLab) cmd(program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "SLURM_CONF="+l.conf)
	cmd.Dir = l.dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// await waits until the node's line holds all texts.
func (l *slurmLab) await(node string, limit time.Duration, texts ...string) {
	l.t.Helper()
	s := &stack{t: l.t}
	s.eventually(limit, fmt.Sprintf("Slurm shows %q for %s", texts, node), func() error {
		out, err := l.cmd("scontrol", "--oneliner", "show", "node", node)
		if err == nil && !holdsAll(out, texts) {
			err = errors.New(out[max(0, strings.Index(out, "State=")):])
		}
		return err
	})
}

// TestE2ESlurm lets nodes of a real Slurm die and come back, in mode hard with no
// witness: new work stops, the running job leaves, the node is given back; what
// an administrator drained stays so; a controller that does not answer in between
// changes nothing of that.
func TestE2ESlurm(t *testing.T) {
	t.Parallel()
	lab := startSlurm(t, "gpu001", "cpu001")
	s := newSmall(t, "actions: {mode: hard, witness: none, targets: [{action: slurm, conf_file: "+lab.conf+"}]}\n")
	c := newCrew(s, "gpu001", "gpu002", "pair1", "cpu001", "cpu002")
	for n := range c.stop {
		s.awaitState(n, "READY", 30*time.Second)
	}
	if out, err := lab.cmd("scontrol", "update", "NodeName=cpu001", "State=DRAIN", "Reason=bad DIMM"); err != nil {
		t.Fatal(err, out)
	}
	out, err := lab.cmd("sbatch", "--parsable", "--requeue", "-w", "gpu001", "--wrap", "sleep 600")
	if err != nil {
		t.Fatal(err, out)
	}
	job := strings.TrimSpace(out)
	s.eventually(30*time.Second, "the job runs", func() error {
		if out, err := lab.cmd("squeue", "-h", "-j", job, "-o", "%T %N"); err != nil || out != "RUNNING gpu001\n" {
			return fmt.Errorf("%q, %v", out, err)
		}
		return nil
	})
	// Two nodes of different racks die; one of them was drained by somebody.
	died := time.Now()
	for _, n := range []string{"gpu001", "cpu001"} {
		c.kill(n)
		lab.d[n].signal(syscall.SIGKILL)
	}
	lab.await("gpu001", 30*time.Second, "DRAIN", "Reason=rackpulse:")
	t.Logf("no new work %.1f s after the last beat", time.Since(died).Seconds())
	s.eventually(40*time.Second, "the job leaves the node", func() error {
		if out, err := lab.cmd("squeue", "-h", "-j", job, "-o", "%T"); err != nil || !strings.HasPrefix(out, "PENDING") {
			return fmt.Errorf("%q, %v", out, err)
		}
		return nil
	})
	left := time.Since(died)
	t.Logf("the job was requeued %.1f s after the last beat", left.Seconds())
	if left > 40*time.Second {
		t.Errorf("the job left after %s", left)
	}
	lab.await("cpu001", 20*time.Second, "DOWN", "DRAIN", "Reason=bad DIMM [root@")
	// They come back, while the controller stands still for a while.
	lab.ctld.signal(syscall.SIGSTOP)
	c.start("gpu001")
	c.start("cpu001")
	s.awaitState("gpu001", "READY", 90*time.Second)
	lab.startd("gpu001")
	lab.startd("cpu001")
	time.Sleep(8 * time.Second) // a call of the outbox runs into it
	lab.ctld.signal(syscall.SIGCONT)
	lab.await("gpu001", 60*time.Second, "State=IDLE")
	s.eventually(60*time.Second, "the job runs again", func() error {
		if out, err := lab.cmd("squeue", "-h", "-j", job, "-o", "%T"); err != nil || out != "RUNNING\n" && out != "CONFIGURING\n" && !strings.HasPrefix(out, "PENDING") {
			return fmt.Errorf("%q, %v", out, err)
		}
		return nil
	})
	lab.await("cpu001", 10*time.Second, "DRAIN", "Reason=bad DIMM [root@")
	lab.await("gpu001", 100*time.Second, "ActiveFeatures=rp_health_ready,rp_rack_r01 ")
	audit := s.cli("audit", "gpu001") + s.cli("audit", "cpu001")
	for _, want := range []string{"suspend slurm: done", "evict slurm: done", "resume slurm: done", "the reason of root stays", "left as it is"} {
		if !strings.Contains(audit, want) {
			t.Errorf("the audit does not say %q", want)
		}
	}
	t.Logf("audit:\n%s", audit)
	if failed := strings.Count(audit, "resume slurm: failed"); failed == 0 {
		t.Log("no call failed while the controller stood still")
	}
	if out := s.cli("outbox"); strings.Contains(out, "gpu001") {
		t.Errorf("the outbox still holds\n%s", out)
	}
	lab.maintenance(s)
}

// maintenance makes a reservation for maintenance and takes it away again: the
// registry follows, and marks nothing.
func (l *slurmLab) maintenance(s *small) {
	t := l.t
	t.Helper()
	if out, err := l.cmd("scontrol", "create", "reservation", "ReservationName=fw", "StartTime=now", "Duration=60", "Users=root", "Flags=MAINT,IGNORE_JOBS", "Nodes=gpu001"); err != nil {
		t.Fatal(err, out)
	}
	s.awaitState("gpu001", "MAINT", 60*time.Second)
	if n := s.node("gpu001"); n.HeldBy != "window slurm/fw" || !strings.Contains(n.Reason, "maintenance window slurm/fw, for ") {
		t.Errorf("held by %q: %s", n.HeldBy, n.Reason)
	}
	time.Sleep(2 * time.Second) // the outbox would have acted by now
	if out, err := l.cmd("scontrol", "--oneliner", "show", "node", "gpu001"); err != nil || strings.Contains(out, "DRAIN") {
		t.Errorf("%v: the node was marked: %s", err, out)
	}
	if out, err := l.cmd("scontrol", "delete", "ReservationName=fw"); err != nil {
		t.Fatal(err, out)
	}
	s.awaitState("gpu001", "READY", 60*time.Second)
}
