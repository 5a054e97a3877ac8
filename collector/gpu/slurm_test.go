// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestParseCgroup has lines as clusters show them: of several versions of Slurm,
// with one or several slurmd on a machine, in containers, and of others.
func TestParseCgroup(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		want holder
	}{
		"v2":             {"0::/system.slice/slurmstepd.scope/job_1392969/step_0/user/task_0\n", holder{job: "1392969"}},
		"v2 batch":       {"0::/system.slice/slurmstepd.scope/job_17/step_batch/user/task_special\n", holder{job: "17"}},
		"v2 ssh":         {"0::/system.slice/slurmstepd.scope/job_42/step_extern/user\n", holder{job: "42"}},
		"v2 stepd":       {"0::/system.slice/slurmstepd.scope/job_42/step_0/slurm\n", holder{job: "42"}},
		"v2 nodes":       {"0::/system.slice/cn12_slurmstepd.scope/job_999/step_0/user/task_3\n", holder{job: "999"}},
		"v2 dashed node": {"0::/system.slice/spark-7ff0_slurmstepd.scope/job_21866/step_0\n", holder{job: "21866"}},
		"v2 sluid":       {"0::/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0/user/task_0\n", holder{sluid: "s5K1KKYAYG5D00"}},
		"v2 sluid in docker": {
			"0::/system.slice/docker-4f1c.scope/system.slice/node02_slurmstepd.scope/sFCXM21Z5FYT00/step_extern/slurm\n", holder{sluid: "sFCXM21Z5FYT00"}},
		"v2 in a pod": {
			"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda101c1c8_1589_4313_acf5_02e3ca8d3994.slice/system.slice/slurmstepd.scope/job_8/step_0/user/task_0\n",
			holder{job: "8", pod: true}},
		"v2 seen from a namespace": {"0::/../../slurmstepd.scope/job_5/step_0/user/task_0\n", holder{job: "5"}},
		"v1": {"11:cpuset:/slurm/uid_1000/job_195428/step_batch\n4:memory:/slurm/uid_1000/job_195428/step_batch\n" +
			"1:name=systemd:/system.slice/slurmd.service\n", holder{job: "195428", uid: "1000"}},
		"v1 interactive": {"10:devices:/slurm/uid_2101171/job_280678/step_interactive/task_0\n", holder{job: "280678", uid: "2101171"}},
		"v1 freezer only": {"12:cpuset:/\n9:freezer:/slurm/uid_262563/job_55786247/step_0\n3:cpu,cpuacct:/slurm\n" +
			"0::/user.slice\n", holder{job: "55786247", uid: "262563"}},
		// Slurm 22.05 of Debian with proctrack/cgroup, a task of an array.
		"v1 Debian": {"9:name=systemd:/\n8:pids:/\n7:blkio:/\n6:freezer:/slurm_owngpu1/uid_0/job_1/step_batch\n5:devices:/\n4:memory:/process_api/0e038ede\n" +
			"3:cpuset:/\n2:cpuacct:/\n1:cpu:/\n0::/\n", holder{job: "1", uid: "0"}},
		"v1 nodes":     {"5:devices:/slurm_gpu-a01/uid_71/job_3/step_4/task_5\n", holder{job: "3", uid: "71"}},
		"v1 no task":   {"7:memory:/slurm/uid_1000/job_1870\n", holder{job: "1870", uid: "1000"}},
		"hybrid":       {"2:freezer:/slurm/uid_9/job_10/step_0\n0::/system.slice/slurmd.service\n", holder{job: "10", uid: "9"}},
		"no newline":   {"0::/system.slice/slurmstepd.scope/job_7", holder{job: "7"}},
		"pod, systemd": {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1f3d.slice/cri-containerd-77aa.scope\n", holder{pod: true}},
		"pod, cgroupfs": {"11:devices:/kubepods/besteffort/pod8f3c5d1e-1111-2222-3333-444455556666/0af3\n1:name=systemd:/kubepods/besteffort/pod8f3c\n",
			holder{pod: true}},
		"pod, kind":              {"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod12.slice/cri-containerd-5.scope\n", holder{pod: true}},
		"pod, seen from another": {"0::/../../../besteffort/pod8f3c5d1e-1111-2222-3333-444455556666/0af3\n", holder{pod: true}},
		"static pod, seen so":    {"0::/../../pod3f2a1b0c9d8e7f605142332415060718/9b\n", holder{pod: true}},
		"systemd, seen so":       {"0::/../../kubepods-burstable-pod1f3d.slice/cri-containerd-77aa.scope\n", holder{pod: true}},
		"a name with pod":        {"0::/system.slice/podman.service/pod-of-mine\n", holder{}},
		"pod, bare containerd":   {"4:memory:/k8s.io/3f0c7a\n", holder{pod: true}},
		// Of nobody.
		"session":           {"0::/user.slice/user-1000.slice/session-3.scope\n", holder{}},
		"docker":            {"0::/system.slice/docker-2a5f.scope\n", holder{}},
		"slurmd itself":     {"0::/system.slice/slurmd.service\n", holder{}},
		"Slurm's own":       {"0::/system.slice/slurmstepd.scope/system\n", holder{}},
		"job elsewhere":     {"0::/user.slice/job_456/step_0\n", holder{}},
		"no number":         {"0::/system.slice/slurmstepd.scope/job_bad/step_0\n", holder{}},
		"too big a number":  {"0::/system.slice/slurmstepd.scope/job_4294967296\n", holder{}},
		"signed":            {"0::/system.slice/slurmstepd.scope/job_+4\n", holder{}},
		"user without job":  {"4:memory:/slurm/uid_1000\n", holder{}},
		"no user":           {"4:memory:/slurm/job_1000/step_0\n", holder{}},
		"bad user":          {"4:memory:/slurm/uid_x/job_1000/step_0\n", holder{}},
		"a name with slurm": {"0::/system.slice/slurm-exporter.service/job_1\n", holder{}},
		"short sluid":       {"0::/system.slice/slurmstepd.scope/s5K1K\n", holder{}},
		"empty":             {"", holder{}},
		"rubbish":           {"\x00\n::\n:\n0:\n", holder{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := parseCgroup([]byte(c.file)); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func FuzzParseCgroup(f *testing.F) {
	f.Add([]byte("0::/system.slice/slurmstepd.scope/job_1392969/step_0/user/task_0\n"))
	f.Add([]byte("10:devices:/slurm/uid_2101171/job_280678/step_interactive/task_0\n1:name=systemd:/"))
	f.Fuzz(func(t *testing.T, data []byte) {
		h := parseCgroup(data)
		if h.job != "" && !isNumber(h.job) || h.uid != "" && !isNumber(h.uid) || h.sluid != "" && !isSLUID(h.sluid) {
			t.Errorf("%+v", h)
		}
	})
}

func TestSlurmRuns(t *testing.T) {
	for _, dir := range []string{"system.slice/slurmstepd.scope", "system.slice/n1_slurmstepd.scope", "devices/slurm", "freezer/slurm_n1"} {
		root := t.TempDir()
		if slurmRuns(root) {
			t.Error("Slurm in an empty folder")
		}
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if !slurmRuns(root) {
			t.Errorf("not seen: %s", dir)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// words shows mapped jobs, sorted.
func words(jobs []mappedJob) []string {
	var list []string
	for _, j := range jobs {
		list = append(list, strings.TrimSuffix(j.gpu+"."+j.gi, ".")+"="+j.job)
	}
	slices.Sort(list)
	return list
}

func TestReadMapping(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "0"), "1234\n")
	write(t, filepath.Join(dir, "1"), "77_3\r\n78+1\n\n 78+1 \n79")
	write(t, filepath.Join(dir, "2.7"), "80\n")
	write(t, filepath.Join(dir, "3"), "")
	write(t, filepath.Join(dir, ".0.swp"), "1\n")
	write(t, filepath.Join(dir, "README"), "2\n")
	write(t, filepath.Join(dir, "0.x"), "3\n")
	got, err := readMapping(dir)
	if err != nil {
		t.Fatal(err)
	}
	if w := []string{"0=1234", "1=77_3", "1=78+1", "1=79", "2.7=80"}; !slices.Equal(words(got), w) {
		t.Errorf("got %q, want %q", words(got), w)
	}
}

// TestReadMappingTrouble: one bad file costs its own jobs only.
func TestReadMappingTrouble(t *testing.T) {
	for name, c := range map[string]struct {
		make   func(t *testing.T, path string)
		reason string
		jobs   int
	}{
		// What an epilog does between the listing and the opening: not an error.
		"vanished": {func(t *testing.T, path string) {
			if err := os.Symlink(path+".gone", path); err != nil {
				t.Fatal(err)
			}
		}, "", 0},
		"folder": {func(t *testing.T, path string) { write(t, filepath.Join(path, "x"), "1") }, "not a plain file", 0},
		"pipe": {func(t *testing.T, path string) {
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		}, "not a plain file", 0},
		"endless":    {func(t *testing.T, path string) { write(t, path, "5\n"+strings.Repeat("\n", maxMappingFile)) }, "longer than 16384 bytes", 1},
		"many jobs":  {func(t *testing.T, path string) { write(t, path, lines(maxJobsPerGPU+1)) }, "more than 64 jobs", 64},
		"no job id":  {func(t *testing.T, path string) { write(t, path, "12\n<script>\n13\n") }, `"<script>" is not a job id`, 2},
		"binary":     {func(t *testing.T, path string) { write(t, path, "\xff\xfe\x00") }, "is not a job id", 0},
		"long words": {func(t *testing.T, path string) { write(t, path, strings.Repeat("1", 65)+"\n2\n") }, "is not a job id", 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "7"), "99\n")
			c.make(t, filepath.Join(dir, "5"))
			got, err := readMapping(dir)
			if len(got) != c.jobs+1 || !slices.Contains(words(got), "7=99") {
				t.Errorf("jobs: %q", words(got))
			}
			if c.reason == "" && err != nil || c.reason != "" && (err == nil || !strings.Contains(err.Error(), c.reason)) {
				t.Errorf("error %v, want %q", err, c.reason)
			}
		})
	}
	if _, err := readMapping(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no error without the folder")
	}
	dir := t.TempDir()
	for i := range maxMappingFiles + 10 {
		write(t, filepath.Join(dir, fmt.Sprint(i)), "1\n")
	}
	got, err := readMapping(dir)
	if len(got) != maxMappingFiles || err == nil || !strings.Contains(err.Error(), "1024 files") {
		t.Errorf("%d jobs, %v", len(got), err)
	}
}

func lines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i)
	}
	return b.String()
}
