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
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	promconfig "github.com/prometheus/common/config"

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
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		return nil, errors.New("url is not a URL") // err would show a password
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("url %q, want http://HOST/PATH or https://HOST/PATH", u.Redacted())
	case u.User != nil:
		return nil, errors.New("url holds a user: sign with secret_file instead")
	}
	h := promconfig.DefaultHTTPClientConfig
	h.FollowRedirects = false
	if c.CAFile != "" {
		h.TLSConfig.CAFile = deps.Resolve(c.CAFile)
	}
	client, err := promconfig.NewClientFromConfig(h, "webhook")
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
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(HeaderKey, fmt.Sprintf("%d-%s-%t", o.ID, o.Action, o.Hard))
	req.Header.Set(HeaderTime, stamp)
	if key := w.secret.Reveal(); key != "" {
		req.Header.Set(HeaderSignature, "sha256="+sign(key, stamp, body))
	}
	res, err := w.client.Do(req)
	if err != nil {
		return "", fmt.Errorf("webhook: %w", err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return "", fmt.Errorf("webhook: read the answer: %w", err)
	}
	answer := strings.Join(strings.Fields(strings.ToValidUTF8(string(text), "?")), " ")
	answer = answer[:min(len(answer), maxMark)]
	if res.StatusCode/100 != 2 {
		return "", fmt.Errorf("webhook answered %s: %s", res.Status, answer)
	}
	return strings.TrimSpace("webhook took it: " + res.Status + " " + answer), nil
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
