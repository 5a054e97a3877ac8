// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rackpulse/rackpulse/collector"
)

const mib = 1 << 20

// ownersNode is the owners of a node with a /proc and cgroups of its own.
type ownersNode struct {
	*owners
	rec *recorder
	cfg Config
}

func newOwnersNode(t *testing.T, cfg Config) *ownersNode {
	t.Helper()
	n := &ownersNode{rec: newRecorder(), cfg: cfg.withDefaults()}
	n.owners = newOwners(log.NewNopLogger(), n.rec, func() *Config { return &n.cfg })
	n.proc.root, n.cgroup = t.TempDir(), t.TempDir()
	n.pods.socket = filepath.Join(n.proc.root, "no.sock")
	return n
}

// process gives the node a process.
func (n *ownersNode) process(t *testing.T, pid int, comm, cgroup string) {
	t.Helper()
	dir := filepath.Join(n.proc.root, fmt.Sprint(pid))
	write(t, filepath.Join(dir, "comm"), comm+"\n")
	write(t, filepath.Join(dir, "cgroup"), cgroup+"\n")
}

// show takes one pass with these lists and returns the page.
func (n *ownersNode) show(t *testing.T, gpus ...GPUProcesses) string {
	t.Helper()
	devices := []Device{{Index: "0", UUID: uuidA, Name: "nvidia0"}, {Index: "1", UUID: uuidB, Name: "nvidia1"}}
	n.saw(&Sample{At: time.Now(), Devices: devices, Processes: &ProcessTable{At: time.Now(), GPUs: gpus}})
	n.processes(time.Now())
	return n.rec.page(t)
}

const (
	inJob42   = "0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0"
	inJob43   = "4:memory:/slurm/uid_1000/job_43/step_0"
	inPod     = "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-2.scope"
	inSession = "0::/user.slice/user-1000.slice/session-3.scope"
)

