// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/rackpulse/rackpulse/collector"
)

// Names under which the owners publish, and those of their sources.
const (
	processesName = "gpu_processes"
	jobsName      = "gpu_jobs"
	mappingSource = "job_mapping"
)

// maxJobSeries bounds rackpulse_gpu_job_info.
const maxJobSeries = 2048

// owners tells which processes, jobs and pods are on the GPUs. It works beside the
// sampling: what it reads may hang without a GPU's value being missed.
type owners struct {
	logger log.Logger
	store  Store
	config func() *Config
	pods   *podPoller
	proc   procFS
	cgroup string // /sys/fs/cgroup

	ready  chan struct{} // closed once there was a pass
	fresh  chan struct{} // there is a new table
	status collector.Status
	told   string
	slurm  bool // there has been a sign of Slurm on this node
	kube   bool // there has been a pod's process

	mu      sync.Mutex
	sampled bool // ready is closed
	devices []Device
	table   *ProcessTable // the latest
	index   *gpuIndex     // of the two; nil: to be made anew

	jobs jobs
}

func newOwners(logger log.Logger, store Store, config func() *Config) *owners {
	o := &owners{logger: logger, store: store, config: config, proc: procFS{root: "/proc"}, cgroup: "/sys/fs/cgroup",
		ready: make(chan struct{}), fresh: make(chan struct{}, 1), jobs: jobs{store: store}}
	o.pods = &podPoller{logger: logger, store: store, socket: defaultPodSocket, limit: podDeadline, index: o.gpus,
		config: func() KubernetesConfig { return config().Owners.Kubernetes }}
	return o
}

// saw takes what a pass brought. The devices must not be changed afterwards.
func (o *owners) saw(sample *Sample) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.EqualFunc(o.devices, sample.Devices, func(a, b Device) bool {
		return a.UUID == b.UUID && a.Index == b.Index && a.Name == b.Name
	}) {
		o.index = nil
	}
	o.devices = sample.Devices
	if !o.sampled {
		o.sampled = true
		close(o.ready)
	}
	if sample.Processes != nil {
		o.table, o.index = sample.Processes, nil
		select {
		case o.fresh <- struct{}{}:
		default:
		}
	}
}

// clear takes what came from the lists of processes off the page.
func (o *owners) clear() {
	now := time.Now()
	o.store.Put(collector.Snapshot{Source: processesName, At: now, Interval: processInterval})
	o.jobs.setRunning(nil, now)
}

// gpus returns the index of the GPUs.
func (o *owners) gpus() *gpuIndex {
	_, index := o.latest()
	return index
}

func (o *owners) latest() (*ProcessTable, *gpuIndex) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.index == nil {
		o.index = newGPUIndex(o.devices, o.table)
	}
	return o.table, o.index
}

// run works from the first pass until ctx is done. Pods and the mapping folder have goroutines of
// their own, as sockets and folders may be slow.
func (o *owners) run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-o.ready:
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { o.pods.run(ctx) })
	wg.Go(func() { o.watchMapping(ctx) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.fresh:
			o.processes(time.Now())
		}
	}
}

// processes publishes what the latest table shows.
func (o *owners) processes(now time.Time) {
	table, index := o.latest()
	cfg := o.config()
	reason := table.Err
	if table.Err != "" {
		o.status.Errors++
		o.status.Consecutive++
	} else {
		v := o.view(table, index, cfg)
		o.store.Put(collector.Snapshot{Source: processesName, At: table.At, Interval: processInterval, Points: v.points})
		o.jobs.setRunning(v.jobs, table.At)
		o.status.Consecutive = 0
		o.status.LastSample = table.At
		reason = strings.Join(v.remarks, "; ")
	}
	up := table.Err == ""
	if o.status.Up != up || o.status.Since.IsZero() {
		o.status.Since = now
	}
	o.status.Up, o.status.Reason = up, reason
	o.store.SetStatus(processesName, o.status)
	if text := fmt.Sprint(up, reason); text != o.told {
		o.told = text
		level.Info(o.logger).Log("msg", "processes on the GPUs", "up", up, "reason", reason)
	}
}

