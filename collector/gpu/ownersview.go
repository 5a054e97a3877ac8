// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/rackpulse/rackpulse/collector"
)

var (
	processLabels = []string{"UUID", "gpu", "GPU_I_ID"}

	descProcessMemory = &collector.Desc{
		Name: "rackpulse_gpu_process_memory_bytes", Labels: processLabels,
		Help: "GPU memory of all processes on the GPU or MIG GPU instance.",
	}
	descProcesses = &collector.Desc{
		Name: "rackpulse_gpu_processes", Labels: append(slices.Clone(processLabels), "type"),
		Help: "Processes with a context of this type on the GPU or MIG GPU instance. One process may have several types.",
	}
	descPIDMemory = &collector.Desc{
		Name: "rackpulse_gpu_pid_memory_bytes", Labels: append(slices.Clone(processLabels), "pid", "command", "type"),
		Help: "GPU memory of one process.",
	}
	descOrphanMemory = &collector.Desc{
		Name: "rackpulse_gpu_orphan_memory_bytes", Labels: processLabels,
		Help: "GPU memory of processes that belong to no job and no pod, on nodes with Slurm or Kubernetes.",
	}
	descUnownedMemory = &collector.Desc{
		Name: "rackpulse_gpu_unowned_memory_bytes", Labels: []string{"UUID", "gpu"},
		Help: "GPU memory in use that no process accounts for.",
	}
)

// hostPIDNamespace is the PID namespace of the machine itself, whose inode number
// is fixed in the kernel (PROC_PID_INIT_INO).
const hostPIDNamespace = "pid:[4026531836]"

// maxComm bounds a command's name in bytes; the kernel keeps 15.
const maxComm = 64

// procFS reads /proc.
type procFS struct{ root string }

// hostPIDs tells whether the process ids are those of the machine. In a container
// with PIDs of its own the driver does not show the processes of others.
func (p procFS) hostPIDs() bool {
	ns, err := os.Readlink(filepath.Join(p.root, "self/ns/pid"))
	return err != nil || ns == hostPIDNamespace
}

