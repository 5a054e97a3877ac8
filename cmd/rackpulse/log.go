// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
)

// logFlags are the two logging flags that every long-running verb has.
type logFlags struct{ level, format string }

func (f *logFlags) register(cmd *kingpin.CmdClause) {
	cmd.Flag("log.level", "Least severe messages to log: debug, info, warn, error.").Default("info").EnumVar(&f.level, "debug", "info", "warn", "error")
	cmd.Flag("log.format", "Log format: logfmt or json.").Default("logfmt").EnumVar(&f.format, "logfmt", "json")
}

// loggers returns the logger of the process and its slog face for libraries.
// The level filter is outermost, so that a message below it costs little.
func (f *logFlags) loggers(w io.Writer) (log.Logger, *slog.Logger, error) {
	base := log.NewLogfmtLogger(log.NewSyncWriter(w))
	if f.format == "json" {
		base = log.NewJSONLogger(log.NewSyncWriter(w))
	}
	allowed, err := level.Parse(f.level)
	if err != nil {
		return nil, nil, fmt.Errorf("log level %q: %w", f.level, err)
	}
	stamped := log.With(base, "ts", log.DefaultTimestampUTC)
	logger := level.NewFilter(log.With(stamped, "caller", log.Caller(5)), level.Allow(allowed))
	return logger, newSlog(level.NewFilter(stamped, level.Allow(allowed))), nil
}
