// SPDX-License-Identifier: Apache-2.0

package action

import (
	"errors"
	"time"
)

// Job is one run of a batch job, or a pod, as its scheduler tells of it.
type Job struct {
	// ID is the scheduler's: "4711", "4711_3" or "namespace/pod".
	ID string
	// Raw is Slurm's own number of a task of an array, or ID.
	Raw  string
	Name string
	User string
	// State and Reason are in the scheduler's words.
	State, Reason string
	// Failed says that it ended, and not as it should.
	Failed bool
	// Ended says that it runs no more, also where End is not known.
	Ended bool
	Nodes []string
	// Start and End are zero where they are not known.
	Start, End time.Time
	// Notes are what else the scheduler tells, each a line.
	Notes []string
}

// ErrNoJob says that a scheduler answers, and knows no such job.
var ErrNoJob = errors.New("no such job")

// maxJobNodes bounds the nodes of a job, maxNotes what is told beside.
const (
	maxJobNodes = 4096
	maxNotes    = 20
)
