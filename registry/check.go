// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/rackpulse/rackpulse/lease"
	"github.com/rackpulse/rackpulse/site"
)

// place writes a key of a file as "registry.yml:7: grpc.listen". A key that is
// not in the file gets the line of the nearest one above it.
func place(path string, root *yaml.Node, keys []string) string {
	node, line := root, 0
	if node.Kind == yaml.DocumentNode && len(node.Content) > 0 {
		node = node.Content[0]
	}
	for _, key := range keys {
		found := false
		for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == key {
				line, node, found = node.Content[i].Line, node.Content[i+1], true
				break
			}
		}
		if !found {
			break
		}
	}
	if line == 0 {
		return path + ": " + strings.Join(keys, ".")
	}
	return fmt.Sprintf("%s:%d: %s", path, line, strings.Join(keys, "."))
}

// keyPath is place without a file.
func keyPath(keys ...string) string { return strings.Join(keys, ".") }

// check names all that is wrong with c, after defaults. at says where a key
// stands.
func (c *Config) check(at func(keys ...string) string) error {
	var errs []error
	bad := func(where, format string, args ...any) {
		errs = append(errs, fmt.Errorf(where+": "+format, args...))
	}
	if c.Advertise != "" {
		if _, _, err := splitAddress(c.Advertise); err != nil {
			bad(at("advertise"), "%w", err)
		}
	}
	for key, text := range map[string]string{"external_url": c.ExternalURL, "grafana_url": c.GrafanaURL} {
		if text != "" {
			if err := checkURL(text); err != nil {
				bad(at(key), "%w", err)
			}
		}
	}
	if _, _, err := splitListen(c.GRPC.Listen); err != nil {
		bad(at("grpc", "listen"), "%w", err)
	}
	t := c.GRPC.TLS
	if (t.CertFile == "") != (t.KeyFile == "") {
		bad(at("grpc", "tls"), "cert_file and key_file belong together")
	}
	if t.ClientCAFile != "" && t.CertFile == "" {
		bad(at("grpc", "tls", "client_ca_file"), "client certificates need cert_file and key_file, too")
	}
	if err := c.Lease.Validate(); err != nil {
		bad(at("lease"), "%w", err)
	}
	c.checkStore(at, bad)
	c.checkActions(at, bad)
	c.checkPrometheus(at, bad)
	return errors.Join(errs...)
}

func (c *Config) checkStore(at func(...string) string, bad func(string, string, ...any)) {
	st := &c.Store
	switch st.Kind {
	case storeBolt:
		if len(st.Endpoints) > 0 {
			bad(at("store", "endpoints"), "kind bolt is a local file and has no endpoints")
		}
		if st.TLS != (ClientTLS{}) || st.Username != "" || st.PasswordFile != "" {
			bad(at("store"), "tls, username and password_file are for kind etcd")
		}
		if c.GRPC.Advertise != "" {
			bad(at("grpc", "advertise"), "is for several registries, with store.kind etcd")
		}
	case storeEtcd:
		c.checkEtcd(at, bad)
	default:
		bad(at("store", "kind"), "unknown kind %q, want bolt or etcd", st.Kind)
	}
}

// maxEndpoints bounds store.endpoints; etcd itself advises against more than
// seven members.
const maxEndpoints = 16

func (c *Config) checkEtcd(at func(...string) string, bad func(string, string, ...any)) {
	st := &c.Store
	if n := len(st.Endpoints); n == 0 || n > maxEndpoints {
		bad(at("store", "endpoints"), "%d endpoints, 1 to %d are wanted", n, maxEndpoints)
	}
	secure := true
	for _, endpoint := range st.Endpoints {
		if err := checkURL(endpoint); err != nil {
			bad(at("store", "endpoints"), "%w", err)
		}
		secure = secure && strings.HasPrefix(endpoint, "https:")
	}
	if st.TLS != (ClientTLS{}) && !secure {
		bad(at("store", "tls"), "wants https:// in all endpoints")
	}
	if (st.TLS.CertFile == "") != (st.TLS.KeyFile == "") {
		bad(at("store", "tls"), "cert_file and key_file belong together")
	}
	if (st.Username == "") != (st.PasswordFile == "") {
		bad(at("store"), "username and password_file belong together")
	}
	if st.Username != "" && !secure {
		bad(at("store", "username"), "the password would travel in clear text; use https:// in all endpoints")
	}
	if c.GRPC.Advertise == "" {
		bad(at("grpc", "advertise"), "is missing: the host:port under which agents reach this registry")
	} else if _, _, err := splitAddress(c.GRPC.Advertise); err != nil {
		bad(at("grpc", "advertise"), "%w", err)
	}
}

// maxPerMinute bounds actions.max_per_minute: a fleet of 10,000 in a working day.
const maxPerMinute = 600

