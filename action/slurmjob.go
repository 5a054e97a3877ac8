// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rackpulse/rackpulse/site"
)

// maxJobOutput bounds what is read of a job's runs, bytes: a line of a task is
// about 1.5 kB.
const maxJobOutput = 4 << 20

// slurmJobID is a job, a task of an array, or a part of a heterogeneous job.
var slurmJobID = regexp.MustCompile(`^[0-9]{1,10}([_+][0-9]{1,7})?$`)

// SlurmJob asks Slurm for a job: scontrol, which knows jobs until some minutes
// after their end, and sacct, which needs accounting and knows all of them, with
// the runs before a requeue. With at it is the run that began last before; zero:
// the last that failed, or else the last. confFile may be empty. ErrNoJob: Slurm
// answers and does not know it.
func SlurmJob(ctx context.Context, confFile, id string, at time.Time) (*Job, error) {
	if !slurmJobID.MatchString(id) {
		return nil, fmt.Errorf("job %q: want a number, such as 4711, 4711_3 (of an array) or 4711+1", id)
	}
	env := append(os.Environ(), "LC_ALL=C", "SLURM_TIME_FORMAT=standard", "TZ=UTC0")
	if confFile != "" {
		env = append(env, "SLURM_CONF="+confFile)
	}
	shown, showErr := slurmRuns(ctx, env, "scontrol", parseShowJob, "--oneliner", "show", "job", id)
	counted, countErr := slurmRuns(ctx, env, "sacct", parseSacct, "-n", "-P", "-X", "-D", "-j", id, "-o", sacctFields)
	runs := append(counted, shown...) // the newer ones last
	if len(runs) == 0 {
		switch {
		case showErr != nil:
			return nil, fmt.Errorf("slurm: job %s: %w", id, errors.Join(showErr, countErr))
		case countErr != nil: // scontrol has forgotten it, or never knew it
			return nil, fmt.Errorf("slurm: job %s: %w, as far as the controller remembers; %w", id, ErrNoJob, countErr)
		}
		return nil, fmt.Errorf("slurm: job %s: %w", id, ErrNoJob)
	}
	return pickRun(runs, at), nil
}

// pickRun chooses one of the runs of a job; one that both programs know is
// scontrol's, which is the newer word.
func pickRun(runs []Job, at time.Time) *Job {
	slices.SortStableFunc(runs, func(a, b Job) int { return a.Start.Compare(b.Start) })
	var best *Job
	for i := range runs {
		one := &runs[i]
		if len(one.Nodes) == 0 || !at.IsZero() && one.Start.After(at) {
			continue
		}
		if best == nil || one.Failed || !best.Failed || !at.IsZero() {
			best = one
		}
	}
	if best == nil {
		best = &runs[len(runs)-1] // it never ran
	}
	return best
}

// slurmRuns runs a program and reads each line of it as a run.
func slurmRuns(ctx context.Context, env []string, program string, parse func(line string) (Job, bool, error), args ...string) ([]Job, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, err
	}
	text, err := runSlurm(ctx, path, env, maxJobOutput, args...)
	switch {
	case err != nil && strings.Contains(err.Error(), "Invalid job id"):
		return nil, nil
	case err != nil:
		return nil, err
	}
	var out []Job
	var errs []error
	for line := range strings.Lines(text) {
		j, ok, err := parse(strings.TrimRight(line, "\n"))
		if err != nil {
			errs = append(errs, err)
		} else if ok {
			out = append(out, j)
		}
	}
	return out, errors.Join(errs...)
}

// showField is a field of scontrol's line; values end before the next key.
var showField = regexp.MustCompile(`(?:^| )([A-Za-z][\w:/]*)=(.*?)(?: [A-Za-z][\w:/]*=|$)`)

// showFields reads the fields of scontrol's line that stand before free text.
func showFields(line string) map[string]string {
	out := map[string]string{}
	for line != "" {
		m := showField.FindStringSubmatchIndex(line)
		if m == nil {
			break
		}
		key := line[m[2]:m[3]]
		if _, had := out[key]; !had { // the first one is Slurm's own
			out[key] = line[m[4]:m[5]]
		}
		line = line[m[5]:]
	}
	return out
}

