// SPDX-License-Identifier: Apache-2.0

// Package registry is the one per cluster that knows the site and the leases: it
// takes the beats, keeps the ledger, and answers over HTTP: the API, discovery
// for Prometheus, metrics of the site's edges, and the view that the pages show.
// docs/api.md and docs/security.md are its manuals.
package registry

import (
	"fmt"
	"time"

	promconfig "github.com/prometheus/common/config"
	"gopkg.in/yaml.v3"

	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/lease"
	"github.com/rackpulse/rackpulse/query"
)

const (
	// defaultGRPC is where beats are taken.
	defaultGRPC = ":9402"
	// defaultDir is where the ledger lies.
	defaultDir = "/var/lib/rackpulse"
	// maxConfig bounds registry.yml, bytes.
	maxConfig = 1 << 20
)

// Config is registry.yml. The zero value of a field means its default.
type Config struct {
	// SiteFile is the site file; who loads it is the caller.
	SiteFile string `yaml:"site_file"`
	// Advertise is the host:port under which Prometheus reaches the registry's
	// own metrics; empty: the one under which it asked for its targets.
	Advertise  string           `yaml:"advertise"`
	GRPC       GRPCConfig       `yaml:"grpc"`
	Store      StoreConfig      `yaml:"store"`
	Lease      lease.Config     `yaml:"lease"`
	Actions    ActionsConfig    `yaml:"actions"`
	Prometheus PrometheusConfig `yaml:"prometheus"`
	Auth       AuthConfig       `yaml:"auth"`
	// ExternalURL is where people reach the registry's pages, GrafanaURL the
	// dashboards; messages link there. Empty: they do not.
	ExternalURL string `yaml:"external_url"`
	GrafanaURL  string `yaml:"grafana_url"`
	// Notifications are the sinks of messages; their owner decodes them.
	Notifications []config.Part `yaml:"notifications"`
}

// GRPCConfig says how beats are taken.
type GRPCConfig struct {
	// Listen is the host:port for beats; default :9402.
	Listen string    `yaml:"listen"`
	TLS    ServerTLS `yaml:"tls"`
	// Advertise is the host:port under which agents reach this registry; the
	// others send them there while it leads. It is for store.kind etcd.
	Advertise string `yaml:"advertise"`
	// AllowInsecure allows what is otherwise refused on an address that other
	// machines reach: beats that nobody has to prove, and tokens in clear text.
	AllowInsecure bool `yaml:"allow_insecure"`
}

// ServerTLS is a server's side of TLS. With ClientCAFile an agent proves its
// node's name by a certificate of that authority.
type ServerTLS struct {
	CertFile     string `yaml:"cert_file"`
	KeyFile      string `yaml:"key_file"`
	ClientCAFile string `yaml:"client_ca_file"`
}

// Kinds of stores.
const (
	storeBolt = "bolt"
	storeEtcd = "etcd"
)

// StoreConfig says where the ledger is kept.
type StoreConfig struct {
	// Kind is "bolt", the default: one file, one process; or "etcd": several
	// registries, of which one leads.
	Kind string `yaml:"kind"`
	// Dir is the folder of the ledger, and of the addresses of agents; default
	// /var/lib/rackpulse.
	Dir string `yaml:"dir"`
	// Endpoints are etcd's URLs.
	Endpoints []string `yaml:"endpoints"`
	// TLS is for endpoints with https.
	TLS ClientTLS `yaml:"tls"`
	// Username and PasswordFile are those of a user of etcd, if it wants one.
	Username     string `yaml:"username"`
	PasswordFile string `yaml:"password_file"`
}

// ActionsConfig says what may be done to nodes, and where.
type ActionsConfig struct {
	// Policy is that of all nodes whose class has none of its own: mode
	// "observe" (the default), "soft" or "hard"; witness "required" or "none".
	lease.Policy `yaml:",inline"`
	// Classes are the policies of node classes of the site file.
	Classes map[string]lease.Policy `yaml:"classes"`
	// MaxPerMinute is how many nodes may be acted on in a minute; 0: 6.
	MaxPerMinute int `yaml:"max_per_minute"`
	// Targets are the systems that are acted in; their owner decodes them.
	Targets []config.Part `yaml:"targets"`
}

