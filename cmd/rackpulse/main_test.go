// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestHelpRunsNothing asks for the help of commands, and for the version.
func TestHelpRunsNothing(t *testing.T) {
	for args, want := range map[string]string{
		"registry --help":        "registry backup",
		"registry backup --help": "File to write",
		"nodes --help":           "Lease board",
		"--version":              "rackpulse, version",
	} {
		var out, errs bytes.Buffer
		code := execute(t.Context(), strings.Fields(args), stdio{nil, &out, &errs})
		if code != 0 || errs.Len() > 0 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: exit status %d, %q, %q", args, code, out.String(), errs.String())
		}
	}
}