// parseShowJob reads a line of "scontrol --oneliner show job".
func parseShowJob(line string) (Job, bool, error) {
	f := showFields(line)
	if f["JobId"] == "" {
		return Job{}, false, nil
	}
	user, _, _ := strings.Cut(f["UserId"], "(")
	j := Job{ID: f["JobId"], Raw: f["JobId"], Name: f["JobName"], User: user, Start: slurmWhen(f["StartTime"]), End: slurmWhen(f["EndTime"])}
	if f["ArrayTaskId"] != "" && f["ArrayJobId"] != "" {
		j.ID = f["ArrayJobId"] + "_" + f["ArrayTaskId"]
	}
	if r := f["Reason"]; r != "None" {
		j.Reason = r
	}
	return j.finish(f["JobState"], f["ExitCode"], f["NodeList"])
}

const sacctFields = "JobID,JobIDRaw,State,ExitCode,Start,End,NodeList,User,JobName"

// parseSacct reads a line of sacct with sacctFields; a name may hold the sign
// that parts the fields.
func parseSacct(line string) (Job, bool, error) {
	const fields = 9
	f := strings.SplitN(line, "|", fields)
	if len(f) < fields {
		return Job{}, false, nil
	}
	j := Job{ID: f[0], Raw: f[1], Name: f[8], User: f[7], Start: slurmWhen(f[4]), End: slurmWhen(f[5])}
	return j.finish(f[2], f[3], f[6])
}

// slurmFailed are the states of jobs that ended badly by no will of a person.
var slurmFailed = []string{"FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "DEADLINE", "TIMEOUT", "LAUNCH_FAILED", "REVOKED"}

// slurmRunning are those of jobs that have not ended.
var slurmRunning = []string{"RUNNING", "PENDING", "SUSPENDED", "CONFIGURING", "REQUEUED", "RESIZING", "STOPPED"}

// finish fills what both programs tell in the same words.
func (j Job) finish(state, exit, nodes string) (Job, bool, error) {
	word, _, _ := strings.Cut(state, " ") // "CANCELLED by 1000"
	j.State = word
	var err error
	if j.Nodes, err = slurmNodes(nodes); err != nil {
		return j, false, fmt.Errorf("job %s: %w", j.ID, err)
	}
	j.Ended = !slices.Contains(slurmRunning, word)
	j.Failed = slices.Contains(slurmFailed, word) || j.Ended && word != "CANCELLED" && exit != "0:0"
	switch {
	case !j.Ended:
		j.End = time.Time{} // the end of its time limit
	case word == "COMPLETING" && j.Reason == "NodeDown": // while its epilogs run
		j.State, j.Failed = "NODE_FAIL", true
	case word == "COMPLETING" && j.Failed:
		j.State = "FAILED"
	}
	if exit != "" && exit != "0:0" {
		j.Notes = append(j.Notes, "exit code "+exit+" (status:signal)")
	}
	if j.Reason != "" {
		j.Notes = append(j.Notes, "reason "+j.Reason)
	}
	return j, true, nil
}

// slurmNodes reads a list of nodes; both programs write "none" in their own way.
func slurmNodes(text string) ([]string, error) {
	if text == "" || text == "(null)" || text == "None assigned" {
		return nil, nil
	}
	list, err := site.ExpandHostlist(text)
	if err == nil && len(list) > maxJobNodes {
		err = fmt.Errorf("%d of them, at most %d are taken", len(list), maxJobNodes)
	}
	if err != nil {
		return nil, fmt.Errorf("nodes %q: %w", text[:min(len(text), maxMark)], err)
	}
	return list, nil
}

// slurmWhen reads a time that was asked for in UTC; zero: Slurm has none.
func slurmWhen(text string) time.Time {
	t, err := time.Parse(slurmTime, text)
	if err != nil {
		return time.Time{}
	}
	return t
}
