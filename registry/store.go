// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	promconfig "github.com/prometheus/common/config"

	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/ledger"
)

// OpenLedger opens the ledger that registry.yml names, without a registry: for a
// backup or a restore. site is the site's id.
func OpenLedger(cfg Config, site string, logger log.Logger) (ledger.Store, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.check(keyPath); err != nil {
		return nil, err
	}
	if cfg.Store.Kind == storeEtcd {
		return openEtcd(&cfg, site, logger)
	}
	return ledger.OpenBolt(cfg.Store.Dir, ledger.BoltOptions{})
}

// openStore opens the ledger.
func (r *Registry) openStore() error {
	if r.cfg.Store.Kind != storeEtcd {
		bolt, err := ledger.OpenBolt(r.cfg.Store.Dir, ledger.BoltOptions{})
		if err != nil {
			return err
		}
		r.store = bolt
		return nil
	}
	etcd, err := openEtcd(&r.cfg, r.Site().ID, r.deps.Logger)
	if err != nil {
		return err
	}
	r.store, r.leader = etcd, etcd.Leader
	return nil
}

func openEtcd(cfg *Config, site string, logger log.Logger) (*ledger.Etcd, error) {
	st := &cfg.Store
	opts := ledger.EtcdOptions{
		Endpoints: st.Endpoints, Prefix: "/rackpulse/" + site + "/", Username: st.Username, Logger: logger,
		Self: ledger.Leader{Beats: cfg.GRPC.Advertise, Web: cfg.Advertise},
	}
	if st.PasswordFile != "" {
		password, err := config.ReadSecret(st.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("store.password_file: %w", err)
		}
		opts.Password = password.Reveal()
	}
	if st.TLS != (ClientTLS{}) {
		files := st.TLS.config()
		c, err := promconfig.NewTLSConfig(&files)
		if err != nil {
			return nil, fmt.Errorf("store.tls: %w", err)
		}
		c.MinVersion = tls.VersionTLS12
		opts.TLS = c
	}
	return ledger.OpenEtcd(opts)
}

// serveTargets answers a request of discovery once this registry knows; until
// then Prometheus keeps the targets that it has.
func (r *Registry) serveTargets(w http.ResponseWriter, list func() []TargetGroup) {
	if !r.Ready() {
		writeError(w, http.StatusServiceUnavailable, r.notReady())
		return
	}
	writeJSON(w, http.StatusOK, list())
}

// serveBackup sends the whole ledger. It shows all that anybody ever did, so it
// wants role operate. An answer that breaks off has no last line.
func (r *Registry) serveBackup(w http.ResponseWriter, req *http.Request) {
	actor, ok := r.guard.mayOperate(w, req)
	if !ok {
		return
	}
	if !r.Ready() {
		writeError(w, http.StatusServiceUnavailable, r.notReady())
		return
	}
	w.Header().Set("Content-Type", "application/jsonl")
	n, err := ledger.Backup(req.Context(), r.store, r.Site().ID, time.Now(), w)
	if err != nil {
		level.Error(r.deps.Logger).Log("msg", "backup broke off", "actor", actor, "err", err)
		return
	}
	level.Info(r.deps.Logger).Log("msg", "backup sent", "actor", actor, "nodes", n.Nodes, "intents", n.Intents, "events", n.Events)
}
