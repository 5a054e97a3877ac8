// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"runtime"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rackpulse/rackpulse/collector/gpu"
)

// registerGPUChild is the hidden verb of the process that holds the vendor
// library; the agent starts it.
func registerGPUChild(app *kingpin.Application) []verb {
	cmd := app.Command("gpu-child", "Read GPUs for an agent (started by the agent itself).").Hidden()
	return []verb{{cmd: cmd, run: func(ctx context.Context, std stdio) error {
		logger, _, err := (&logFlags{level: "info", format: "logfmt"}).loggers(std.err)
		if err != nil {
			return err
		}
		oneProcessor()
		defer lean()()
		// A signal to the whole group is for the agent; the child ends with its input.
		out := os.NewFile(gpu.ChildFD, "answers")
		return exitCode(gpu.ChildMain(context.WithoutCancel(ctx), std.in, out, logger))
	}}}
}

// oneProcessor keeps an agent or its child to one processor at a time, as node_exporter
// keeps itself: either needs a small part of one, and on more of them the runtime wakes
// threads for nothing, and keeps memory for each. GOMAXPROCS in the environment wins.
func oneProcessor() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
}
