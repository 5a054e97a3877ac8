// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/prometheus/client_golang/prometheus"
	promconfig "github.com/prometheus/common/config"

	"github.com/rackpulse/rackpulse/collector"
	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/site"
)

// pushConfig is the key push of agent.yml.
type pushConfig struct {
	// URL is the receiver's, for example https://prometheus.example/api/v1/write.
	URL string `yaml:"url"`
	// Interval is that of scrapes; 0: 15 s.
	Interval time.Duration `yaml:"interval"`
	// Protocol is the version of remote write, "2.0" or "1.0"; empty: "2.0".
	Protocol        string     `yaml:"protocol"`
	BasicAuth       *basicAuth `yaml:"basic_auth"`
	BearerTokenFile string     `yaml:"bearer_token_file"`
	TLS             tlsClient  `yaml:"tls"`
	// Labels are the target labels; instance is the node, job is rackpulse and
	// site that of the site file, unless they are here.
	Labels map[string]string `yaml:"labels"`
}

type basicAuth struct {
	Username     string `yaml:"username"`
	PasswordFile string `yaml:"password_file"`
}

// resolve makes the names of the files relative to the configuration's folder.
func (c *pushConfig) resolve(path string) {
	files := []*string{&c.BearerTokenFile, &c.TLS.CAFile, &c.TLS.CertFile, &c.TLS.KeyFile}
	if c.BasicAuth != nil {
		files = append(files, &c.BasicAuth.PasswordFile)
	}
	for _, file := range files {
		*file = config.Resolve(path, *file)
	}
}

func (c *pushConfig) http() promconfig.HTTPClientConfig {
	out := promconfig.DefaultHTTPClientConfig
	out.ProxyFromEnvironment = true
	out.BearerTokenFile = c.BearerTokenFile
	out.TLSConfig = promconfig.TLSConfig{
		CAFile: c.TLS.CAFile, CertFile: c.TLS.CertFile, KeyFile: c.TLS.KeyFile, ServerName: c.TLS.ServerName,
	}
	if c.BasicAuth != nil {
		out.BasicAuth = &promconfig.BasicAuth{Username: c.BasicAuth.Username, PasswordFile: c.BasicAuth.PasswordFile}
	}
	return out
}

// addPusher makes the part that pushes what /metrics shows.
func (a *agent) addPusher(known *site.Site) error {
	push := a.cfg.Push
	labels := map[string]string{"instance": a.cfg.Node, "job": "rackpulse"}
	if known != nil {
		labels["site"] = known.ID
	}
	maps.Copy(labels, push.Labels)
	pusher, err := collector.NewPusher(collector.PushConfig{
		Store: a.store,
		Extra: prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			return a.self.Gather() // set before anything runs
		}),
		URL:      push.URL,
		Interval: push.Interval,
		Protocol: push.Protocol,
		HTTP:     push.http(),
		Labels:   labels,
		Silent:   a.simulatedDown,
		Logger:   a.logger,
	})
	a.pusher = pusher
	return err
}
