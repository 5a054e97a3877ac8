// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rackpulse/rackpulse/testtool"
)

// redfishMock is a Redfish service over HTTPS that asks for a login.
type redfishMock struct {
	*httptest.Server
	dir string // holds ca.pem and password

	mu        sync.Mutex
	resources map[string]json.RawMessage
	expand    bool // answers $expand
	sessions  bool // has a session service
	tokens    map[string]bool
	logins    int
	logouts   int
	gets      []string
	now, most int // requests at a time
	// before is called ahead of each answer to a GET, without the lock; it may
	// answer itself and return true.
	before func(w http.ResponseWriter, r *http.Request) bool
}

// newRedfishMock serves the resources of a file of testdata/redfish, by path.
func newRedfishMock(t *testing.T, file string) *redfishMock {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testtool.Root(), "testdata", "redfish", file))
	if err != nil {
		t.Fatal(err)
	}
	m := &redfishMock{dir: t.TempDir(), tokens: map[string]bool{}, sessions: true}
	if err := json.Unmarshal(data, &m.resources); err != nil {
		t.Fatal(err)
	}
	m.Server = httptest.NewTLSServer(m)
	t.Cleanup(m.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.Certificate().Raw})
	for name, text := range map[string]string{"ca.pem": string(ca), "password": "s3cret\n"} {
		if err := os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// entry is the configuration of a device behind the mock; more are lines of the
// block redfish.
func (m *redfishMock) entry(device string, more ...string) string {
	text := fmt.Sprintf("facility:\n- device: %s\n  driver: redfish\n  address: %s\n  redfish:\n    user: mon\n    password_file: %s\n    ca_file: %s\n",
		device, m.URL, filepath.Join(m.dir, "password"), filepath.Join(m.dir, "ca.pem"))
	for _, line := range more {
		text += "    " + line + "\n"
	}
	return text
}

func (m *redfishMock) with(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// set changes a resource; null deletes it.
func (m *redfishMock) set(path, text string) {
	m.with(func() {
		m.resources[path] = json.RawMessage(text)
		if text == "null" {
			delete(m.resources, path)
		}
	})
}

// ServeHTTP implements http.Handler.
func (m *redfishMock) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.with(func() { m.now++; m.most = max(m.most, m.now) })
	defer m.with(func() { m.now-- })
	if r.URL.Path == "/redfish/v1/SessionService/Sessions" && r.Method == http.MethodPost {
		m.login(w, r)
		return
	}
	user, password, basic := r.BasicAuth()
	m.mu.Lock()
	ok := m.tokens[r.Header.Get("X-Auth-Token")] || basic && user == "mon" && password == "s3cret" || r.URL.Path == "/redfish/v1/"
	before := m.before
	m.mu.Unlock()
	if !ok {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if r.Method == http.MethodDelete {
		m.with(func() { m.logouts++; delete(m.tokens, r.Header.Get("X-Auth-Token")) })
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if before != nil && before(w, r) {
		return
	}
	m.get(w, r)
}

func (m *redfishMock) login(w http.ResponseWriter, r *http.Request) {
	var c struct{ UserName, Password string }
	_ = json.NewDecoder(r.Body).Decode(&c)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.sessions:
		w.WriteHeader(http.StatusNotFound)
	case c.UserName != "mon" || c.Password != "s3cret":
		w.WriteHeader(http.StatusUnauthorized)
	default:
		m.logins++
		token := fmt.Sprintf("token-%d", m.logins)
		m.tokens[token] = true
		w.Header().Set("X-Auth-Token", token)
		w.Header().Set("Location", "/redfish/v1/SessionService/Sessions/"+token)
		w.WriteHeader(http.StatusCreated)
	}
}

func (m *redfishMock) get(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gets = append(m.gets, r.URL.RequestURI())
	body, ok := m.lookup(r.URL.Path)
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if m.expand && strings.HasPrefix(r.URL.Query().Get("$expand"), ".") {
		body = m.expanded(body)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

func (m *redfishMock) lookup(path string) (json.RawMessage, bool) {
	body, ok := m.resources[path]
	return body, ok
}

// expanded puts the members of a collection into it.
func (m *redfishMock) expanded(body json.RawMessage) json.RawMessage {
	var list map[string]json.RawMessage
	var links []rfLink
	if json.Unmarshal(body, &list) != nil || json.Unmarshal(list["Members"], &links) != nil {
		return body
	}
	var members [][]byte
	for _, l := range links {
		members = append(members, m.resources[l.ID])
	}
	list["Members"] = append(append([]byte("["), bytes.Join(members, []byte(","))...), ']')
	out, _ := json.Marshal(list)
	return out
}