func (c *Config) checkActions(at func(...string) string, bad func(string, string, ...any)) {
	a := c.Actions
	acts := false
	check := func(p lease.Policy, keys ...string) {
		switch p.Mode {
		case "", lease.ModeObserve:
		case lease.ModeSoft, lease.ModeHard:
			acts = true
		default:
			bad(at(append(keys, "mode")...), "unknown mode %q, want observe, soft or hard", p.Mode)
		}
		if p.Witness != "" && p.Witness != "required" && p.Witness != "none" {
			bad(at(append(keys, "witness")...), "unknown witness %q, want required or none", p.Witness)
		}
	}
	check(a.Policy, "actions")
	for id, p := range a.Classes {
		check(p, "actions", "classes", id)
	}
	if acts && len(a.Targets) == 0 {
		bad(at("actions"), "a mode that acts wants targets to act in")
	}
	if a.MaxPerMinute < 0 || a.MaxPerMinute > maxPerMinute {
		bad(at("actions", "max_per_minute"), "%d is not within 0 (the default) and %d", a.MaxPerMinute, maxPerMinute)
	}
}

// CheckSite refuses what names a thing that the site does not have: a policy for
// a class that is misspelt would leave the real one to the policy of all.
func (c *Config) CheckSite(s *site.Site) error {
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(c.Actions.Classes)) {
		if !slices.ContainsFunc(s.NodeClasses, func(class site.NodeClass) bool { return class.ID == id }) {
			errs = append(errs, fmt.Errorf("actions.classes.%s: the site file has no such node class", id))
		}
	}
	return errors.Join(errs...)
}

func (c *Config) checkPrometheus(at func(...string) string, bad func(string, string, ...any)) {
	p := c.Prometheus
	if p.URL == "" {
		if p.BasicAuth != nil || p.BearerTokenFile != "" || p.TLS != (ClientTLS{}) {
			bad(at("prometheus"), "url is missing")
		}
		return
	}
	if err := checkURL(p.URL); err != nil {
		bad(at("prometheus", "url"), "%w", err)
	}
	if b := p.BasicAuth; b != nil && (b.Username == "" || b.PasswordFile == "") {
		bad(at("prometheus", "basic_auth"), "wants username and password_file")
	}
	if p.BasicAuth != nil && p.BearerTokenFile != "" {
		bad(at("prometheus"), "basic_auth and bearer_token_file exclude each other")
	}
	if (p.TLS.CertFile == "") != (p.TLS.KeyFile == "") {
		bad(at("prometheus", "tls"), "cert_file and key_file belong together")
	}
}

// checkURL refuses what is no base URL, and passwords in it.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("not a URL") // err would show a password
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("%q, want http://HOST:PORT or https://HOST", u.Redacted())
	case u.User != nil:
		return errors.New("holds a user; use basic_auth with a password_file")
	}
	return nil
}

// splitListen takes a host:port to listen on apart; the host may be empty.
func splitListen(address string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("%q is no host:port", address)
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%q has no port within 0 and 65535", address)
	}
	return host, int(n), nil
}

// maxHost is the longest host name, bytes (RFC 1035, 2.3.4).
const maxHost = 255

// splitAddress takes a host:port that can be dialled apart.
func splitAddress(address string) (host string, port int, err error) {
	host, port, err = splitListen(address)
	switch {
	case err != nil:
		return "", 0, err
	case port == 0:
		return "", 0, fmt.Errorf("%q has no port", address)
	}
	return host, port, checkHost(host)
}

// checkHost refuses what is neither an IP address nor a host name: it becomes a
// scrape target.
func checkHost(host string) error {
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.IsUnspecified() {
			return fmt.Errorf("host %q is not an address of one machine", host)
		}
		return nil
	}
	if host == "" || len(host) > maxHost {
		return fmt.Errorf("host of %d bytes, 1 to %d are allowed", len(host), maxHost)
	}
	for _, r := range host {
		if r != '-' && r != '.' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return fmt.Errorf("host %q is no host name", host)
		}
	}
	return nil
}

// isLoopback says whether only this machine reaches the address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// checkExposed refuses to take beats that nobody has to prove, or tokens in
// clear text, from other machines. proven says that there are tokens of nodes.
func (c *Config) checkExposed(address string, proven bool) error {
	tls := c.GRPC.TLS
	switch {
	case c.GRPC.AllowInsecure || isLoopback(address):
		return nil
	case proven && tls.CertFile == "":
		return fmt.Errorf("grpc.listen %s: the nodes' tokens would travel in clear text; set grpc.tls, listen on a loopback address, or say grpc.allow_insecure: true", address)
	case !proven && tls.ClientCAFile == "":
		return fmt.Errorf("grpc.listen %s: any machine could beat for any node; set grpc.tls.client_ca_file, give nodes tokens in auth.tokens_file, listen on a loopback address, or say grpc.allow_insecure: true", address)
	}
	return nil
}
