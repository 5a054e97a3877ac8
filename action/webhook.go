// SPDX-License-Identifier: Apache-2.0

package action

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rackpulse/rackpulse/config"
)

func init() { register("webhook", newWebhook) }

// Headers of a call. The signature is HMAC-SHA256 over the timestamp, a full
// stop and the body, in hex, so that a recorded call cannot be told anew later.
const (
	HeaderKey       = "Idempotency-Key"
	HeaderTime      = "X-Rackpulse-Timestamp"
	HeaderSignature = "X-Rackpulse-Signature"
)

// maxAnswer bounds what is read of an answer, bytes.
const maxAnswer = 4 << 10

// webhookTimeout bounds one call.
const webhookTimeout = 10 * time.Second

// webhookConfig is a target {action: webhook}.
type webhookConfig struct {
	head `yaml:",inline"`
	// URL is called with POST.
	URL string `yaml:"url"`
	// SecretFile holds the key of the signature; without one nothing is signed.
	SecretFile string `yaml:"secret_file"`
	// CAFile holds the authorities of an https URL; empty: the system's.
	CAFile string `yaml:"ca_file"`
}

// webhook tells another system what is to be done to a node.
type webhook struct {
	url    string
	secret config.Secret
	client *http.Client
}

// Call is the body of a call.
type Call struct {
	Version int       `json:"version"` // 1
	ID      uint64    `json:"id"`
	Node    string    `json:"node"`
	Rack    string    `json:"rack_id,omitempty"`
	Class   string    `json:"class,omitempty"`
	Action  string    `json:"action"`
	Hard    bool      `json:"hard"`
	Reason  string    `json:"reason"`
	Actor   string    `json:"actor"`
	Created time.Time `json:"created"`
}

func newWebhook(part config.Part, deps Deps) (Target, error) {
	var c webhookConfig
	if err := part.Decode(&c); err != nil {
		return nil, err
	}
	u, err := callURL(c.URL)
	if err != nil {
		return nil, err
	}
	client, err := callClient(c.CAFile, deps)
	if err != nil {
		return nil, err
	}
	w := &webhook{url: u.String(), client: client}
	if c.SecretFile != "" {
		if w.secret, err = config.ReadSecret(deps.Resolve(c.SecretFile)); err != nil {
			return nil, fmt.Errorf("secret_file: %w", err)
		}
	}
	return w, nil
}

// Apply implements Target: one signed call. Any answer but 2xx is an error.
func (w *webhook) Apply(ctx context.Context, o Order) (string, error) {
	body, err := json.Marshal(Call{Version: 1, ID: o.ID, Node: o.Node, Rack: o.Rack, Class: o.Class, Action: o.Action,
		Hard: o.Hard, Reason: o.Reason, Actor: o.Actor, Created: o.Created})
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, webhookTimeout)
	defer cancel()
	status, answer, err := call(ctx, w.client, w.url, body, signed(w.secret, fmt.Sprintf("%d-%s-%t", o.ID, o.Action, o.Hard), body))
	switch {
	case err != nil:
		return "", fmt.Errorf("webhook: %w", err)
	case status/100 != 2:
		return "", fmt.Errorf("webhook answered %d: %s", status, brief(answer))
	}
	return strings.TrimSpace(fmt.Sprintf("webhook took it: %d %s", status, brief(answer))), nil
}

// signed are the headers of a call of ours.
func signed(secret config.Secret, key string, body []byte) http.Header {
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	h := http.Header{}
	h.Set(HeaderKey, key)
	h.Set(HeaderTime, stamp)
	if text := secret.Reveal(); text != "" {
		h.Set(HeaderSignature, "sha256="+sign(text, stamp, body))
	}
	return h
}

// call posts JSON and returns status and answer. Its errors do not show the URL,
// which may hold a token.
func call(ctx context.Context, client *http.Client, address string, body []byte, head http.Header) (status int, answer string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return 0, "", errors.New("the request cannot be made")
	}
	maps.Copy(req.Header, head)
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	res, err := client.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return 0, "", fmt.Errorf("read the answer: %w", err)
	}
	return res.StatusCode, string(text), nil
}

// brief is an answer in one short line.
func brief(text string) string {
	return cut(strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " "), maxMark)
}

// sign is the signature of a body that was sent at stamp.
func sign(key, stamp string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(stamp + "."))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// Close implements Target.
func (w *webhook) Close() error {
	w.client.CloseIdleConnections()
	return nil
}
