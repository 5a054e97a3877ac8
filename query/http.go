// SPDX-License-Identifier: Apache-2.0

package query

import (
	"context"
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
)

const (
	// DefaultTimeout bounds one request, from dialling to the last byte.
	DefaultTimeout = 30 * time.Second
	// DefaultMaxBytes bounds one answer: 64 MiB hold about a million points.
	DefaultMaxBytes = 64 << 20

	maxExprInError = 200 // characters of an expression shown in an error
	maxBodyInError = 200 // characters of a foreign body shown in an error
)

// Config says where a Prometheus-compatible store is and how to reach it.
type Config struct {
	// URL is the base, without /api/v1: "http://prom:9090",
	// "https://mimir/prometheus", "http://vmselect:8481/select/0/prometheus".
	// User and password in it are used for basic authentication.
	URL string
	// HTTP is TLS, basic authentication, bearer token (file), proxy and
	// headers (such as X-Scope-OrgID), as in a Prometheus configuration.
	HTTP promconfig.HTTPClientConfig
	// Timeout bounds one request; 0 means DefaultTimeout.
	Timeout time.Duration
	// MaxBytes bounds one answer, in bytes; 0 means DefaultMaxBytes.
	MaxBytes int64
}

type httpQuerier struct {
	base     *url.URL
	shown    string // base without user, password, query
	client   *http.Client
	timeout  time.Duration
	maxBytes int64
}

// NewHTTP returns a Querier over the Prometheus HTTP API, which Prometheus,
// Thanos, Mimir and VictoriaMetrics all speak. Nothing is dialled before the
// first query. Redirects are not followed: they would carry the expression,
// and with some proxies the credentials, to another host. Where a store can
// answer in part (Thanos, VictoriaMetrics), a partial answer is asked not to
// be given and, if given all the same, is an error.
func NewHTTP(cfg Config) (Querier, error) {
	base, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, errors.New("prometheus url: not a valid url") // err would show the password
	}
	if (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, errors.New("prometheus url: want http://HOST or https://HOST")
	}
	if err := cfg.HTTP.Validate(); err != nil {
		return nil, fmt.Errorf("prometheus client: %w", err)
	}
	if base.User != nil {
		if cfg.HTTP.BasicAuth != nil {
			return nil, errors.New("prometheus url: has a user, but basic_auth is set too")
		}
		password, _ := base.User.Password()
		cfg.HTTP.BasicAuth = &promconfig.BasicAuth{Username: base.User.Username(), Password: promconfig.Secret(password)}
		base.User = nil
	}
	cfg.HTTP.FollowRedirects = false
	client, err := promconfig.NewClientFromConfig(cfg.HTTP, "rackpulse")
	if err != nil {
		return nil, fmt.Errorf("prometheus client: %w", err)
	}
	base.RawQuery, base.Fragment = "", ""
	base.Path = strings.TrimSuffix(base.Path, "/")
	q := &httpQuerier{base: base, shown: base.String(), client: client, timeout: cfg.Timeout, maxBytes: cfg.MaxBytes}
	if q.timeout <= 0 {
		q.timeout = DefaultTimeout
	}
	if q.maxBytes <= 0 {
		q.maxBytes = DefaultMaxBytes
	}
	return q, nil
}

// Instant implements Querier.
func (q *httpQuerier) Instant(ctx context.Context, expr string, at time.Time) ([]Sample, error) {
	form := url.Values{"query": {expr}, "time": {unixSeconds(at)}}
	data, err := q.ask(ctx, "query", form)
	if err != nil {
		return nil, q.wrap(expr, err)
	}
	samples, err := decodeInstant(data)
	if err != nil {
		return nil, q.wrap(expr, err)
	}
	return samples, nil
}

// Range implements Querier.
func (q *httpQuerier) Range(ctx context.Context, expr string, from, to time.Time, step time.Duration) ([]Series, error) {
	if step < time.Millisecond {
		return nil, q.wrap(expr, fmt.Errorf("step %v: want at least 1ms", step))
	}
	form := url.Values{
		"query": {expr}, "start": {unixSeconds(from)}, "end": {unixSeconds(to)},
		"step": {strconv.FormatFloat(step.Seconds(), 'f', -1, 64)},
	}
	data, err := q.ask(ctx, "query_range", form)
	if err != nil {
		return nil, q.wrap(expr, err)
	}
	series, err := decodeRange(data)
	if err != nil {
		return nil, q.wrap(expr, err)
	}
	return series, nil
}

