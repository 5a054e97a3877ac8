// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	promconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/notifier"
	"github.com/prometheus/prometheus/rules"
)

const (
	notifyQueue   = 10_000 // alerts per Alertmanager; Prometheus' default
	notifyTimeout = 5 * time.Second
	drainTimeout  = 3 * time.Second // of the whole 10 s that a process has to stop
)

// notifications sends alerts to the configured Alertmanagers. A nil one sends
// nothing.
type notifications struct {
	manager *notifier.Manager
	groups  map[string][]*targetgroup.Group
	stopped chan struct{}
	sending context.Context // ends the requests under way
	cancel  context.CancelFunc
}

func newNotifications(urls []string, external labels.Labels, logger *slog.Logger) (*notifications, error) {
	if len(urls) == 0 {
		return nil, nil
	}
	n := &notifications{groups: map[string][]*targetgroup.Group{}, stopped: make(chan struct{})}
	conf := &config.Config{}
	conf.GlobalConfig.ExternalLabels = external
	conf.GlobalConfig.MetricNameValidationScheme = model.UTF8Validation
	for i, raw := range urls {
		am, address, err := alertmanagerConfig(raw)
		if err != nil {
			return nil, fmt.Errorf("alertmanager url %d: %w", i+1, err)
		}
		conf.AlertingConfig.AlertmanagerConfigs = append(conf.AlertingConfig.AlertmanagerConfigs, am)
		// The keys are those of config.AlertmanagerConfigs.ToMap.
		n.groups[fmt.Sprintf("config-%d", i)] = []*targetgroup.Group{{
			Targets: []model.LabelSet{{model.AddressLabel: model.LabelValue(address)}}}}
	}
	n.sending, n.cancel = context.WithCancel(context.Background())
	n.manager = notifier.NewManager(&notifier.Options{QueueCapacity: notifyQueue, DrainOnShutdown: true, Do: n.do},
		model.UTF8Validation, logger)
	if err := n.manager.ApplyConfig(conf); err != nil {
		return nil, fmt.Errorf("alertmanagers: %w", err)
	}
	return n, nil
}

func alertmanagerConfig(raw string) (_ *config.AlertmanagerConfig, address string, _ error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, "", errors.New("not a valid url") // err would show the password
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, "", errors.New("want http://HOST or https://HOST")
	}
	am := config.DefaultAlertmanagerConfig
	am.Scheme, am.PathPrefix = u.Scheme, u.Path
	am.Timeout = model.Duration(notifyTimeout)
	if u.User != nil {
		password, _ := u.User.Password()
		am.HTTPClientConfig.BasicAuth = &promconfig.BasicAuth{Username: u.User.Username(), Password: promconfig.Secret(password)}
	}
	return &am, u.Host, nil
}

// do sends one request. The connection is not kept: batches are a minute
// apart, and an idle one would outlive the engine.
func (n *notifications) do(ctx context.Context, client *http.Client, req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(n.sending, cancel)
	req.Close = true
	resp, err := client.Do(req.WithContext(ctx))
	if err != nil {
		stop()
		cancel()
		return nil, err
	}
	resp.Body = &closingBody{ReadCloser: resp.Body, end: func() { stop(); cancel() }}
	return resp, nil
}

// send is the rules' way out; it is never nil, as the rules call it blindly.
func (n *notifications) send(externalURL string) rules.NotifyFunc {
	if n == nil {
		return func(context.Context, string, ...*rules.Alert) {}
	}
	return rules.SendAlerts(n.manager, externalURL)
}

// start runs the notifier and returns once it knows its Alertmanagers: alerts
// sent before are lost.
func (n *notifications) start() error {
	if n == nil {
		return nil
	}
	updates := make(chan map[string][]*targetgroup.Group)
	go func() {
		defer close(n.stopped)
		n.manager.Run(updates)
	}()
	updates <- n.groups
	updates <- nil // taken only after the first is applied
	if got := len(n.manager.Alertmanagers()); got != len(n.groups) {
		n.stop()
		return fmt.Errorf("alertmanagers: %d of %d urls can be used", got, len(n.groups))
	}
	return nil
}

// stop sends what is queued, for drainTimeout at most.
func (n *notifications) stop() {
	if n == nil {
		return
	}
	timer := time.AfterFunc(drainTimeout, n.cancel)
	n.manager.Stop()
	<-n.stopped
	timer.Stop()
	n.cancel()
}

// closingBody releases the request's context when the answer is read.
type closingBody struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (b *closingBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
