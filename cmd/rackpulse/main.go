// SPDX-License-Identifier: Apache-2.0

// Command rackpulse joins GPU and rack telemetry; see the README.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // from then on a second signal kills
	os.Exit(execute(ctx, os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr}))
}

// execute is the whole program but for signals and os.Exit.
func execute(ctx context.Context, args []string, std stdio) int {
	app := kingpin.New("rackpulse", "GPU and rack telemetry under shared rack labels: exporter, leases, correlation rules.")
	answered := false // by the help or the version
	app.Version(version.Print("rackpulse")).UsageWriter(std.out).ErrorWriter(std.err).Terminate(func(int) { answered = true })
	app.HelpFlag.Short('h')
	verbs := registerVerbs(app)
	name, err := app.Parse(args)
	if answered {
		return 0
	}
	if err != nil {
		fmt.Fprintf(std.err, "rackpulse: %v; try --help\n", err)
		return 2
	}
	if v, ok := verbs[name]; ok {
		err = v.run(ctx, std)
	}
	var code exitCode
	switch {
	case errors.As(err, &code):
		return int(code)
	case err != nil:
		fmt.Fprintf(std.err, "rackpulse: %v\n", err)
		return 1
	}
	return 0
}
