// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/common/version"
	"google.golang.org/grpc/credentials"

	"github.com/rackpulse/rackpulse/collector/gpu"
	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/lease"
	"github.com/rackpulse/rackpulse/site"
	"github.com/rackpulse/rackpulse/xid"
)

// addBeater wires the beat; it reads only what others have published, so that it
// never waits for a device.
func (a *agent) addBeater(hallSite *site.Site) error {
	target := a.cfg.Registry
	creds, err := target.credentials()
	if err != nil {
		return err
	}
	a.beater = &lease.Beater{
		Config: lease.BeaterConfig{
			Node: a.cfg.Node, Addresses: target.Addresses, Credentials: creds, Leave: target.LeaveOnStop,
		},
		Logger:      log.With(a.logger, "component", "beater"),
		Inventory:   a.inventory,
		Breaches:    a.breaches,
		Hello:       a.hello,
		Maintenance: a.maintenance,
		OnIdentity: func(id lease.Identity) {
			a.ids.fromRegistry(id.Node, id.Devices)
			a.expected.Store(int64(id.ExpectedGPUs))
			if a.claims != nil {
				a.claims.refuse(id.Refused)
			}
		},
		OnState: func(s lease.State) {
			a.seen.Store(uint32(s))
			level.Info(a.logger).Log("msg", "registry sees this node in a new state", "state", s)
		},
	}
	if target.TokenFile != "" {
		a.beater.Config.Token = func() (string, error) {
			secret, err := config.ReadSecret(target.TokenFile)
			return secret.Reveal(), err
		}
	}
	if a.hall != nil && a.gpu != nil {
		a.beater.Config.Dial = (&simDialer{down: a.simulatedCut}).dial
		a.beater.Clock = a.simulatedClock
	}
	a.facts = a.newFacts(hallSite)
	return nil
}

// newFacts gathers the facts of this node.
func (a *agent) newFacts(hallSite *site.Site) *nodeFacts {
	f := &nodeFacts{
		cfg: a.cfg.Baseline.withDefaults(), logger: log.With(a.logger, "component", "facts"), stateDir: a.cfg.StateDir, boot: bootID(), every: factsInterval,
		burnable: func() bool {
			s := lease.State(a.seen.Load())
			return s == lease.Joining || s == lease.Recovering
		},
		changed: a.beater.Announce,
	}
	f.noCommands = a.hall != nil || a.gpu == nil && a.facility != nil // simulated, or no node
	if a.gpu != nil {
		f.gpu = a.gpu.Facts
	}
	if a.hall != nil {
		f.simulated = &site.Facts{}
		if class, ok := hallSite.Class(a.cfg.Node); ok {
			*f.simulated = class.Baseline.Fitting()
		}
		f.simulated.Simulated = true
	}
	f.look()
	return f
}

// breaches are the limits that the GPUs breach now, by the page as it is. With a
// site file of its own the agent knows the site's limits, else the built-in ones.
func (a *agent) breaches() []string {
	if a.gpu == nil {
		return nil
	}
	families, err := a.store.Gather()
	if err != nil {
		level.Debug(a.logger).Log("msg", "page not read for breaches", "err", err)
	}
	return gpu.Breaches(families, a.limits, time.Now())
}

// breachLimits are what GPUs are held against.
func breachLimits(s *site.Site) (gpu.BreachLimits, error) {
	catalogue, err := xid.Default()
	if err != nil {
		return gpu.BreachLimits{}, err
	}
	limits := site.DefaultLimits()
	if s != nil && s.Limits != nil {
		limits = s.Limits
	}
	out := gpu.BreachLimits{Of: limits.GPU}
	for _, code := range catalogue.Critical() {
		out.FatalXIDs = append(out.FatalXIDs, strconv.Itoa(code))
	}
	return out, nil
}

// inventory maps what the GPU runner knows to the beat.
func (a *agent) inventory() lease.Inventory {
	if a.gpu == nil {
		return lease.Inventory{Status: lease.Unavailable, Reason: "no GPUs are sampled"}
	}
	inv := a.gpu.Inventory()
	status := lease.Unavailable
	switch inv.Status {
	case "fresh":
		status = lease.Fresh
	case "stale":
		status = lease.Stale
	}
	return lease.Inventory{UUIDs: inv.UUIDs, At: inv.At, Status: status, Reason: inv.Reason}
}

// reacquireGrace is how long the GPUs may take to show up after a release.
const reacquireGrace = time.Minute

// maintenance is that of released GPUs: it ends when they are sampled again. One
// without an end of its own is as long as the registry allows.
func (a *agent) maintenance() (time.Duration, string) {
	if a.gpu == nil {
		return 0, ""
	}
	_, until, released := a.gpu.Released()
	inv := a.gpu.Inventory()
	switch {
	case !released && inv.Status == "fresh":
		a.away = ""
	case released && until.IsZero():
		a.away = "GPUs " + inv.Reason
		return gpu.MaxRelease, a.away
	case released:
		a.away = "GPUs " + inv.Reason
		return time.Until(until) + reacquireGrace, a.away
	case a.away != "":
		return reacquireGrace, a.away
	}
	return 0, ""
}

// hello tells the registry who this agent is.
func (a *agent) hello() lease.Hello {
	a.advertised.Lock()
	address := a.advertised.address
	a.advertised.Unlock()
	h := lease.Hello{BootID: bootID(), Version: version.Version, Advertise: address, Simulated: a.hall != nil}
	if a.gpu != nil {
		h.Roles = append(h.Roles, lease.RoleGPU)
	}
	if a.facility != nil {
		h.Roles = append(h.Roles, lease.RoleFacility)
		h.Devices = a.claims.wanted()
	}
	h.Facts = a.facts.facts()
	return h
}

func bootID() string {
	data, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // absent outside Linux
	return strings.TrimSpace(string(data))
}

func kernelRelease() string {
	data, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.TrimSpace(string(data))
}

// credentials are the TLS credentials towards the registry. Plain text is for
// this machine only, unless allow_insecure says otherwise.
func (t registryTarget) credentials() (credentials.TransportCredentials, error) {
	if t.TLS == (tlsClient{}) {
		remote := slices.ContainsFunc(t.Addresses, func(address string) bool { return !isLoopback(address) })
		if remote && !t.AllowInsecure {
			return nil, errors.New("registry: no tls for a registry on another machine; set registry.tls, or registry.allow_insecure to beat in clear text")
		}
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.TLS.ServerName}
	if t.TLS.CAFile != "" {
		pem, err := config.ReadFile(t.TLS.CAFile, 1<<20)
		if err != nil {
			return nil, fmt.Errorf("registry.tls.ca_file: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("registry.tls.ca_file: %s holds no certificate", t.TLS.CAFile)
		}
	}
	if (t.TLS.CertFile == "") != (t.TLS.KeyFile == "") {
		return nil, errors.New("registry.tls: cert_file and key_file belong together")
	}
	if t.TLS.CertFile != "" {
		// Read at each handshake, so that a renewed certificate needs no restart.
		load := func() (*tls.Certificate, error) {
			cert, err := tls.LoadX509KeyPair(t.TLS.CertFile, t.TLS.KeyFile)
			return &cert, err
		}
		if _, err := load(); err != nil {
			return nil, fmt.Errorf("registry.tls: %w", err)
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return credentials.NewTLS(cfg), nil
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