func TestOwnersOfProcesses(t *testing.T) {
	n := newOwnersNode(t, Config{})
	n.process(t, 100, "python", inJob42)
	n.process(t, 101, "python", inJob43)
	n.process(t, 102, "tritonserver", inPod)
	n.process(t, 103, "miner", inSession)
	page := n.show(t,
		GPUProcesses{UUID: uuidA, Kinds: kindCompute | kindGraphics, Used: 1000 * mib, Processes: []Process{
			{PID: 100, Kind: kindCompute, Memory: 300 * mib},
			{PID: 101, Kind: kindCompute | kindGraphics, Memory: 200 * mib},
			{PID: 103, Kind: kindCompute, Memory: 50 * mib},
			{PID: 999, Kind: kindCompute, Memory: 100 * mib}, // has ended since
		}},
		GPUProcesses{UUID: uuidB, Kinds: kindCompute, Used: 100 * mib, Processes: []Process{{PID: 102, Kind: kindCompute, Memory: 120 * mib}}})
	a, b := `UUID="`+uuidA+`",gpu="0"`, `UUID="`+uuidB+`",gpu="1"`
	want(t, "memory", series(page, "rackpulse_gpu_process_memory_bytes"), "6.815744e+08", "1.2582912e+08")
	want(t, "compute", series(page, "rackpulse_gpu_processes", a, `type="compute"`), "4")
	want(t, "graphics", series(page, "rackpulse_gpu_processes", a, `type="graphics"`), "1")
	want(t, "no list, no number", series(page, "rackpulse_gpu_processes", b), "1")
	want(t, "orphan", series(page, "rackpulse_gpu_orphan_memory_bytes", a), "5.24288e+07")
	want(t, "no orphan", series(page, "rackpulse_gpu_orphan_memory_bytes", b), "0")
	want(t, "unowned", series(page, "rackpulse_gpu_unowned_memory_bytes", a), "3.670016e+08")
	want(t, "never below 0", series(page, "rackpulse_gpu_unowned_memory_bytes", b), "0")
	want(t, "jobs", series(page, "rackpulse_gpu_job_info"), "1", "1")
	want(t, "job by cgroup v2", series(page, "rackpulse_gpu_job_info", a, `job_id="42"`, fmt.Sprintf(`uid="%d"`, os.Getuid())), "1")
	want(t, "job by cgroup v1", series(page, "rackpulse_gpu_job_info", a, `job_id="43",uid="1000"`), "1")
	want(t, "per process, by default", series(page, "rackpulse_gpu_pid_memory_bytes"))
	want(t, "up", series(page, "rackpulse_source_up", `source="gpu_processes"`), "1")
	problems, err := testutil.GatherAndLint(n.rec.Store)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

// TestOwnersUnmanaged: on a node without a batch system nothing is an orphan.
func TestOwnersUnmanaged(t *testing.T) {
	n := newOwnersNode(t, Config{})
	n.process(t, 7, "Xorg", inSession)
	gpu := GPUProcesses{UUID: uuidA, Kinds: kindCompute, Used: -1, Processes: []Process{{PID: 7, Kind: kindGraphics, Memory: mib}}}
	page := n.show(t, gpu)
	want(t, "memory", series(page, "rackpulse_gpu_process_memory_bytes"), "1.048576e+06")
	want(t, "orphan", series(page, "rackpulse_gpu_orphan_memory_bytes"))
	want(t, "unowned, of an unknown use", series(page, "rackpulse_gpu_unowned_memory_bytes"))
	// slurmd starts.
	if err := os.MkdirAll(filepath.Join(n.cgroup, "system.slice/slurmstepd.scope"), 0o755); err != nil {
		t.Fatal(err)
	}
	want(t, "orphan beside Slurm", series(n.show(t, gpu), "rackpulse_gpu_orphan_memory_bytes"), "1.048576e+06")
}

// TestOwnersUnknown: what is not known makes the sums absent that need it.
func TestOwnersUnknown(t *testing.T) {
	n := newOwnersNode(t, Config{})
	n.slurm = true
	n.process(t, 1, "a", inJob42)
	page := n.show(t,
		GPUProcesses{UUID: uuidA, Kinds: kindCompute, Used: 5 * mib, Processes: []Process{{PID: 1, Kind: kindCompute, Memory: mib}, {PID: 2, Kind: kindCompute, Memory: -1}}},
		GPUProcesses{UUID: uuidB, Err: "nvmlDeviceGetComputeRunningProcesses: ERROR_NOT_SUPPORTED"},
		GPUProcesses{UUID: "GPU-not-sampled", Kinds: kindCompute, Processes: []Process{{PID: 1, Kind: kindCompute, Memory: mib}}})
	want(t, "count", series(page, "rackpulse_gpu_processes"), "2")
	for _, name := range []string{"process", "orphan", "unowned"} {
		want(t, name, series(page, "rackpulse_gpu_"+name+"_memory_bytes"))
	}
	want(t, "reason", series(page, "rackpulse_source_info", `reason="GPU 1: nvmlDeviceGetComputeRunningProcesses: ERROR_NOT_SUPPORTED"`), "1")

	// A cgroup that may not be read may be a job's.
	if err := os.MkdirAll(filepath.Join(n.proc.root, "5", "cgroup"), 0o755); err != nil {
		t.Fatal(err)
	}
	page = n.show(t, GPUProcesses{UUID: uuidA, Kinds: kindCompute, Processes: []Process{{PID: 5, Kind: kindCompute, Memory: mib}}})
	want(t, "memory", series(page, "rackpulse_gpu_process_memory_bytes"), "1.048576e+06")
	want(t, "orphan", series(page, "rackpulse_gpu_orphan_memory_bytes"))
	want(t, "reason", series(page, "rackpulse_source_info", `reason="the cgroups of 1 processes cannot be read"`), "1")

	// No list at all.
	n.saw(&Sample{Processes: &ProcessTable{At: time.Now(), Err: "nvml: libnvidia-ml.so.1 not found (no NVIDIA driver)"}})
	n.processes(time.Now())
	page = n.rec.page(t)
	want(t, "down", series(page, "rackpulse_source_up", `source="gpu_processes"`), "0")
	want(t, "errors", series(page, "rackpulse_source_read_errors_total", `source="gpu_processes"`), "1")
}

// TestOwnersForeignPIDs: in a PID namespace of its own the agent sees nobody, which
// does not mean that there is nobody.
func TestOwnersForeignPIDs(t *testing.T) {
	n := newOwnersNode(t, Config{})
	n.slurm = true
	if err := os.MkdirAll(filepath.Join(n.proc.root, "self/ns"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("pid:[4026532201]", filepath.Join(n.proc.root, "self/ns/pid")); err != nil {
		t.Fatal(err)
	}
	page := n.show(t, GPUProcesses{UUID: uuidA, Kinds: kindCompute, Used: 5 * mib})
	want(t, "nothing", series(page, "rackpulse_gpu_processes"))
	want(t, "unowned", series(page, "rackpulse_gpu_unowned_memory_bytes"))
	want(t, "reason", series(page, "rackpulse_source_info", `source="gpu_processes"`, "not in the host's PID namespace"), "1")
	// What is seen is shown, but it may not be all.
	n.process(t, 3, "x", inSession)
	page = n.show(t, GPUProcesses{UUID: uuidA, Kinds: kindCompute, Used: 5 * mib, Processes: []Process{{PID: 3, Kind: kindCompute, Memory: mib}}})
	want(t, "seen", series(page, "rackpulse_gpu_processes"), "1")
	want(t, "orphan", series(page, "rackpulse_gpu_orphan_memory_bytes"))
}

func TestOwnersMIG(t *testing.T) {
	n := newOwnersNode(t, Config{Processes: ProcessesConfig{PerPID: true}})
	n.process(t, 100, "python", inJob42)
	n.process(t, 101, "python", inJob43)
	page := n.show(t, GPUProcesses{UUID: uuidB, Kinds: kindCompute | kindMPS, Used: 10 * mib,
		Instances: []MIGInstance{{UUID: migB7, GI: "7", CI: "0"}, {UUID: migB7 + "1", GI: "7", CI: "1"}, {UUID: migB11, GI: "11", CI: "0"}, {UUID: "MIG-3", GI: "13", CI: "0"}},
		Processes: []Process{
			{PID: 100, GI: "7", CI: "0", Kind: kindCompute, Memory: mib}, {PID: 100, GI: "7", CI: "1", Kind: kindCompute, Memory: 2 * mib},
			{PID: 100, GI: "11", CI: "0", Kind: kindCompute, Memory: 3 * mib}, {PID: 101, GI: "11", CI: "0", Kind: kindMPS, Memory: mib}}})
	for gi, w := range map[string][]string{"7": {"3.145728e+06", "1", "0"}, "11": {"4.194304e+06", "1", "1"}, "13": {"0", "0", "0"}} {
		label := `gpu="1",GPU_I_ID="` + gi + `"`
		want(t, "memory of "+gi, series(page, "rackpulse_gpu_process_memory_bytes", label), w[0])
		want(t, "compute of "+gi, series(page, "rackpulse_gpu_processes", label, `"compute"`), w[1])
		want(t, "mps of "+gi, series(page, "rackpulse_gpu_processes", label, `"mps"`), w[2])
	}
	want(t, "whole GPU", series(page, "rackpulse_gpu_unowned_memory_bytes"), "3.145728e+06")
	want(t, "jobs", series(page, "rackpulse_gpu_job_info"), "1", "1", "1")
	want(t, "job 43", series(page, "rackpulse_gpu_job_info", `GPU_I_ID="11",job_id="43"`), "1")
	want(t, "processes", series(page, "rackpulse_gpu_pid_memory_bytes", `pid="100",command="python",type="compute"`), "3.145728e+06", "3.145728e+06")
	want(t, "rejected", series(page, "rackpulse_rejected_samples_total"))
}

// TestOwnersPerPID: single processes are bounded, and their names cannot harm the page.
func TestOwnersPerPID(t *testing.T) {
	n := newOwnersNode(t, Config{Processes: ProcessesConfig{PerPID: true, Max: 3}})
	g := GPUProcesses{UUID: uuidA, Kinds: kindCompute, Used: -1}
	for pid := range 100 {
		n.process(t, pid, "a\"}\\\xff", inSession)
		g.Processes = append(g.Processes, Process{PID: pid, Kind: kindCompute, Memory: int64(pid) * mib})
	}
	page := n.show(t, g)
	want(t, "largest", series(page, "rackpulse_gpu_pid_memory_bytes"), "1.03809024e+08", "1.02760448e+08", "1.01711872e+08")
	want(t, "escaped", series(page, "rackpulse_gpu_pid_memory_bytes", `pid="99",command="a\"}\\?",type="compute"`), "1.03809024e+08")
	want(t, "reason", series(page, "rackpulse_source_info", "100 processes, only the 3 with most memory are shown"), "1")
}

// TestOwnersMapping joins the folder's jobs with those that run processes.
func TestOwnersMapping(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "0"), "42\n50_7\n")
	write(t, filepath.Join(dir, "1.7"), "51\n")
	write(t, filepath.Join(dir, "9"), "52\n")
	n := newOwnersNode(t, Config{Owners: OwnersConfig{Slurm: SlurmConfig{MappingDir: dir}}})
	n.process(t, 100, "python", inJob42)
	n.process(t, 101, "python", "0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0/user/task_0")
	n.show(t, GPUProcesses{UUID: uuidA, Kinds: kindCompute, Processes: []Process{{PID: 100, Kind: kindCompute, Memory: mib}, {PID: 101, Kind: kindCompute, Memory: mib}}})
	var status collector.Status
	n.readMapping(dir, n.gpus(), &status, time.Now())
	page := n.rec.page(t)
	want(t, "jobs", series(page, "rackpulse_gpu_job_info"), "1", "1", "1", "1")
	want(t, "both know it", series(page, "rackpulse_gpu_job_info", `gpu="0",job_id="42",uid=`), "1")
	want(t, "array", series(page, "rackpulse_gpu_job_info", `gpu="0",job_id="50_7"}`), "1")
	want(t, "MIG", series(page, "rackpulse_gpu_job_info", `gpu="1",GPU_I_ID="7",job_id="51"}`), "1")
	want(t, "SLUID", series(page, "rackpulse_gpu_job_info", `gpu="0",sluid="s5K1KKYAYG5D00",uid=`), "1")
	want(t, "up", series(page, "rackpulse_source_up", `source="job_mapping"`), "1")
	want(t, "reason", series(page, "rackpulse_source_info", `reason="file 9 names no GPU of this node"`), "1")
	// The folder goes.
	n.readMapping(filepath.Join(dir, "none"), n.gpus(), &status, time.Now())
	want(t, "down", series(n.rec.page(t), "rackpulse_source_up", `source="job_mapping"`), "0")
	// Without cgroups the folder's jobs are all.
	no := false
	n.cfg.Owners.Slurm.Cgroup = &no
	page = n.show(t, GPUProcesses{UUID: uuidA, Kinds: kindCompute, Processes: []Process{{PID: 101, Kind: kindCompute, Memory: mib}}})
	want(t, "no cgroups", series(page, "rackpulse_gpu_job_info", "sluid"))
	want(t, "orphan", series(page, "rackpulse_gpu_orphan_memory_bytes"), "0")
}

// TestOwnersGrowOld: jobs, processes and their sums do not outlive what told them.
func TestOwnersGrowOld(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "0"), "50\n")
	synctest.Test(t, func(t *testing.T) {
		n := newOwnersNode(t, Config{})
		n.process(t, 100, "python", inJob42)
		n.show(t, GPUProcesses{UUID: uuidA, Kinds: kindCompute, Processes: []Process{{PID: 100, Kind: kindCompute, Memory: mib}}})
		var status collector.Status
		for range 4 { // the folder goes on, the lists do not
			time.Sleep(processInterval)
			n.readMapping(dir, n.gpus(), &status, time.Now())
		}
		page := n.rec.page(t)
		want(t, "processes", series(page, "rackpulse_gpu_processes"))
		want(t, "jobs", series(page, "rackpulse_gpu_job_info"), "1")
		want(t, "the folder's", series(page, "rackpulse_gpu_job_info", `job_id="50"`), "1")
	})
}