// read returns at most limit bytes of a file of a process.
func (p procFS) read(pid int, name string, limit int64) ([]byte, error) {
	f, err := os.Open(filepath.Join(p.root, strconv.Itoa(pid), name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// holder returns who a process belongs to; gone: it has ended.
func (p procFS) holder(pid int) (h holder, gone bool, err error) {
	data, err := p.read(pid, "cgroup", maxCgroupFile)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return h, true, nil
	}
	if err != nil {
		return h, false, err
	}
	h = parseCgroup(data)
	if (h.job != "" || h.sluid != "") && h.uid == "" {
		h.uid = p.owner(pid)
	}
	return h, false, nil
}

// owner returns the user id of a process, "" where it cannot be told. Names are
// not looked up: that may ask the network.
func (p procFS) owner(pid int) string {
	info, err := os.Stat(filepath.Join(p.root, strconv.Itoa(pid)))
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return strconv.FormatUint(uint64(st.Uid), 10)
}

// command returns the name of a process, "" where it cannot be told.
func (p procFS) command(pid int) string {
	data, err := p.read(pid, "comm", maxComm)
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(strings.TrimSpace(string(data)), "?")
}

// ownersView is what one table shows.
type ownersView struct {
	points  []collector.Point
	jobs    []job
	remarks []string
	// managed and hostPIDs: see owners.managed and procFS.hostPIDs.
	managed, hostPIDs bool
	pids              []pidMemory
	failed            int // processes whose cgroup could not be read
	hidden            int // GPUs whose processes are not to be seen
}

// pidMemory is one process' memory on one GPU or instance.
type pidMemory struct {
	gpuRef
	Process
}

// deviceSums are the sums over the processes of a GPU or MIG GPU instance.
type deviceSums struct {
	ref            gpuRef
	memory, orphan int64
	unknown        bool // the memory of one is not known
	unheld         bool // the owner of one is not known
	counts         map[int]int
}

// view makes the points of a table.
func (o *owners) view(table *ProcessTable, index *gpuIndex, cfg *Config) *ownersView {
	v := &ownersView{hostPIDs: o.proc.hostPIDs()}
	holders := o.holders(table, v)
	v.managed = o.managed(cfg)
	for i := range table.GPUs {
		g := &table.GPUs[i]
		ref, ok := index.uuids[g.UUID]
		switch {
		case !ok: // a GPU that is not sampled
		case g.Err != "":
			v.remarks = append(v.remarks, fmt.Sprintf("GPU %s: %s", ref.Index, g.Err))
		case len(g.Processes) == 0 && !v.hostPIDs:
			v.hidden++
		default:
			v.gpu(g, ref, holders, *cfg.Owners.Slurm.Cgroup)
		}
	}
	if v.hidden > 0 {
		v.remarks = append(v.remarks, "not in the host's PID namespace: processes of others are not to be seen")
	}
	if v.failed > 0 {
		v.remarks = append(v.remarks, fmt.Sprintf("the cgroups of %d processes cannot be read", v.failed))
	}
	if cfg.Processes.PerPID {
		v.perPID(o.proc, cfg.Processes.Max)
	}
	return v
}

// holders looks the owners of all processes up. Those that have ended since are
// not in the result; nil: not to be told.
func (o *owners) holders(table *ProcessTable, v *ownersView) map[int]*holder {
	holders := map[int]*holder{}
	for i := range table.GPUs {
		for _, p := range table.GPUs[i].Processes {
			if _, ok := holders[p.PID]; ok {
				continue
			}
			h, gone, err := o.proc.holder(p.PID)
			switch {
			case gone:
			case err != nil:
				v.failed++
				holders[p.PID] = nil
			default:
				holders[p.PID] = &h
				o.kube = o.kube || h.pod
				o.slurm = o.slurm || h.job != "" || h.sluid != ""
			}
		}
	}
	return holders
}

// gpu adds one GPU's points.
func (v *ownersView) gpu(g *GPUProcesses, ref gpuRef, holders map[int]*holder, slurm bool) {
	sums := newDeviceSums(g, ref)
	total, unknown := int64(0), false
	jobs := map[job]string{} // to the user's id
	for _, p := range byInstance(g.Processes) {
		i := slices.IndexFunc(sums, func(s *deviceSums) bool { return s.ref.GI == p.GI })
		if i < 0 {
			i = len(sums)
			sums = append(sums, &deviceSums{ref: gpuRef{ref.UUID, ref.Index, p.GI}, counts: map[int]int{}})
		}
		s := sums[i]
		h, alive := holders[p.PID]
		s.add(p, h, alive)
		total += max(p.Memory, 0)
		unknown = unknown || p.Memory < 0
		v.pids = append(v.pids, pidMemory{s.ref, p})
		if h != nil && slurm && (h.job != "" || h.sluid != "") {
			key := job{gpuRef: s.ref, id: h.job, sluid: h.sluid}
			if uid := jobs[key]; uid == "" || uid == "0" { // root runs helpers in everybody's jobs
				jobs[key] = h.uid
			}
		}
	}
	for key, uid := range jobs {
		key.uid = uid
		v.jobs = append(v.jobs, key)
	}
	for _, s := range sums {
		v.sums(s, g.Kinds)
	}
	if g.Used >= 0 && !unknown && v.hostPIDs {
		v.points = append(v.points, collector.Point{Desc: descUnownedMemory, Values: []string{ref.UUID, ref.Index}, Value: float64(max(g.Used-total, 0))})
	}
}

// byInstance makes one of what a process has on several compute instances of one
// GPU instance.
func byInstance(list []Process) []Process {
	type key struct {
		pid int
		gi  string
	}
	seen := make(map[key]int, len(list))
	var merged []Process
	for _, p := range list {
		k := key{p.PID, p.GI}
		i, ok := seen[k]
		if !ok {
			seen[k] = len(merged)
			merged = append(merged, p)
			continue
		}
		q := &merged[i]
		q.Kind |= p.Kind
		if q.Memory < 0 || p.Memory < 0 {
			q.Memory = -1
		} else {
			q.Memory += p.Memory
		}
	}
	return merged
}

// newDeviceSums makes the empty sums of a GPU: its own, or those of its instances.
func newDeviceSums(g *GPUProcesses, ref gpuRef) []*deviceSums {
	var sums []*deviceSums
	for _, mig := range g.Instances {
		if !slices.ContainsFunc(sums, func(s *deviceSums) bool { return s.ref.GI == mig.GI }) {
			sums = append(sums, &deviceSums{ref: gpuRef{ref.UUID, ref.Index, mig.GI}, counts: map[int]int{}})
		}
	}
	if len(sums) == 0 {
		sums = append(sums, &deviceSums{ref: ref, counts: map[int]int{}})
	}
	return sums
}

// add takes a process in. One that has ended since holds nothing any more, but
// the driver's list had it, so it is in the sums.
func (s *deviceSums) add(p Process, h *holder, alive bool) {
	for _, k := range kindNames {
		if p.Kind&k.kind != 0 {
			s.counts[k.kind]++
		}
	}
	if p.Memory < 0 {
		s.unknown = true
		return
	}
	s.memory += p.Memory
	switch {
	case !alive:
	case h == nil:
		s.unheld = true
	case !h.managed():
		s.orphan += p.Memory
	}
}

// sums adds the points of a GPU or instance. A sum with an unknown part is absent.
func (v *ownersView) sums(s *deviceSums, kinds int) {
	labels := []string{s.ref.UUID, s.ref.Index, s.ref.GI}
	for _, k := range kindNames {
		if kinds&k.kind != 0 {
			v.points = append(v.points, collector.Point{Desc: descProcesses, Values: append(slices.Clone(labels), k.name), Value: float64(s.counts[k.kind])})
		}
	}
	if s.unknown {
		return
	}
	v.points = append(v.points, collector.Point{Desc: descProcessMemory, Values: labels, Value: float64(s.memory)})
	if v.managed && v.hostPIDs && !s.unheld {
		v.points = append(v.points, collector.Point{Desc: descOrphanMemory, Values: labels, Value: float64(s.orphan)})
	}
}

// perPID adds the points of single processes, those with most memory first.
func (v *ownersView) perPID(proc procFS, limit int) {
	v.pids = slices.DeleteFunc(v.pids, func(p pidMemory) bool { return p.Memory < 0 })
	slices.SortFunc(v.pids, func(a, b pidMemory) int {
		if a.Memory != b.Memory {
			return int(min(max(b.Memory-a.Memory, -1), 1))
		}
		return a.PID - b.PID
	})
	if len(v.pids) > limit {
		v.remarks = append(v.remarks, fmt.Sprintf("%d processes, only the %d with most memory are shown", len(v.pids), limit))
		v.pids = v.pids[:limit]
	}
	for _, p := range v.pids {
		var kinds []string
		for _, k := range kindNames {
			if p.Kind&k.kind != 0 {
				kinds = append(kinds, k.name)
			}
		}
		v.points = append(v.points, collector.Point{Desc: descPIDMemory, Value: float64(p.Memory), Values: []string{
			p.UUID, p.Index, p.gpuRef.GI, strconv.Itoa(p.PID), proc.command(p.PID), strings.Join(kinds, "+")}})
	}
}
