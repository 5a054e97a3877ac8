// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rackpulse/rackpulse/site"
)

// Job is a batch job or a pod that is asked about.
type Job struct {
	// ID is the scheduler's: "4711" or "namespace/pod".
	ID string `json:"id"`
	// State is how it is or ended, in the scheduler's words; empty: not known.
	State string   `json:"state,omitempty"`
	Nodes []string `json:"nodes"`
	// GPUs are the UUIDs of those that it had, as far as they are known.
	GPUs []string `json:"gpus,omitempty"`
	// Start and End bound its run; zero: not known, or not ended.
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// Notes are what else the scheduler tells.
	Notes []string `json:"notes,omitempty"`
}

// maxJobGPUs bounds the GPUs of a job that are looked at one by one; a larger
// job is looked at by its nodes.
const maxJobGPUs = 64

// focusJob takes the nodes of a job, and of a node that the job has only a part
// of, the GPUs that it had.
func (c *casebook) focusJob(ctx context.Context, j *Job) error {
	own := map[string][]Entity{} // GPUs by node
	if n := len(j.GPUs); n > 0 && n <= maxJobGPUs {
		quoted := make([]string, n)
		for i, uuid := range j.GPUs {
			quoted[i] = regexp.QuoteMeta(uuid)
		}
		list, err := c.ranged(ctx, fmt.Sprintf("max by (UUID, gpu, node, rack_id) (rackpulse_gpu_up{UUID=~%q})", strings.Join(quoted, "|")))
		if err != nil {
			return err
		}
		for _, s := range list {
			c.graph.learn(s.Labels)
			e := Entity{"gpu", s.Labels["UUID"]}
			if node := s.Labels["node"]; !slices.Contains(own[node], e) {
				own[node] = append(own[node], e)
			}
		}
	}
	for _, name := range j.Nodes {
		if _, ok := c.Site.Node(name); !ok {
			continue
		}
		class, _ := c.Site.Class(name)
		if gpus := own[name]; len(gpus) > 0 && len(gpus) < class.GPUs {
			c.focus = append(c.focus, gpus...)
			continue
		}
		c.focus = append(c.focus, Entity{site.KindNode, name})
	}
	if len(c.focus) == 0 {
		return fmt.Errorf("job %s: site %s has none of its nodes: %s", j.ID, c.Site.ID, shorten(j.Nodes))
	}
	return nil
}

// Factors of candidates for a job's end; own choices of the weight of what a
// person would call unlikely.
const (
	// beforeJob is for what was so before the job began: it ran with it.
	beforeJob = 0.2
	// besideJob is for a silent management card: nothing runs through it.
	besideJob = 0.2
)

// ofJob lowers the candidates that a job lived with.
func (j *Job) ofJob(all []Candidate) {
	for i := range all {
		one := &all[i]
		switch {
		case one.Correlation == "device-silent":
			one.Factors = append(one.Factors, Factor{"against", besideJob, "no job runs through a management card"})
		case !j.Start.IsZero() && !one.Onset.IsZero() && one.Onset.Before(j.Start):
			one.Factors = append(one.Factors, Factor{"against", beforeJob, "it was so before the job began, which ran all the same"})
		default:
			continue
		}
		one.finish()
	}
}

// question is how the job is called in a line.
func (j *Job) question() string {
	out := "job " + j.ID
	if j.State != "" {
		out += " (" + j.State + ")"
	}
	if !j.End.IsZero() {
		out += " ended " + clock(j.End)
	}
	return out + " on " + shorten(j.Nodes)
}

// shorten names the first of a list, and how many there are.
func shorten(list []string) string {
	const most = 3
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}

func (r *Report) jobNotes() []string {
	if r.Job == nil {
		return nil
	}
	return r.Job.Notes
}