// TestOwnersNeverCostAScrape: with every owner broken at once, the page has all of
// its GPUs and says what is wrong.
func TestOwnersNeverCostAScrape(t *testing.T) {
	k := newKubelet(t)
	k.start()
	k.server.Stop()
	mapping := filepath.Join(filepath.Dir(k.path), "no-mapping")
	s := &stub{}
	s.sample = func() (*Sample, error) {
		return &Sample{At: time.Now(), Driver: "550.1", Devices: []Device{device(0, Value{Field: fieldTemp, V: 41}), device(1, Value{Field: fieldTemp, V: 42})},
			Processes: &ProcessTable{At: time.Now(), Err: "nvml: no processes today"}}, nil
	}
	withKinds(t, kind("one", 1, s))
	_, rec := start(t, Config{Interval: minInterval, Owners: OwnersConfig{
		Kubernetes: KubernetesConfig{Socket: k.path}, Slurm: SlurmConfig{MappingDir: mapping}}}, Deps{})
	h := collector.NewHandler(collector.HandlerConfig{Store: rec.Store, Logger: log.NewNopLogger()})
	get := func() string {
		w := httptest.NewRecorder()
		begin := time.Now()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if took := time.Since(begin); w.Code != http.StatusOK || took > 5*time.Second {
			t.Errorf("status %d after %v", w.Code, took)
		}
		return w.Body.String()
	}
	sources := []string{podSource, mappingSource, processesName}
	eventually(t, "three sources down", func() bool {
		page := get()
		return !slices.ContainsFunc(sources, func(source string) bool {
			return !slices.Equal(series(page, "rackpulse_source_up", `source="`+source+`"`), []string{"0"})
		})
	})
	page := get()
	want(t, "temperatures", series(page, fieldTemp), "41", "42")
	want(t, "GPUs", series(page, "rackpulse_gpu_up"), "1", "1")
	want(t, "source", series(page, "rackpulse_source_up", `source="gpu"`), "1")
	for _, reason := range []string{"kubelet: Unavailable", "no-mapping: no such file or directory", "nvml: no processes today"} {
		if !strings.Contains(page, reason) {
			t.Errorf("no reason %q on the page:\n%s", reason, page)
		}
	}
	for _, source := range sources {
		if got := series(page, "rackpulse_source_read_errors_total", source); len(got) != 1 || got[0] == "0" {
			t.Errorf("errors of %s: %q", source, got)
		}
	}
}

