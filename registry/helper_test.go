// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/lease"
	"github.com/rackpulse/rackpulse/lease/leasepb"
	"github.com/rackpulse/rackpulse/site"
)

// patient is a lease that is soon ready and late suspicious, so that a busy
// machine decides no test.
var patient = lease.Config{BeatInterval: 50 * time.Millisecond, SuspectMisses: 100, TTL: 20 * time.Second, Cooldown: 200 * time.Millisecond}

// running is a registry that runs, its API and its port for beats.
type running struct {
	*Registry
	grpc string
	api  *httptest.Server
	stop func() error
}

func testConfig(dir string) Config {
	return Config{GRPC: GRPCConfig{Listen: "127.0.0.1:0"}, Store: StoreConfig{Dir: dir}, Lease: patient}
}

// start runs a registry until the test ends, or stop is called.
func start(t *testing.T, cfg Config, deps Deps) *running {
	t.Helper()
	if deps.Site == nil {
		deps.Site = example(t)
	}
	r, err := New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx, ln) }()
	api := httptest.NewServer(r.Handler())
	stopped := false
	stop := func() error {
		if stopped {
			return nil
		}
		stopped = true
		api.Close()
		cancel()
		return <-ended
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	eventually(t, "ready", func() error {
		if !r.Ready() {
			return errNotReady
		}
		return nil
	})
	return &running{Registry: r, grpc: ln.Addr().String(), api: api, stop: stop}
}

func example(t *testing.T) *site.Site {
	t.Helper()
	s, err := site.Example()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// eventually asks again until check says yes.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// uuidsOf makes n UUIDs of a node.
func uuidsOf(node string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("GPU-%s-%d", node, i)
	}
	return out
}

// agent is one agent that beats over the wire, without the lease package's own
// beater: what the registry answers is seen as it is.
type agent struct {
	conn   *grpc.ClientConn
	stream leasepb.Lease_HeartbeatClient
	seq    uint64
	beat   leasepb.HeartbeatRequest
}

// dial opens a stream as the node.
func dial(t *testing.T, address, node string, hello *leasepb.Hello, opts ...grpc.DialOption) *agent {
	t.Helper()
	if len(opts) == 0 {
		opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	}
	conn, err := grpc.NewClient(address, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	stream, err := leasepb.NewLeaseClient(conn).Heartbeat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{conn: conn, stream: stream}
	a.beat.NodeId, a.beat.Hello = node, hello
	return a
}

// once beats once and returns the reply.
func (a *agent) once() (*leasepb.HeartbeatReply, error) {
	a.seq++
	a.beat.Seq, a.beat.Timestamp = a.seq, time.Now().UnixMilli()
	if err := a.stream.Send(&a.beat); err != nil {
		if _, err := a.stream.Recv(); err != nil {
			return nil, err
		}
		return nil, err
	}
	return a.stream.Recv()
}

// mustBeat beats until the registry sees the node in that state.
func (a *agent) mustBeat(t *testing.T, state leasepb.State) *leasepb.HeartbeatReply {
	t.Helper()
	var last *leasepb.HeartbeatReply
	eventually(t, a.beat.NodeId+" "+state.String(), func() error {
		r, err := a.once()
		if err != nil {
			t.Fatalf("beat of %s: %v", a.beat.NodeId, err)
		}
		if r.GetIdentity() != nil {
			last = r
		}
		if r.GetState() != state {
			return fmt.Errorf("state is %s %s", r.GetState(), r.GetError())
		}
		if last == nil {
			last = r
		}
		return nil
	})
	return last
}

// node is the agent of a GPU node of the example hall.
func gpuNode(t *testing.T, r *running, node, advertise string, opts ...grpc.DialOption) *agent {
	t.Helper()
	a := dial(t, r.grpc, node, &leasepb.Hello{
		Epoch: uint64(len(node)) + uint64(time.Now().UnixNano()), Version: "1.0", Roles: []string{"gpu"}, Advertise: advertise,
		Facts: map[string]string{"driver": "570.133.20", "gpu_model": "NVIDIA H100 80GB HBM3"},
	}, opts...)
	a.beat.GpuUuids = uuidsOf(node, 8)
	return a
}

// request sends one request to the API and returns status and body.
func (r *running) request(t *testing.T, method, path, token, body string) (int, string) {
	t.Helper()
	resp, text := r.ask(t, method, path, token, body)
	return resp.StatusCode, text
}

// unled follows no redirect.
var unled = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// ask is request with the whole answer; its body is read.
func (r *running) ask(t *testing.T, method, path, token, body string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.api.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := unled.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(data)
}

// get reads a JSON answer that must be a success.
func (r *running) get(t *testing.T, path string, v any) {
	t.Helper()
	code, body := r.request(t, http.MethodGet, path, "", "")
	if code != http.StatusOK {
		t.Fatalf("GET %s: %d %s", path, code, body)
	}
	if err := json.Unmarshal([]byte(body), v); err != nil {
		t.Fatalf("GET %s: %v\n%s", path, err, body)
	}
}

// client is a Client of the registry's API.
func (r *running) client(t *testing.T, token string) *Client {
	t.Helper()
	cfg := ClientConfig{URLs: []string{r.api.URL}}
	if token != "" {
		secret, err := config.ReadSecret(writeFile(t, t.TempDir(), "token", token+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		cfg.Token = secret
	}
	c, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var t0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
