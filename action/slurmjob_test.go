// SPDX-License-Identifier: Apache-2.0

package action

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// showLine is a line of scontrol's with the fields that matter, in its order.
func showLine(id, array, state, reason, exit, start, end, nodes string) string {
	return "JobId=" + id + array + " JobName=a b=c UserId=eve(1000) GroupId=eve(1000) MCS_label=N/A QOS=normal JobState=" + state + " Reason=" + reason +
		" Dependency=(null) ExitCode=" + exit + " RunTime=00:00:02 StartTime=" + start + " EndTime=" + end + " Deadline=N/A AllocNode:Sid=h:1" +
		" ReqNodeList=gpu001 ExcNodeList=(null) NodeList=" + nodes + " BatchHost=gpu001 Socks/Node=* CPUs/Task=1 Command=(null) WorkDir=/home/e NodeList=x Power= "
}

func TestSlurmJob(t *testing.T) {
	const none = "slurm_load_jobs error: Invalid job id specified"
	off := "!Slurm accounting storage is disabled"
	t0 := func(minute int) time.Time { return time.Date(2026, 3, 1, 14, minute, 0, 0, time.UTC) }
	requeued := "5|5|NODE_FAIL|0:0|2026-03-01T14:00:00|2026-03-01T14:02:00|gpu[001-002]|eve|train|big\n5|5|RUNNING|0:0|2026-03-01T14:10:00|Unknown|gpu009|eve|train|big\n"
	for _, tc := range []struct {
		name, id   string
		show, acct string // what the programs print; "!": an error
		at         time.Time
		state      string
		failed     bool
		nodes      []string
		end        time.Time
		err        string
	}{
		{"failed", "5", showLine("5", "", "FAILED", "NonZeroExitCode", "3:0", "2026-03-01T14:00:00", "2026-03-01T14:02:00", "gpu[001-002]"), off,
			time.Time{}, "FAILED", true, []string{"gpu001", "gpu002"}, t0(2), ""},
		{"in its epilog, the node died", "5", showLine("5", "", "COMPLETING", "NodeDown", "0:0", "2026-03-01T14:00:00", "2026-03-01T14:02:00", "gpu003"), off,
			time.Time{}, "NODE_FAIL", true, []string{"gpu003"}, t0(2), ""},
		{"in its epilog, well", "5", showLine("5", "", "COMPLETING", "None", "0:0", "2026-03-01T14:00:00", "2026-03-01T14:02:00", "gpu003"), off,
			time.Time{}, "COMPLETING", false, []string{"gpu003"}, t0(2), ""},
		{"runs", "5", showLine("5", "", "RUNNING", "None", "0:0", "2026-03-01T14:00:00", "2026-03-02T14:00:00", "gpu003"), off,
			time.Time{}, "RUNNING", false, []string{"gpu003"}, time.Time{}, ""},
		{"cancelled", "5", "!" + none, "5|5|CANCELLED by 1000|0:15|2026-03-01T14:00:00|2026-03-01T14:02:00|gpu003|eve|n\n",
			time.Time{}, "CANCELLED", false, []string{"gpu003"}, t0(2), ""},
		{"requeued and runs again: the failure", "5", showLine("5", "", "RUNNING", "None", "0:0", "2026-03-01T14:10:00", "Unknown", "gpu009"), requeued,
			time.Time{}, "NODE_FAIL", true, []string{"gpu001", "gpu002"}, t0(2), ""},
		{"requeued, the run at a time", "5", "!" + none, requeued, t0(12), "RUNNING", false, []string{"gpu009"}, time.Time{}, ""},
		{"pending after a requeue, no accounting", "5", showLine("5", "", "PENDING", "BeginTime", "0:0", "2026-03-01T14:10:00", "Unknown", ""), off,
			time.Time{}, "PENDING", false, nil, time.Time{}, ""},
		{"array", "3", showLine("3", " ArrayJobId=3 ArrayTaskId=2", "COMPLETED", "None", "0:0", "2026-03-01T14:00:00", "2026-03-01T14:05:00", "gpu001") + "\n" +
			showLine("4", " ArrayJobId=3 ArrayTaskId=1", "FAILED", "NonZeroExitCode", "1:0", "2026-03-01T14:00:00", "2026-03-01T14:02:00", "gpu004"), off,
			time.Time{}, "FAILED", true, []string{"gpu004"}, t0(2), ""},
		{"unknown", "5", "!" + none, "", time.Time{}, "", false, nil, time.Time{}, "no such job"},
		{"nobody answers", "5", "!slurm_load_jobs error: Unable to contact slurm controller (connect failure)", off, time.Time{}, "", false, nil, time.Time{}, "Unable to contact"},
		{"no id", "5; rm -rf /", "", "", time.Time{}, "", false, nil, time.Time{}, "want a number"},
		{"nodes that cannot be", "5", showLine("5", "", "FAILED", "None", "1:0", "2026-03-01T14:00:00", "2026-03-01T14:02:00", "gpu[1-"), off, time.Time{}, "", false, nil, time.Time{}, "nodes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, says := range map[string]string{"scontrol": tc.show, "sacct": tc.acct} {
				script := "#!/bin/sh\n[ \"$TZ\" = UTC0 ] || exit 9\ncat <<'END'\n" + says + "\nEND\n"
				if text, bad := strings.CutPrefix(says, "!"); bad {
					script = "#!/bin/sh\necho '" + text + "' >&2\nexit 1\n"
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", dir+":/usr/bin:/bin")
			j, err := SlurmJob(t.Context(), "", tc.id, tc.at)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || errors.Is(err, ErrNoJob) != (tc.name == "unknown") {
					t.Fatalf("error %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if j.State != tc.state || j.Failed != tc.failed || !slices.Equal(j.Nodes, tc.nodes) || !j.End.Equal(tc.end) {
				t.Errorf("got %+v", *j)
			}
			if tc.name == "array" && (j.ID != "3_1" || j.Raw != "4") {
				t.Errorf("id %q, raw %q", j.ID, j.Raw)
			}
			if tc.name == "requeued, the run at a time" && j.Name != "train|big" {
				t.Errorf("name %q", j.Name)
			}
		})
	}
}