// managed tells whether a batch system runs the GPUs of this node, so that a
// process without a job or pod is one too many.
func (o *owners) managed(cfg *Config) bool {
	o.slurm = o.slurm || cfg.Owners.Slurm.MappingDir != "" || slurmRuns(o.cgroup)
	return o.slurm || o.kube
}

// watchMapping reads the mapping folder until ctx is done.
func (o *owners) watchMapping(ctx context.Context) {
	ticker := time.NewTicker(processInterval)
	defer ticker.Stop()
	var status collector.Status
	for {
		if dir := o.config().Owners.Slurm.MappingDir; dir != "" {
			o.readMapping(filepath.Clean(dir), o.gpus(), &status, time.Now())
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// readMapping reads the folder once. Files that name no GPU of this node, and
// those that cannot be read, are a remark; without the folder the source is down.
func (o *owners) readMapping(dir string, index *gpuIndex, status *collector.Status, now time.Time) {
	mapped, err := readMapping(dir)
	up := err == nil || len(mapped) > 0
	if status.Up != up || status.Since.IsZero() {
		status.Since = now
	}
	status.Up, status.Reason, status.Duration = up, "", time.Since(now)
	if err != nil {
		status.Reason = err.Error()
		status.Errors++
	}
	if up {
		status.Consecutive, status.LastSample = 0, now
		var list []job
		for _, m := range mapped {
			ref, ok := index.byIndex(m.gpu)
			if !ok {
				status.Reason = fmt.Sprintf("file %s names no GPU of this node", m.gpu)
				continue
			}
			ref.GI = m.gi
			list = append(list, job{gpuRef: ref, id: m.job})
		}
		o.jobs.setMapped(list, now)
	} else {
		status.Consecutive++
	}
	o.store.SetStatus(mappingSource, *status)
}

// job is one job on one GPU.
type job struct {
	gpuRef
	id, sluid, uid string
}

var descJobInfo = &collector.Desc{
	Name:   "rackpulse_gpu_job_info",
	Help:   "A batch job that has the GPU or MIG GPU instance, always 1. Several jobs may share one.",
	Labels: []string{"UUID", "gpu", "GPU_I_ID", "job_id", "sluid", "uid"},
}

// jobs joins the jobs that run processes with those of the mapping folder.
type jobs struct {
	store Store

	mu                  sync.Mutex
	running, mapped     []job
	runningAt, mappedAt time.Time
}

func (j *jobs) setRunning(list []job, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.running, j.runningAt = list, at
	j.publish(at)
}

func (j *jobs) setMapped(list []job, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mapped, j.mappedAt = list, at
	j.publish(at)
}

// publish shows each job of a GPU once: that with a process, which knows its
// user, before the folder's.
func (j *jobs) publish(at time.Time) {
	type key struct {
		gpuRef
		id, sluid string
	}
	seen := map[key]int{}
	var points []collector.Point
	add := func(list []job, at time.Time) {
		for _, one := range list {
			k := key{one.gpuRef, one.id, one.sluid}
			if i, ok := seen[k]; ok {
				if points[i].At.Before(at) {
					points[i].At = at
				}
				continue
			}
			if len(points) == maxJobSeries {
				return
			}
			seen[k] = len(points)
			points = append(points, collector.Point{Desc: descJobInfo, At: at, Value: 1,
				Values: []string{one.UUID, one.Index, one.GI, one.id, one.sluid, one.uid}})
		}
	}
	add(j.running, j.runningAt)
	add(j.mapped, j.mappedAt)
	slices.SortFunc(points, func(a, b collector.Point) int { return slices.Compare(a.Values, b.Values) })
	j.store.Put(collector.Snapshot{Source: jobsName, At: at, Interval: processInterval, Points: points})
}
