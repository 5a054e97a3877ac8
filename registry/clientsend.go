// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// send sends one request: to the registry that answered last, then to the others
// as long as none leads. A redirect is followed once, to a registry of the
// configuration.
func (c *Client) send(ctx context.Context, method string, params url.Values, body any, path ...string) (*http.Response, error) {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	var resp *http.Response
	var err error
	first := int(c.first.Load())
	for i := range c.bases {
		at := (first + i) % len(c.bases)
		resp, err = c.sendTo(ctx, at, method, params, data, path)
		if err == nil && resp.StatusCode == http.StatusTemporaryRedirect {
			if to := c.known(resp.Header.Get("Location")); to >= 0 && to != at {
				at = to
				_ = resp.Body.Close() // what it says is in its header
				resp, err = c.sendTo(ctx, at, method, params, data, path)
			}
		}
		if !elsewhere(resp, err) {
			c.first.Store(int32(at))
			break
		}
		if resp != nil && i+1 < len(c.bases) {
			_ = resp.Body.Close() // another one is asked
		}
	}
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	return resp, nil
}

// elsewhere says whether another registry may know more: this one does not lead,
// or was not reached, so that nothing was done.
func elsewhere(resp *http.Response, err error) bool {
	if err != nil {
		var op *net.OpError
		return errors.As(err, &op) && op.Op == "dial"
	}
	return resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusTemporaryRedirect
}

// known is the index of the registry that a redirect names, -1 if it is none of
// the configuration. Only host and port count: how to speak to it is configured.
func (c *Client) known(location string) int {
	u, err := url.Parse(location)
	if err != nil {
		return -1
	}
	for i, base := range c.bases {
		if strings.EqualFold(base.Host, u.Host) {
			return i
		}
	}
	return -1
}

// sendTo sends one request to one registry.
func (c *Client) sendTo(ctx context.Context, at int, method string, params url.Values, body []byte, path []string) (*http.Response, error) {
	u := c.bases[at].JoinPath("api", "v1")
	for _, part := range path {
		u = u.JoinPath(url.PathEscape(part))
	}
	u.RawQuery = params.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if token := c.token.Reveal(); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return c.http.Do(req)
}
