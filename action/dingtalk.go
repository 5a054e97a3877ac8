// SPDX-License-Identifier: Apache-2.0

package action

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/rackpulse/rackpulse/config"
)

// Limits of DingTalk's custom robots, from the vendor's pages on them: a message
// of at most 20,000 bytes (code 460101 beyond), 20 messages in a minute, and
// silence for ten minutes for a robot that sends more (code 130101).
const (
	dingMaxBytes  = 20000
	dingPerMinute = 20
	dingThrottled = 10 * time.Minute
	dingMargin    = 500 // bytes of the message around its text
)

// dingConfig is a sink {sink: dingtalk}.
type dingConfig struct {
	sinkHead `yaml:",inline"`
	// Keyword is one that the robot wants in each message, if it was set up so.
	Keyword string `yaml:"keyword"`
}

// dingTalk is a custom robot of a DingTalk group.
type dingTalk struct {
	address *url.URL
	secret  config.Secret
	keyword string
	client  *http.Client
	sent    []time.Time // of the last minute; of the sending goroutine alone
}

func newDingTalk(part config.Part, deps Deps) (Sink, error) {
	var c dingConfig
	if err := part.Decode(&c); err != nil {
		return nil, err
	}
	address, secret, client, err := c.open(deps)
	if err != nil {
		return nil, err
	}
	if address.Query().Get("access_token") == "" {
		return nil, fmt.Errorf("url: want the robot's, https://oapi.dingtalk.com/robot/send?access_token=...")
	}
	return &dingTalk{address: address, secret: secret, keyword: c.Keyword, client: client}, nil
}

// dingSign is the signature of a robot's call: HMAC-SHA256 with the secret over
// the milliseconds, a newline and the secret, in base64.
func dingSign(secret, millis string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(millis + "\n" + secret))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// dingMessage is a message of type markdown.
type dingMessage struct {
	Type     string `json:"msgtype"`
	Markdown struct {
		Title string `json:"title"`
		Text  string `json:"text"`
	} `json:"markdown"`
}

// dingRefused are the codes of calls that will never succeed as they are: wrong
// signature, keyword or address of the sender; no or a stopped robot; too long.
var dingRefused = map[int]bool{310000: true, 300001: true, 300005: true, 400101: true, 400102: true, 400013: true, 460101: true}

// dingTooFast is the code of a robot that is held for sending too much.
const dingTooFast = 130101

// Send implements Sink.
func (d *dingTalk) Send(ctx context.Context, n Notice) error {
	now := time.Now()
	for len(d.sent) > 0 && now.Sub(d.sent[0]) >= time.Minute {
		d.sent = d.sent[1:]
	}
	if len(d.sent) >= dingPerMinute {
		return &LaterError{time.Minute - now.Sub(d.sent[0]), "20 messages were sent within a minute"}
	}
	d.sent = append(d.sent, now)
	address := *d.address
	if secret := d.secret.Reveal(); secret != "" {
		millis := strconv.FormatInt(now.UnixMilli(), 10)
		q := address.Query()
		q.Set("timestamp", millis)
		q.Set("sign", dingSign(secret, millis))
		address.RawQuery = q.Encode()
	}
	body, err := dingBody(n, d.keyword)
	if err != nil {
		return err
	}
	status, text, err := call(ctx, d.client, address.String(), body, nil)
	if err != nil {
		return fmt.Errorf("dingtalk: %w", err)
	}
	var answer struct {
		Code    *int   `json:"errcode"`
		Message string `json:"errmsg"`
	}
	if err := json.Unmarshal([]byte(text), &answer); status/100 != 2 || err != nil || answer.Code == nil {
		return fmt.Errorf("dingtalk answered %d: %s", status, brief(text))
	}
	reason := fmt.Sprintf("dingtalk: code %d: %s", *answer.Code, brief(answer.Message))
	switch {
	case *answer.Code == 0:
		return nil
	case *answer.Code == dingTooFast:
		return &LaterError{dingThrottled, reason}
	case dingRefused[*answer.Code]:
		return &RefusedError{reason}
	}
	return fmt.Errorf("%s", reason)
}

// dingBody is the message, cut at a line's end so that it fits.
func dingBody(n Notice, keyword string) ([]byte, error) {
	m := dingMessage{Type: "markdown"}
	m.Markdown.Title = cut(n.Title, 200)
	text := n.Markdown
	if keyword != "" && !strings.Contains(text, keyword) {
		text = keyword + "\n\n" + text
	}
	m.Markdown.Text = text
	for most := dingMaxBytes - dingMargin; ; most -= dingMargin {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(&m); err != nil {
			return nil, err
		}
		if b.Len() <= dingMaxBytes {
			return b.Bytes(), nil
		}
		short := cut(text, most)
		if i := strings.LastIndexByte(short, '\n'); i > most/2 {
			short = short[:i]
		}
		m.Markdown.Text = short + "\n\n(cut: the message was too long)"
	}
}

// cut returns at most n bytes of a text, whole characters only.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

// Close implements Sink.
func (d *dingTalk) Close() error {
	d.client.CloseIdleConnections()
	return nil
}
