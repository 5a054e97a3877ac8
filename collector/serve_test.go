// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// running is a server under test.
type running struct {
	addrs []net.Addr
	stop  context.CancelFunc
	ended chan error
}

// serve starts Serve on free ports of the loopback interface.
func serve(t *testing.T, cfg ServeConfig, h http.Handler, listeners int) *running {
	t.Helper()
	for range listeners {
		cfg.ListenAddresses = append(cfg.ListenAddresses, "127.0.0.1:0")
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{stop: cancel, ended: make(chan error, 1)}
	open := make(chan []net.Addr, 1)
	cfg.OnListen = func(addrs []net.Addr) { open <- addrs }
	go func() { r.ended <- Serve(ctx, cfg, h, slog.New(slog.DiscardHandler)) }()
	select {
	case r.addrs = <-open:
	case err := <-r.ended:
		t.Fatal(err)
	}
	t.Cleanup(cancel)
	return r
}

// end stops the server and fails the test unless it ends well.
func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop()
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
}

// pair is a certificate with its key, on disk and in memory.
type pair struct {
	certFile, keyFile string
	cert              tls.Certificate
	pool              *x509.CertPool
}

// selfSigned makes a certificate for 127.0.0.1 that is its own authority.
func selfSigned(t *testing.T, dir, name string) pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p := pair{certFile: filepath.Join(dir, name+".crt"), keyFile: filepath.Join(dir, name+".key"), pool: x509.NewCertPool()}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	writeTestFile(t, p.certFile, string(certPEM))
	writeTestFile(t, p.keyFile, string(keyPEM))
	if p.cert, err = tls.X509KeyPair(certPEM, keyPEM); err != nil || !p.pool.AppendCertsFromPEM(certPEM) {
		t.Fatal("bad pair", err)
	}
	return p
}

func writeTestFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// client trusts the server's certificate and shows the given one, if any.
func client(t *testing.T, server pair, own ...tls.Certificate) *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: server.pool, Certificates: own}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 10 * time.Second}
}

func get(c *http.Client, url, user, password string) (status int, body string, err error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if user != "" {
		req.SetBasicAuth(user, password)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

func TestServeTLSAndBasicAuth(t *testing.T) {
	dir := t.TempDir()
	server := selfSigned(t, dir, "server")
	hash, err := bcrypt.GenerateFromPassword([]byte("right"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "web.yml") // paths in it are relative to it
	writeTestFile(t, file, fmt.Sprintf(
		"tls_server_config: {cert_file: server.crt, key_file: server.key}\nbasic_auth_users: {prometheus: %q}\n", hash))
	r := serve(t, ServeConfig{WebConfigFile: file}, NewHandler(testConfig()), 2)
	c := client(t, server)
	for _, addr := range r.addrs {
		url := "https://" + addr.String() + "/metrics"
		for _, try := range []struct {
			user, password string
			status         int
		}{{"prometheus", "right", 200}, {"prometheus", "wrong", 401}, {"other", "right", 401}, {"", "", 401}} {
			status, body, err := get(c, url, try.user, try.password)
			if err != nil || status != try.status || strings.Contains(body, "DCGM") != (status == 200) {
				t.Errorf("%s as %s/%s: %d %v, want %d", url, try.user, try.password, status, err, try.status)
			}
		}
		if status, _, err := get(c, "http://"+addr.String()+"/metrics", "prometheus", "right"); err == nil && status == 200 {
			t.Error("plain HTTP was answered")
		}
		if _, _, err := get(client(t, selfSigned(t, dir, "foreign")), url, "prometheus", "right"); err == nil {
			t.Error("the test's client trusts any server")
		}
	}
	r.end(t)
}

func TestServeRequiresClientCertificate(t *testing.T) {
	dir := t.TempDir()
	server, scraper, stranger := selfSigned(t, dir, "server"), selfSigned(t, dir, "scraper"), selfSigned(t, dir, "stranger")
	file := filepath.Join(dir, "web.yml")
	writeTestFile(t, file, "tls_server_config: {cert_file: server.crt, key_file: server.key, "+
		"client_auth_type: RequireAndVerifyClientCert, client_ca_file: scraper.crt}\n")
	r := serve(t, ServeConfig{WebConfigFile: file}, NewHandler(testConfig()), 1)
	url := "https://" + r.addrs[0].String() + "/metrics"
	if status, _, err := get(client(t, server, scraper.cert), url, "", ""); err != nil || status != 200 {
		t.Errorf("with the right certificate: %d %v", status, err)
	}
	if status, _, err := get(client(t, server, stranger.cert), url, "", ""); err == nil {
		t.Errorf("with a foreign certificate: %d", status)
	}
	if status, _, err := get(client(t, server), url, "", ""); err == nil {
		t.Errorf("without a certificate: %d", status)
	}
	r.end(t)
}

func TestServeErrors(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "web.yml")
	writeTestFile(t, bad, "tls_server_config: {cert_file: missing.crt, key_file: missing.key}\n")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, c := range map[string]struct {
		cfg  ServeConfig
		want string
	}{
		"no address":    {ServeConfig{}, "no address to listen on"},
		"bad web file":  {ServeConfig{ListenAddresses: []string{"127.0.0.1:0"}, WebConfigFile: bad}, bad},
		"address taken": {ServeConfig{ListenAddresses: []string{"127.0.0.1:0", taken.Addr().String()}}, taken.Addr().String()},
	} {
		err := Serve(t.Context(), c.cfg, http.NotFoundHandler(), slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// slow answers when leave is closed.
func slow() (h http.Handler, entered, leave chan struct{}) {
	entered, leave = make(chan struct{}), make(chan struct{})
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-leave
		fmt.Fprint(w, "whole answer")
	}), entered, leave
}

func TestServeDrains(t *testing.T) {
	h, entered, leave := slow()
	r := serve(t, ServeConfig{}, h, 1)
	url := "http://" + r.addrs[0].String() + "/"
	got := make(chan string, 1)
	go func() {
		_, body, err := get(&http.Client{Transport: &http.Transport{}}, url, "", "")
		got <- fmt.Sprint(body, err)
	}()
	<-entered
	r.stop()
	for { // the port closes while the request is still under way
		c, err := net.Dial("tcp", r.addrs[0].String())
		if err != nil {
			break
		}
		c.Close()
	}
	select {
	case err := <-r.ended:
		t.Fatalf("ended with a request under way: %v", err)
	default:
	}
	close(leave)
	if body := <-got; body != "whole answer<nil>" {
		t.Errorf("got %q", body)
	}
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
}

func TestServeCutsOffAfterTheDrainTimeout(t *testing.T) {
	h, entered, leave := slow()
	defer close(leave)
	r := serve(t, ServeConfig{DrainTimeout: time.Millisecond}, h, 1)
	got := make(chan error, 1)
	go func() {
		_, _, err := get(&http.Client{Transport: &http.Transport{}}, "http://"+r.addrs[0].String()+"/", "", "")
		got <- err
	}()
	<-entered
	r.end(t)
	if err := <-got; err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("client: %v, want a closed connection", err)
	}
}
