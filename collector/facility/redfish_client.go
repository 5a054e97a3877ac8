// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/schemas"

	"github.com/rackpulse/rackpulse/config"
)

const (
	// maxRedfishBody bounds one answer; an expanded collection of 54 outlets has
	// some 100 KiB.
	maxRedfishBody = 4 << 20
	// redfishParallel is the most requests at a time: BMCs serve about four
	// clients and are shared with others.
	redfishParallel = 2
	// maxRedfishRequest is the longest time for one request.
	maxRedfishRequest = 5 * time.Second
)

// redfishClient talks to one Redfish service. It logs in once and keeps the
// session; when the service no longer knows it, it logs in again.
type redfishClient struct {
	endpoint string
	login    loginConfig
	http     *http.Client
	api      *gofish.APIClient
	expand   string // the query that expands a collection; empty: not supported
}

// redfishEndpoint checks an address: host, host:port or a URL without a path.
// Plain http is refused unless insecure says that it is wanted.
func redfishEndpoint(address string, insecure bool) (string, error) {
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "":
		return "", fmt.Errorf("address %q is not a host, host:port or https://host", address)
	case u.Scheme == "http" && !insecure:
		return "", errors.New("address: http is not encrypted and not verified; it needs insecure_skip_verify: true")
	case u.Scheme != "https" && u.Scheme != "http":
		return "", fmt.Errorf("address: unknown scheme %q", u.Scheme)
	}
	return u.Scheme + "://" + u.Host, nil
}

// dialRedfish reads the service root and logs in. The client outlives ctx.
func dialRedfish(ctx context.Context, endpoint string, c redfishConfig, timeout time.Duration) (*redfishClient, error) {
	tlsConfig := &tls.Config{InsecureSkipVerify: c.InsecureSkipVerify}
	if c.CAFile != "" {
		pem, err := config.ReadFile(c.CAFile, 1<<20)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		tlsConfig.RootCAs = x509.NewCertPool()
		if !tlsConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_file: %s holds no certificate", c.CAFile)
		}
	}
	transport := &http.Transport{TLSClientConfig: tlsConfig, MaxConnsPerHost: redfishParallel, IdleConnTimeout: 5 * time.Minute, ForceAttemptHTTP2: true}
	r := &redfishClient{endpoint: endpoint, login: c.loginConfig, http: &http.Client{
		Transport: boundedBody{transport}, Timeout: timeout,
		// A redirect elsewhere would carry the session's token along.
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) > 3 || req.URL.Host != via[0].URL.Host || req.URL.Scheme != via[0].URL.Scheme {
				return fmt.Errorf("redirected to %s", req.URL.Host)
			}
			return nil
		},
	}}
	if err := r.connect(ctx); err != nil {
		r.http.CloseIdleConnections()
		return nil, err
	}
	return r, nil
}

// connect reads the service root and opens a session, or notes to send the
// password with each request where the service has no sessions.
func (r *redfishClient) connect(ctx context.Context) error {
	user, password, err := r.login.read()
	if err != nil {
		return err
	}
	cfg := gofish.ClientConfig{
		Endpoint: r.endpoint, Username: user, Password: password.Reveal(), HTTPClient: r.http,
		NoModifyTransport: true, ReuseConnections: true, MaxConcurrentRequests: redfishParallel,
	}
	api, err := gofish.ConnectContext(ctx, cfg)
	if code := redfishStatus(err); code == http.StatusNotFound || code == http.StatusMethodNotAllowed || code == http.StatusNotImplemented {
		cfg.BasicAuth = true
		api, err = gofish.ConnectContext(ctx, cfg)
	}
	if err != nil {
		return fmt.Errorf("redfish login: %w", redfishError(err))
	}
	r.api = api
	// Without links ("."), the answer holds only what the resource owns.
	if q := api.Service.ProtocolFeaturesSupported.ExpandQuery; q.NoLinks && q.Levels {
		r.expand = "?$expand=.($levels=1)"
	} else if q.NoLinks {
		r.expand = "?$expand=."
	}
	return nil
}

// get returns the body of one resource.
func (r *redfishClient) get(ctx context.Context, uri string) ([]byte, error) {
	if !strings.HasPrefix(uri, "/") || strings.HasPrefix(uri, "//") {
		return nil, fmt.Errorf("redfish GET %s: not a path of this service", clip(uri, 200))
	}
	resp, err := r.api.WithContext(ctx).Get(uri)
	if err != nil {
		return nil, &redfishGetError{uri: uri, status: redfishStatus(err), err: redfishError(err)}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, &redfishGetError{uri: uri, err: redfishError(err)}
	}
	return body, nil
}

type redfishGetError struct {
	uri    string
	status int // 0: no answer
	err    error
}

func (e *redfishGetError) Error() string { return "redfish GET " + e.uri + ": " + e.err.Error() }
func (e *redfishGetError) Unwrap() error { return e.err }

// getAll fetches resources, redfishParallel at a time, after a new login when
// the service no longer knows the session. The results are in the order of uris.
func (r *redfishClient) getAll(ctx context.Context, uris []string) ([][]byte, []error) {
	bodies, errs := make([][]byte, len(uris)), make([]error, len(uris))
	var todo []int
	for i := range uris {
		todo = append(todo, i)
	}
	r.fetch(ctx, uris, todo, bodies, errs)
	todo = todo[:0]
	for i, err := range errs {
		var get *redfishGetError
		if errors.As(err, &get) && get.status == http.StatusUnauthorized {
			todo = append(todo, i)
		}
	}
	if len(todo) == 0 || ctx.Err() != nil {
		return bodies, errs
	}
	if err := r.connect(ctx); err != nil {
		for _, i := range todo {
			errs[i] = err
		}
		return bodies, errs
	}
	r.fetch(ctx, uris, todo, bodies, errs)
	return bodies, errs
}

func (r *redfishClient) fetch(ctx context.Context, uris []string, todo []int, bodies [][]byte, errs []error) {
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(redfishParallel, len(todo)) {
		wg.Go(func() {
			for i := range next {
				bodies[i], errs[i] = r.get(ctx, uris[i])
			}
		})
	}
	for _, i := range todo {
		next <- i
	}
	close(next)
	wg.Wait()
}

// close ends the session, so that it does not fill the service's table.
func (r *redfishClient) close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	r.api.WithContext(ctx).Logout()
	r.http.CloseIdleConnections()
}

// redfishStatus is the HTTP status that the service refused with, or 0.
func redfishStatus(err error) int {
	var e *schemas.Error
	if errors.As(err, &e) {
		return e.HTTPReturnedStatusCode
	}
	return 0
}

// redfishError words an error without the body that the service sent, and the
// same for equal failures.
func redfishError(err error) error {
	if code := redfishStatus(err); code != 0 {
		return fmt.Errorf("%d %s", code, http.StatusText(code))
	}
	var u *url.Error
	if errors.As(err, &u) {
		if u.Timeout() {
			return errors.New("no answer in time")
		}
		return u.Err
	}
	return err
}

// boundedBody bounds the answers of a transport.
type boundedBody struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b boundedBody) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(req)
	if err == nil {
		resp.Body = &boundedReader{ReadCloser: resp.Body, left: maxRedfishBody}
	}
	return resp, err
}

// CloseIdleConnections makes http.Client.CloseIdleConnections work.
func (b boundedBody) CloseIdleConnections() {
	if t, ok := b.next.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

type boundedReader struct {
	io.ReadCloser
	left int
}

// Read fails where the answer is larger than the bound.
func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the answer is larger than %d MiB", maxRedfishBody>>20)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