// Alerts implements Querier. VictoriaMetrics answers from vmalert, if it is
// started with -vmalert.proxyURL.
func (q *httpQuerier) Alerts(ctx context.Context) ([]Alert, error) {
	data, err := q.ask(ctx, "alerts", nil)
	if err != nil {
		return nil, q.wrap("", err)
	}
	alerts, err := decodeAlerts(data)
	if err != nil {
		return nil, q.wrap("", err)
	}
	return alerts, nil
}

// answer is the envelope of the Prometheus HTTP API.
type answer struct {
	Status    string          `json:"status"`
	Data      json.RawMessage `json:"data"`
	ErrorType string          `json:"errorType"`
	Error     string          `json:"error"`
	Warnings  []string        `json:"warnings"`
	IsPartial bool            `json:"isPartial"` // VictoriaMetrics cluster
}

// ask posts a form (or gets, without one) and returns the data of a whole answer.
func (q *httpQuerier) ask(ctx context.Context, endpoint string, form url.Values) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, q.timeout, fmt.Errorf("no answer within %v", q.timeout))
	defer cancel()
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
		form.Set("timeout", strconv.FormatFloat(q.timeout.Seconds(), 'f', -1, 64)+"s")
		form.Set("partial_response", "false")  // Thanos
		form.Set("deny_partial_response", "1") // VictoriaMetrics
	}
	code, body, err := q.send(ctx, method, endpoint, form)
	if err == nil && form != nil && (code == http.StatusMethodNotAllowed || code == http.StatusNotImplemented) {
		// Read-only proxies let only GET through.
		code, body, err = q.send(ctx, http.MethodGet, endpoint, form)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, err
	}
	var a answer
	if jsonErr := json.Unmarshal(body, &a); jsonErr != nil || a.Status == "" {
		return nil, fmt.Errorf("status %d, not the prometheus api: %q", code, clip(string(body), maxBodyInError))
	}
	if a.Status != "success" || code/100 != 2 {
		return nil, fmt.Errorf("status %d: %s: %s", code, clip(a.ErrorType, maxBodyInError), clip(a.Error, maxBodyInError))
	}
	if err := a.partial(); err != nil {
		return nil, err
	}
	return a.Data, nil
}

// partial returns an error when the answer says that something is missing from
// it. Remarks of the PromQL engine (they start with "PromQL") do not say so;
// every other warning comes from a store that could not be read.
func (a *answer) partial() error {
	if a.IsPartial {
		return errors.New("partial answer: some storage nodes did not reply")
	}
	for _, w := range a.Warnings {
		if !strings.HasPrefix(w, "PromQL ") {
			return fmt.Errorf("partial answer: %s", clip(w, maxBodyInError))
		}
	}
	return nil
}

func (q *httpQuerier) send(ctx context.Context, method, endpoint string, form url.Values) (int, []byte, error) {
	u := q.base.JoinPath("api", "v1", endpoint)
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader(form.Encode())
	} else {
		u.RawQuery = form.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return 0, nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	req.Header.Set("Accept", "application/json")
	resp, err := q.client.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // without the url, which may hold the whole expression
		}
		return 0, nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, q.maxBytes+1))
	if err != nil {
		return 0, nil, fmt.Errorf("reading the answer: %w", err)
	}
	if int64(len(raw)) > q.maxBytes {
		return 0, nil, fmt.Errorf("answer is larger than %d bytes", q.maxBytes)
	}
	return resp.StatusCode, raw, nil
}

func (q *httpQuerier) wrap(expr string, err error) error {
	if expr == "" {
		return fmt.Errorf("%s: %w", q.shown, err)
	}
	return fmt.Errorf("%s: %q: %w", q.shown, clip(expr, maxExprInError), err)
}

func unixSeconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64)
}

func clip(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most]) + "..."
}
