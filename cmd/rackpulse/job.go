// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rackpulse/rackpulse/action"
	"github.com/rackpulse/rackpulse/explain"
	"github.com/rackpulse/rackpulse/query"
)

// jobFlags say which job is asked about, and where it ran.
type jobFlags struct {
	id         string
	slurmConf  string
	kubeconfig string
}

func (f *jobFlags) flags(cmd *kingpin.CmdClause) {
	cmd.Flag("job", "Job of Slurm (4711, 4711_3), or pod or Job of Kubernetes (namespace/name).").StringVar(&f.id)
	cmd.Flag("slurm.conf", "Slurm's configuration; default: Slurm's own.").StringVar(&f.slurmConf)
	cmd.Flag("kubeconfig", "Access to Kubernetes; default: KUBECONFIG, ~/.kube/config, or the service account of the pod.").StringVar(&f.kubeconfig)
}

const (
	// jobLookback is how far back the store is searched for a job that no
	// scheduler knows; four hundred steps cost it little.
	jobLookback = 48 * time.Hour
	// jobSteps bounds the steps of that search.
	jobSteps = 400
	// jobMargin is how far around a run the store is searched for its GPUs.
	jobMargin = time.Minute
)

// find asks the scheduler for the job, and the store for its GPUs; where the
// scheduler does not know it, the store alone. at may be zero.
func (f *jobFlags) find(ctx context.Context, q query.Querier, at, now time.Time) (*action.Job, []string, error) {
	j, schedErr := f.ask(ctx, at)
	from, to := cmp.Or(at, now).Add(-jobLookback), cmp.Or(at, now)
	if schedErr == nil {
		if to = now; !j.End.IsZero() {
			to = j.End.Add(jobMargin)
		}
		if from = j.Start.Add(-jobMargin); j.Start.IsZero() || to.Sub(from) > jobLookback {
			from = to.Add(-jobLookback)
		}
	}
	seen, err := seenJob(ctx, q, f.id, j, from, to)
	switch {
	case schedErr == nil && len(j.Nodes) > 0:
		// The GPUs only narrow the question; without them the nodes are asked about.
		return j, seen.gpus, nil
	case err != nil && schedErr != nil:
		return nil, nil, fmt.Errorf("%w; and the store: %w", schedErr, err)
	case len(seen.nodes) == 0 && schedErr != nil:
		return nil, nil, fmt.Errorf("%w; and the store has no series of job %s since %s", schedErr, f.id, from.UTC().Format(time.RFC3339))
	case len(seen.nodes) == 0:
		return nil, nil, fmt.Errorf("job %s (%s) had no node yet", f.id, j.State)
	case schedErr != nil:
		j = seen.job(f.id, to)
		j.Notes = []string{"from the agents' series alone: " + schedErr.Error()}
	}
	j.Nodes = seen.nodes
	return j, seen.gpus, nil
}

// ask asks the scheduler.
func (f *jobFlags) ask(ctx context.Context, at time.Time) (*action.Job, error) {
	namespace, name, pod := strings.Cut(f.id, "/")
	if !pod {
		return action.SlurmJob(ctx, f.slurmConf, f.id, at)
	}
	file := cmp.Or(f.kubeconfig, os.Getenv("KUBECONFIG"))
	if home, err := os.UserHomeDir(); file == "" && err == nil {
		if one := filepath.Join(home, ".kube", "config"); readable(one) {
			file = one
		}
	}
	return action.KubePod(ctx, file, namespace, name)
}

func readable(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// jobSeen is what the agents' series tell of a job.
type jobSeen struct {
	nodes, gpus []string
	first, last time.Time
	step        time.Duration
}

// seenJob searches the agents' series of jobs and pods. j may be nil.
func seenJob(ctx context.Context, q query.Querier, id string, j *action.Job, from, to time.Time) (jobSeen, error) {
	ids := []string{regexp.QuoteMeta(id)}
	if j != nil && j.Raw != "" && j.Raw != id {
		ids = append(ids, regexp.QuoteMeta(j.Raw))
	}
	selector := fmt.Sprintf("rackpulse_gpu_job_info{job_id=~%q}", strings.Join(ids, "|"))
	if namespace, name, pod := strings.Cut(id, "/"); pod {
		// A Job's pods have its name and five signs more.
		selector = fmt.Sprintf("rackpulse_gpu_pod_info{namespace=%q,pod=~%q}", namespace, regexp.QuoteMeta(name)+"(-[0-9]+)?(-[a-z0-9]{5})?")
	}
	out := jobSeen{step: max(15*time.Second, (to.Sub(from) / jobSteps).Round(time.Second))}
	list, err := q.Range(ctx, "max by (UUID, node) ("+selector+")", from, to, out.step)
	if err != nil {
		return out, err
	}
	for _, s := range list {
		if len(s.Points) == 0 || s.Labels["node"] == "" {
			continue
		}
		if first := s.Points[0].At; out.first.IsZero() || first.Before(out.first) {
			out.first = first
		}
		if last := s.Points[len(s.Points)-1].At; last.After(out.last) {
			out.last = last
		}
		out.nodes = append(out.nodes, s.Labels["node"])
		out.gpus = append(out.gpus, s.Labels["UUID"])
	}
	slices.Sort(out.nodes)
	slices.Sort(out.gpus)
	out.nodes, out.gpus = slices.Compact(out.nodes), slices.Compact(out.gpus)
	return out, nil
}

// question is the job as explanations know it.
func question(j *action.Job, gpus []string) *explain.Job {
	out := &explain.Job{ID: j.ID, State: j.State, Nodes: j.Nodes, GPUs: gpus, Start: j.Start, End: j.End, Notes: j.Notes}
	if j.Name != "" && j.Name != j.ID {
		out.Notes = append([]string{strings.TrimSpace("name " + j.Name + " of " + cmp.Or(j.User, "an unknown user"))}, out.Notes...)
	}
	return out
}
