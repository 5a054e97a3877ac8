// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"

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
		// A signal to the whole group is for the agent; the child ends with its input.
		out := os.NewFile(gpu.ChildFD, "answers")
		return exitCode(gpu.ChildMain(context.WithoutCancel(ctx), std.in, out, logger))
	}}}
}
