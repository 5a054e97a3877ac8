// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"bytes"
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
)

const (
	// maxCgroupFile bounds /proc/PID/cgroup: a path has at most 4096 bytes, and
	// version 1 has a dozen of hierarchies.
	maxCgroupFile = 64 << 10
	// maxMappingFiles, maxMappingFile and maxJobsPerGPU bound the mapping folder:
	// files, bytes of one, and job ids in one.
	maxMappingFiles = 1024
	maxMappingFile  = 16 << 10
	maxJobsPerGPU   = 64
	// maxJobID bounds a job id in bytes; "4294967295_4294967294" has 21.
	maxJobID = 64
)

// holder says who a process belongs to, as its cgroup shows.
type holder struct {
	job   string // Slurm's number
	sluid string // what Slurm 26.05 has in the number's place
	uid   string // the job's user, where the path has it
	pod   bool   // a Kubernetes pod
}

// managed tells whether a batch system answers for the process.
func (h holder) managed() bool { return h.pod || h.job != "" || h.sluid != "" }

// parseCgroup reads /proc/PID/cgroup, of cgroup version 1 (a line for each
// hierarchy), 2 (one line), or both.
func parseCgroup(data []byte) holder {
	var h holder
	for line := range bytes.Lines(data) {
		_, rest, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			continue
		}
		_, path, ok := bytes.Cut(rest, []byte(":"))
		if !ok {
			continue
		}
		h.look(strings.Split(strings.TrimSuffix(string(path), "\n"), "/"))
	}
	return h
}

// look takes what one path says. Slurm's own elements are followed by the job:
//
//	slurm[_NODE]/uid_UID/job_N/...            version 1
//	[NODE_]slurmstepd.scope/job_N/...         version 2
//	[NODE_]slurmstepd.scope/SLUID/...         version 2, since Slurm 26.05
//
// They may stand below the cgroup of a container in which slurmd runs.
func (h *holder) look(path []string) {
	for i, element := range path {
		rest := path[i+1:]
		switch {
		case isPodElement(element):
			h.pod = true
		case element == "slurm" || strings.HasPrefix(element, "slurm_"):
			if len(rest) > 1 {
				if uid, ok := strings.CutPrefix(rest[0], "uid_"); ok && isNumber(uid) && h.jobIn(rest[1]) {
					h.uid = uid
				}
			}
		case element == "slurmstepd.scope" || strings.HasSuffix(element, "_slurmstepd.scope"):
			if len(rest) > 0 && !h.jobIn(rest[0]) && isSLUID(rest[0]) {
				h.sluid = rest[0]
			}
		}
	}
}

// isPodElement tells whether an element is only in the paths of pods: the kubelet's,
// containerd's where nobody tells it more, or "pod" and a pod's UID, of which a
// static pod's is 32 hexadecimal digits. The last is all that a container with a
// cgroup namespace of its own sees of another's path, if systemd does not make the
// names.
func isPodElement(s string) bool {
	if strings.Contains(s, "kubepods") || s == "k8s.io" {
		return true
	}
	uid, ok := strings.CutPrefix(s, "pod")
	if !ok || len(uid) != 32 && len(uid) != uuidLength {
		return false
	}
	return strings.IndexFunc(uid, func(r rune) bool { return !strings.ContainsRune("0123456789abcdef-", r) }) < 0
}

// jobIn takes the job of an element "job_N".
func (h *holder) jobIn(element string) bool {
	id, ok := strings.CutPrefix(element, "job_")
	if !ok || !isNumber(id) {
		return false
	}
	h.job = id
	return true
}

// isNumber tells whether a text is a number of 32 bits in plain digits.
func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 32)
	return err == nil
}

// isSLUID tells whether a text looks like Slurm's own unique id: an s and 13
// characters of base 32, such as s5K1KKYAYG5D00.
func isSLUID(s string) bool {
	if len(s) != 14 || s[0] != 's' {
		return false
	}
	return strings.IndexFunc(s[1:], func(r rune) bool { return (r < '0' || r > '9') && (r < 'A' || r > 'Z') }) < 0
}

// slurmPlaces is where slurmd keeps its cgroups while it runs, jobs or none.
var slurmPlaces = []string{"system.slice/slurmstepd.scope", "system.slice/*_slurmstepd.scope", "*/slurm", "*/slurm_*"}

// slurmRuns tells whether there are Slurm's cgroups under root, /sys/fs/cgroup.
func slurmRuns(root string) bool {
	for _, place := range slurmPlaces {
		if found, err := filepath.Glob(filepath.Join(root, place)); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}

// mappedJob is one job id of the mapping folder.
type mappedJob struct {
	gpu string // the gpu label of the series
	gi  string // the MIG GPU instance, or empty
	job string
}

// readMapping reads a mapping folder: a file for each GPU ("0") or MIG GPU instance
// ("0.7") with a job id in each line. Files of other names are left alone. A file
// that cannot be read costs its own jobs only; the error names the first.
func readMapping(dir string) ([]mappedJob, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	entries, err := f.ReadDir(maxMappingFiles)
	f.Close()
	if err != nil && err != io.EOF {
		return nil, err
	}
	var jobs []mappedJob
	var first error
	for _, e := range entries {
		gpu, gi, ok := mappingName(e.Name())
		if !ok {
			continue
		}
		ids, err := readJobIDs(filepath.Join(dir, e.Name()))
		if err != nil && first == nil && !errors.Is(err, fs.ErrNotExist) { // gone: an epilog's doing
			first = err
		}
		for _, id := range ids {
			jobs = append(jobs, mappedJob{gpu, gi, id})
		}
	}
	if len(entries) == maxMappingFiles && first == nil {
		first = fmt.Errorf("%s: %d files or more, the rest is left out", dir, maxMappingFiles)
	}
	return jobs, first
}

// mappingName takes the name of a mapping file apart.
func mappingName(name string) (gpu, gi string, ok bool) {
	gpu, gi, mig := strings.Cut(name, ".")
	return gpu, gi, isNumber(gpu) && (!mig || isNumber(gi))
}

// readJobIDs reads one mapping file. What is not a plain file is refused unopened
// or unread: a pipe would not let go.
func readJobIDs(path string) ([]string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a plain file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxMappingFile+1))
	if err != nil {
		return nil, err
	}
	var ids []string
	for line := range strings.Lines(string(data[:min(len(data), maxMappingFile)])) {
		id := strings.TrimSpace(line)
		switch {
		case id == "" || slices.Contains(ids, id):
		case !isJobID(id):
			err = fmt.Errorf("%s: %q is not a job id", path, id[:min(len(id), maxJobID)])
		case len(ids) == maxJobsPerGPU:
			return ids, fmt.Errorf("%s: more than %d jobs, the rest is left out", path, maxJobsPerGPU)
		default:
			ids = append(ids, id)
		}
	}
	if len(data) > maxMappingFile {
		err = fmt.Errorf("%s: longer than %d bytes, the rest is left out", path, maxMappingFile)
	}
	return ids, err
}

// isJobID tells whether a text may be a job id of any batch system, such as 12,
// 12_3 (array), 12+1 (heterogeneous) or 12.server.
func isJobID(s string) bool {
	if len(s) > maxJobID {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("_+-.[]%:", r)
	}) < 0
}