// PrometheusConfig says where the values for the view are read. Without a URL
// the view has leases only.
type PrometheusConfig struct {
	URL             string     `yaml:"url"`
	BasicAuth       *BasicAuth `yaml:"basic_auth"`
	BearerTokenFile string     `yaml:"bearer_token_file"`
	TLS             ClientTLS  `yaml:"tls"`
}

// BasicAuth is a user whose password stands in a file.
type BasicAuth struct {
	Username     string `yaml:"username"`
	PasswordFile string `yaml:"password_file"`
}

// ClientTLS is a client's side of TLS.
type ClientTLS struct {
	CAFile             string `yaml:"ca_file"`
	CertFile           string `yaml:"cert_file"`
	KeyFile            string `yaml:"key_file"`
	ServerName         string `yaml:"server_name"`
	InsecureSkipVerify bool   `yaml:"insecure_skip_verify"`
}

// AuthConfig says who may do what.
type AuthConfig struct {
	// TokensFile lists the tokens; without it the API can be read by all and
	// operated by nobody.
	TokensFile string `yaml:"tokens_file"`
}

// Load reads and checks registry.yml. Relative paths in it are taken from its
// folder. Its errors name file and line.
func Load(path string) (*Config, error) {
	data, err := config.ReadFile(path, maxConfig)
	if err != nil {
		return nil, err
	}
	var c Config
	if err := config.Strict(path, data, &c); err != nil {
		return nil, err
	}
	for _, p := range []*string{
		&c.SiteFile, &c.GRPC.TLS.CertFile, &c.GRPC.TLS.KeyFile, &c.GRPC.TLS.ClientCAFile, &c.Store.Dir,
		&c.Store.TLS.CAFile, &c.Store.TLS.CertFile, &c.Store.TLS.KeyFile, &c.Store.PasswordFile,
		&c.Prometheus.BearerTokenFile, &c.Prometheus.TLS.CAFile, &c.Prometheus.TLS.CertFile, &c.Prometheus.TLS.KeyFile,
		&c.Auth.TokensFile,
	} {
		*p = config.Resolve(path, *p)
	}
	if b := c.Prometheus.BasicAuth; b != nil {
		b.PasswordFile = config.Resolve(path, b.PasswordFile)
	}
	c = c.WithDefaults()
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if c.SiteFile == "" {
		return nil, fmt.Errorf("%s: site_file is missing", path)
	}
	if err := c.check(func(keys ...string) string { return place(path, &root, keys) }); err != nil {
		return nil, err
	}
	return &c, nil
}

// WithDefaults returns c with the defaults in place of zero values.
func (c Config) WithDefaults() Config {
	def := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	def(&c.GRPC.Listen, defaultGRPC)
	def(&c.Store.Kind, storeBolt)
	def(&c.Store.Dir, defaultDir)
	def(&c.Actions.Mode, lease.ModeObserve)
	c.Lease = c.Lease.WithDefaults()
	c.Lease.Policy, c.Lease.Classes = c.Actions.Policy, c.Actions.Classes
	return c
}

// Querier makes the client for the Prometheus of c; nil when there is none.
func (p PrometheusConfig) Querier() (query.Querier, error) {
	if p.URL == "" {
		return nil, nil
	}
	h := promconfig.DefaultHTTPClientConfig
	h.TLSConfig = p.TLS.config()
	if p.BasicAuth != nil {
		if _, err := config.ReadSecret(p.BasicAuth.PasswordFile); err != nil {
			return nil, fmt.Errorf("prometheus.basic_auth: %w", err)
		}
		h.BasicAuth = &promconfig.BasicAuth{Username: p.BasicAuth.Username, PasswordFile: p.BasicAuth.PasswordFile}
	}
	if p.BearerTokenFile != "" {
		if _, err := config.ReadSecret(p.BearerTokenFile); err != nil {
			return nil, fmt.Errorf("prometheus.bearer_token_file: %w", err)
		}
		h.Authorization = &promconfig.Authorization{Type: "Bearer", CredentialsFile: p.BearerTokenFile}
	}
	return query.NewHTTP(query.Config{URL: p.URL, HTTP: h, Timeout: queryTimeout})
}

// config is t for the common HTTP client.
func (t ClientTLS) config() promconfig.TLSConfig {
	return promconfig.TLSConfig{
		CAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile, ServerName: t.ServerName,
		InsecureSkipVerify: t.InsecureSkipVerify,
	}
}

// queryTimeout bounds one query of the view.
const queryTimeout = 5 * time.Second
