// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
)

// Bounds of one connection. A handler that streams for longer than writeTimeout
// moves its own deadline with http.ResponseController.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = time.Minute
	idleTimeout       = 3 * time.Minute // above a scrape interval, so that scrapers keep their connection
	maxHeaderBytes    = 64 << 10
	defaultDrain      = 10 * time.Second
)

// ServeConfig says where and how to serve.
type ServeConfig struct {
	// ListenAddresses are host:port pairs; at least one.
	ListenAddresses []string
	// WebConfigFile is exporter-toolkit's file for TLS, client certificates and
	// basic auth; empty: plain HTTP. It is read again for each connection.
	WebConfigFile string
	// DrainTimeout bounds the wait for requests under way at the end; 0 means 10 s.
	DrainTimeout time.Duration
	// OnListen, if set, is told the addresses once all of them are open.
	OnListen func([]net.Addr)
}

// Serve serves handler on all addresses until ctx ends, then lets the requests
// under way finish for at most DrainTimeout and returns nil. It returns an error
// at once when the web configuration is bad, an address cannot be opened or
// serving fails; the other addresses are then closed as well.
func Serve(ctx context.Context, cfg ServeConfig, handler http.Handler, logger *slog.Logger) error {
	if cfg.DrainTimeout <= 0 {
		cfg.DrainTimeout = defaultDrain
	}
	if err := web.Validate(cfg.WebConfigFile); err != nil {
		return fmt.Errorf("web config file %s: %w", cfg.WebConfigFile, err)
	}
	listeners, err := listen(ctx, cfg.ListenAddresses)
	defer func() {
		for _, l := range listeners {
			l.Close() // most are closed by their server already
		}
	}()
	if err != nil {
		return err
	}
	if cfg.OnListen != nil {
		addrs := make([]net.Addr, len(listeners))
		for i, l := range listeners {
			addrs[i] = l.Addr()
		}
		cfg.OnListen(addrs)
	}
	return serveAll(ctx, cfg, listeners, handler, logger)
}

func listen(ctx context.Context, addresses []string) ([]net.Listener, error) {
	if len(addresses) == 0 {
		return nil, errors.New("no address to listen on")
	}
	var listeners []net.Listener
	var lc net.ListenConfig
	for _, address := range addresses {
		l, err := lc.Listen(ctx, "tcp", address)
		if err != nil {
			return listeners, err // it names the address
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

// serveAll runs one server for each listener (web.Serve changes the server that
// it is given, so they cannot share one) and returns when all have ended.
func serveAll(ctx context.Context, cfg ServeConfig, listeners []net.Listener, handler http.Handler, logger *slog.Logger) error {
	flags := &web.FlagConfig{WebConfigFile: &cfg.WebConfigFile}
	servers := make([]*http.Server, len(listeners))
	ended := make(chan error, len(listeners))
	for i, l := range listeners {
		srv := newServer(handler, logger)
		servers[i] = srv
		go func() {
			err := web.ServeMultiple([]net.Listener{l}, srv, flags, logger)
			if errors.Is(err, http.ErrServerClosed) {
				err = nil
			} else {
				err = fmt.Errorf("serving %s: %w", l.Addr(), err)
			}
			ended <- err
		}()
	}
	var failed error
	running := len(servers)
	select {
	case <-ctx.Done():
	case failed = <-ended:
		running--
	}
	drain(servers, cfg.DrainTimeout, logger)
	for ; running > 0; running-- {
		if err := <-ended; failed == nil {
			failed = err
		}
	}
	return failed
}

func newServer(handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
}

// drain closes the listeners, waits for the requests under way and cuts off
// those that take longer than the timeout.
func drain(servers []*http.Server, timeout time.Duration, logger *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	done := make(chan struct{})
	for _, srv := range servers {
		go func() {
			defer func() { done <- struct{}{} }()
			if err := srv.Shutdown(ctx); err != nil {
				logger.Warn("requests were cut off at shutdown", "err", err)
				srv.Close()
			}
		}()
	}
	for range servers {
		<-done
	}
}
