// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/alecthomas/kingpin/v2"
)

// registerHealthcheck is "rackpulse healthcheck": the image has no other client.
func registerHealthcheck(app *kingpin.Application) []verb {
	var url string
	cmd := app.Command("healthcheck", "Ask a role whether it serves; exit status 1 if not. For containers.")
	cmd.Arg("url", "Address of its /-/healthy or /-/ready.").Required().StringVar(&url)
	return []verb{{cmd: cmd, run: func(ctx context.Context, _ stdio) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", url, resp.Status)
		}
		return nil
	}}}
}
