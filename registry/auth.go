// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/rackpulse/rackpulse/config"
)

// Reasons of refusals, label values of rackpulse_registry_refused_requests_total.
const (
	refusedNoToken  = "no_token"          // a token is wanted, none came
	refusedToken    = "unknown_token"     // the token is nobody's
	refusedRole     = "role"              // the token may only read
	refusedNoFile   = "no_tokens_file"    // nobody may operate
	refusedNode     = "wrong_node"        // the token is not that node's
	refusedCert     = "wrong_certificate" // the certificate is another node's
	refusedOrigin   = "cross_origin"      // a browser was led here by another site
	refusedTooLarge = "too_large"         // the body is over the bound
)

// refusals counts refused requests by reason.
type refusals struct {
	mu sync.Mutex
	n  map[string]uint64
}

func newRefusals() *refusals {
	return &refusals{n: map[string]uint64{
		refusedNoToken: 0, refusedToken: 0, refusedRole: 0, refusedNoFile: 0, refusedNode: 0, refusedCert: 0,
		refusedOrigin: 0, refusedTooLarge: 0,
	}}
}

func (r *refusals) add(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.n[reason]++
}

func (r *refusals) copy() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.n)
}

// guard holds who may do what: the tokens and the TLS files in force.
type guard struct {
	cfg     *Config
	tokens  atomic.Pointer[tokens]
	tls     atomic.Pointer[tls.Config] // nil: plain text
	refused *refusals
}

// newGuard reads the tokens and the TLS files.
func newGuard(cfg *Config) (*guard, error) {
	g := &guard{cfg: cfg, refused: newRefusals()}
	if err := g.reload(); err != nil {
		return nil, err
	}
	return g, nil
}

// reload reads the tokens and the TLS files again; an error changes nothing.
func (g *guard) reload() error {
	t, err := loadTokens(g.cfg.Auth.TokensFile)
	if err != nil {
		return fmt.Errorf("auth.tokens_file: %w", err)
	}
	if err := g.cfg.checkExposed(g.cfg.GRPC.Listen, len(t.nodes) > 0); err != nil {
		return err
	}
	c, err := g.cfg.GRPC.TLS.load(len(t.nodes) > 0)
	if err != nil {
		return fmt.Errorf("grpc.tls: %w", err)
	}
	g.tokens.Store(t)
	g.tls.Store(c)
	return nil
}

// load makes the server's TLS configuration, nil for none. With a client CA a
// certificate is required, unless nodes may prove themselves by tokens instead.
func (t ServerTLS) load(tokens bool) (*tls.Config, error) {
	if t.CertFile == "" {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}}
	if t.ClientCAFile == "" {
		return c, nil
	}
	pem, err := config.ReadFile(t.ClientCAFile, maxConfig)
	if err != nil {
		return nil, err
	}
	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", t.ClientCAFile)
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	if tokens {
		c.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return c, nil
}

// credentials are those of the gRPC server; nil: plain text. Each handshake sees
// the files that were read last.
func (g *guard) credentials() credentials.TransportCredentials {
	if g.tls.Load() == nil {
		return nil
	}
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return g.tls.Load(), nil
		},
	})
}

// authorizeBeat decides whether the peer of ctx may beat for the node or agent
// of that id: by a certificate of that name, else by one of its tokens. Without
// a client CA and without tokens of nodes everybody may; checkExposed has seen
// to it that this was meant.
func (g *guard) authorizeBeat(ctx context.Context, id string) error {
	if cert := clientCertificate(ctx); cert != nil {
		if !certifies(cert, id) {
			g.refused.add(refusedCert)
			return fmt.Errorf("the certificate is that of %q", cert.Subject.CommonName)
		}
		return nil
	}
	t := g.tokens.Load()
	if len(t.nodes) == 0 {
		return nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	token := ""
	if values := md.Get("authorization"); len(values) > 0 {
		token, _ = bearer(values[0])
	}
	switch {
	case token == "":
		g.refused.add(refusedNoToken)
		return errors.New("a token of the node is wanted")
	case !t.mayBeat(token, id):
		g.refused.add(refusedNode)
		return errors.New("the token is not one of this node's")
	}
	return nil
}

// clientCertificate is the verified certificate of the peer, nil if it has none.
func clientCertificate(ctx context.Context) *x509.Certificate {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
		return nil
	}
	return info.State.VerifiedChains[0][0]
}

// certifies says whether a certificate names the node, as common name or as
// DNS name. Wildcards name nobody.
func certifies(cert *x509.Certificate, id string) bool {
	return cert.Subject.CommonName == id || slices.Contains(cert.DNSNames, id)
}

// bearer takes a token out of an Authorization header.
func bearer(header string) (string, bool) {
	scheme, token, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return "", false
	}
	return strings.TrimSpace(token), true
}

// requestToken is the token of a request: a bearer token, or the password of
// basic authentication, which is what a browser can be made to send.
func requestToken(r *http.Request) string {
	if token, ok := bearer(r.Header.Get("Authorization")); ok {
		return token
	}
	_, password, _ := r.BasicAuth()
	return password
}

// mayRead answers the request itself, and returns false, when its token may not
// read. Without a tokens file everybody may.
func (g *guard) mayRead(w http.ResponseWriter, r *http.Request) bool {
	t := g.tokens.Load()
	if !t.file {
		return true
	}
	_, ok := g.who(t, w, r)
	return ok
}

// mayOperate is mayRead for changes. It returns who acts.
func (g *guard) mayOperate(w http.ResponseWriter, r *http.Request) (actor string, ok bool) {
	t := g.tokens.Load()
	if !t.file {
		g.refused.add(refusedNoFile)
		writeError(w, http.StatusForbidden, errors.New("nobody may change anything here: no auth.tokens_file is configured; list a token with role operate in one"))
		return "", false
	}
	p, ok := g.who(t, w, r)
	if ok && !p.operate {
		g.refused.add(refusedRole)
		writeError(w, http.StatusForbidden, fmt.Errorf("token %q may only read; role operate is wanted", p.name))
		return "", false
	}
	return p.name, ok
}

// who finds out whose token a request carries.
func (g *guard) who(t *tokens, w http.ResponseWriter, r *http.Request) (person, bool) {
	token, reason, text := requestToken(r), refusedNoToken, "a token is wanted"
	if token != "" {
		if p, ok := t.person(token); ok {
			return p, true
		}
		reason, text = refusedToken, "the token is not known, or not one for this API"
	}
	g.refused.add(reason)
	w.Header().Set("WWW-Authenticate", `Basic realm="rackpulse: the password is a token", charset="UTF-8"`)
	writeError(w, http.StatusUnauthorized, errors.New(text))
	return person{}, false
}
