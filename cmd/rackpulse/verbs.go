// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"

	"github.com/alecthomas/kingpin/v2"
)

// stdio is where a verb reads and writes.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// verb is one subcommand: it registers its flags and runs.
type verb struct {
	cmd *kingpin.CmdClause
	run func(ctx context.Context, std stdio) error
}

// exitCode is an error that only carries the exit status.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit status %d", int(c)) }

// registerVerbs builds the subcommands, by full name.
func registerVerbs(app *kingpin.Application) map[string]verb {
	out := map[string]verb{}
	for _, register := range []func(*kingpin.Application) []verb{
		registerAgent, registerRegistry, registerStandalone, registerRules, registerFiles,
		registerNodes, registerBreaker, registerParts, registerHealthcheck, registerGPUChild, registerXID, registerFacility, registerExplain,
		registerBaseline, registerStatus, registerDashboards,
	} {
		for _, v := range register(app) {
			out[v.cmd.FullCommand()] = v
		}
	}
	return out
}
