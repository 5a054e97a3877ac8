// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/rackpulse/rackpulse/config"
)

// webhookSink posts messages as JSON, signed like the calls of the action webhook.
type webhookSink struct {
	url    string
	secret config.Secret
	client *http.Client
}

func newWebhookSink(part config.Part, deps Deps) (Sink, error) {
	var c sinkHead
	if err := part.Decode(&c); err != nil {
		return nil, err
	}
	address, secret, client, err := c.open(deps)
	if err != nil {
		return nil, err
	}
	return &webhookSink{url: address.String(), secret: secret, client: client}, nil
}

// Send implements Sink. A status of 400, 404, 410, 413 or 422 says that the
// message will never be taken.
func (w *webhookSink) Send(ctx context.Context, n Notice) error {
	body, err := json.Marshal(n.Body)
	if err != nil {
		return &RefusedError{err.Error()}
	}
	status, answer, err := call(ctx, w.client, w.url, body, signed(w.secret, n.Key, body))
	if err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	reason := fmt.Sprintf("webhook answered %d: %s", status, brief(answer))
	switch status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusGone, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return &RefusedError{reason}
	}
	if status/100 != 2 {
		return fmt.Errorf("%s", reason)
	}
	return nil
}

// Close implements Sink.
func (w *webhookSink) Close() error {
	w.client.CloseIdleConnections()
	return nil
}
