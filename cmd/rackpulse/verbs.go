// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/alecthomas/kingpin/v2"

// registerVerbs builds the subcommands, by full name.
func registerVerbs(app *kingpin.Application) map[string]verb {
	out := map[string]verb{}
	for _, register := range []func(*kingpin.Application) []verb{
		registerAgent, registerRegistry, registerStandalone, registerRules, registerFiles,
		registerNodes, registerBreaker, registerParts, registerHealthcheck, registerGPUChild, registerXID, registerFacility, registerExplain,
		registerBaseline, registerStatus,
	} {
		for _, v := range register(app) {
			out[v.cmd.FullCommand()] = v
		}
	}
	return out
}