func TestOwnersConfig(t *testing.T) {
	for reason, cfg := range map[string]Config{
		`gpu.processes.max: 1025 is not`:                                        {Processes: ProcessesConfig{Max: 1025}},
		`gpu.processes.max: -1 is not`:                                          {Processes: ProcessesConfig{Max: -1}},
		`kubernetes.socket: "run/k.sock" is not auto, none or an absolute path`: {Owners: OwnersConfig{Kubernetes: KubernetesConfig{Socket: "run/k.sock"}}},
		`of at most 107 bytes`:                                                  {Owners: OwnersConfig{Kubernetes: KubernetesConfig{Socket: "/" + strings.Repeat("x", 107)}}},
		`resource_names: 33 names`:                                              {Owners: OwnersConfig{Kubernetes: KubernetesConfig{ResourceNames: make([]string, 33)}}},
		`resource_names: an empty name`:                                         {Owners: OwnersConfig{Kubernetes: KubernetesConfig{ResourceNames: []string{""}}}},
		`slurm.mapping_dir: "jobs" is not`:                                      {Owners: OwnersConfig{Slurm: SlurmConfig{MappingDir: "jobs"}}},
	} {
		if _, err := newSettings(cfg, nil); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("got %v, want %q", err, reason)
		}
	}
	s, err := newSettings(Config{}, nil)
	if err != nil || s.cfg.Owners.Kubernetes.Socket != "auto" || !*s.cfg.Owners.Slurm.Cgroup || s.cfg.Processes != (ProcessesConfig{Max: 64}) || s.source.ProcessInterval != 10*time.Second {
		t.Errorf("defaults: %+v, %v", s, err)
	}
}
