// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-kit/log"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that rawCodec falls back to
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// kubelet is a real gRPC server on a real socket with a kubelet's API.
type kubelet struct {
	podresources.UnimplementedPodResourcesListerServer
	t      *testing.T
	path   string
	server *grpc.Server
	conns  int // connections in its life

	mu   sync.Mutex
	list func(ctx context.Context) (*podresources.ListPodResourcesResponse, error)
}

func (k *kubelet) List(ctx context.Context, _ *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	k.mu.Lock()
	list := k.list
	k.mu.Unlock()
	return list(ctx)
}

// answer makes the kubelet answer so from now on.
func (k *kubelet) answer(list func(context.Context) (*podresources.ListPodResourcesResponse, error)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = list
}

// pods makes the kubelet have these pods from now on.
func (k *kubelet) pods(pods ...*podresources.PodResources) {
	k.answer(func(context.Context) (*podresources.ListPodResourcesResponse, error) {
		return &podresources.ListPodResourcesResponse{PodResources: pods}, nil
	})
}

// start serves on the socket; one that is there already stays with its server.
func (k *kubelet) start(options ...grpc.ServerOption) {
	k.t.Helper()
	os.Remove(k.path)
	listener, err := net.Listen("unix", k.path)
	if err != nil {
		k.t.Fatal(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false) // another's socket may be in its place
	server := grpc.NewServer(options...)
	podresources.RegisterPodResourcesListerServer(server, k)
	go server.Serve(&counting{listener, k})
	k.server = server
	k.t.Cleanup(server.Stop)
}

// counting is a listener that counts.
type counting struct {
	net.Listener
	k *kubelet
}

func (c *counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.k.mu.Lock()
		c.k.conns++
		c.k.mu.Unlock()
	}
	return conn, err
}

func (k *kubelet) connections() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.conns
}

func newKubelet(t *testing.T) *kubelet {
	t.Helper()
	noLeaks(t, "google.golang.org/grpc")
	dir, err := os.MkdirTemp("", "kubelet") // short: a socket's path has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	k := &kubelet{t: t, path: filepath.Join(dir, "kubelet.sock")}
	k.pods()
	return k
}

// container is a pod with one container that has devices of one resource.
func container(pod, resource string, ids ...string) *podresources.PodResources {
	return &podresources.PodResources{Name: pod, Namespace: "ml", Containers: []*podresources.ContainerResources{{
		Name: "main", Devices: []*podresources.ContainerDevices{{ResourceName: resource, DeviceIds: ids}}}}}
}

// newPoller polls the kubelet when told to, for the GPUs of testIndex.
func newPoller(t *testing.T, cfg KubernetesConfig, auto string) (*podPoller, *recorder) {
	t.Helper()
	rec := newRecorder()
	p := &podPoller{logger: log.NewNopLogger(), store: rec, config: func() KubernetesConfig { return cfg },
		index: testIndex, socket: auto, limit: 10 * time.Second}
	t.Cleanup(p.disconnect)
	return p, rec
}

const podInfo = "rackpulse_gpu_pod_info"

func podUp(t *testing.T, rec *recorder, want, reason string) {
	t.Helper()
	page := rec.page(t)
	if got := series(page, "rackpulse_source_up", `source="pod_resources"`); strings.Join(got, ",") != want {
		t.Errorf("up: %q, want %q", got, want)
	}
	if reason != "" && len(series(page, "rackpulse_source_info", `source="pod_resources"`, reason)) != 1 {
		t.Errorf("no reason %q on the page:\n%s", reason, page)
	}
}

func TestPods(t *testing.T) {
	k := newKubelet(t)
	k.start()
	k.pods(
		container("train-0", "nvidia.com/gpu", uuidA),
		container("notebook", "nvidia.com/gpu.shared", uuidB+"::0", uuidB+"::3"),
		container("infer", "nvidia.com/mig-1g.10gb", migB7),
		container("nic", "mellanox.com/rdma", "GPU-like"),
		container("video", "example.com/gpu-slice", "nvidia3/gi11/vgpu1"),
		&podresources.PodResources{Name: "claims", Namespace: "dra", Containers: []*podresources.ContainerResources{{Name: "c\"1",
			DynamicResources: []*podresources.DynamicResource{{ClaimName: "two", ClaimNamespace: "dra", ClaimResources: []*podresources.ClaimResource{
				{DriverName: "gpu.nvidia.com", PoolName: "node", DeviceName: "gpu-2", CdiDevices: []*podresources.CDIDevice{{Name: "k8s.gpu.nvidia.com/claim=u-gpu-2"}}},
				{DriverName: "gpu.nvidia.com", PoolName: "node", DeviceName: "gpu-3-mig-14-2-2"},
				{DriverName: "compute-domain.nvidia.com", PoolName: "node", DeviceName: "channel-0"},
			}}}}}},
		container("elsewhere", "nvidia.com/gpu", "GPU-11111111-2222-3333-4444-555555555555"),
	)
	p, rec := newPoller(t, KubernetesConfig{Socket: k.path, ResourceNames: []string{"example.com/gpu-slice"}}, "")
	p.poll(t.Context(), time.Now())
	page := rec.page(t)
	for _, want := range []string{
		`{UUID="` + uuidA + `",gpu="0",namespace="ml",pod="train-0",container="main",resource="nvidia.com/gpu"}`,
		`{UUID="` + uuidB + `",gpu="1",namespace="ml",pod="notebook",container="main",resource="nvidia.com/gpu.shared"}`,
		`{UUID="` + uuidB + `",gpu="1",GPU_I_ID="7",namespace="ml",pod="infer",container="main",resource="nvidia.com/mig-1g.10gb"}`,
		`{UUID="` + uuidB + `",gpu="1",GPU_I_ID="11",namespace="ml",pod="video",container="main",resource="example.com/gpu-slice"}`,
		`{UUID="` + uuidA + `",gpu="0",namespace="dra",pod="claims",container="c\"1",resource="gpu.nvidia.com",claim="two"}`,
		`{UUID="` + uuidB + `",gpu="1",GPU_I_ID="11",namespace="dra",pod="claims",container="c\"1",resource="gpu.nvidia.com",claim="two"}`,
	} {
		if !strings.Contains(page, "\n"+podInfo+want+" 1\n") {
			t.Errorf("no %s", want)
		}
	}
	if n := len(series(page, podInfo)); n != 6 {
		t.Errorf("%d series, want 6:\n%s", n, page)
	}
	podUp(t, rec, "1", "1 device ids name no GPU of this node, such as GPU-11111111-2222-3333-4444-555555555555")
	want(t, "rejected", series(page, "rackpulse_rejected_samples_total"))
	if k.connections() != 1 {
		t.Errorf("%d connections", k.connections())
	}
}

// TestPodsMany has 200 pods that share two GPUs, of which one half ends.
func TestPodsMany(t *testing.T) {
	k := newKubelet(t)
	k.start()
	var pods []*podresources.PodResources
	for i := range 200 {
		pods = append(pods, container(fmt.Sprintf("pod-%03d", i), "nvidia.com/gpu", fmt.Sprintf("%s::%d", []string{uuidA, uuidB}[i%2], i/2)))
	}
	k.pods(pods...)
	p, rec := newPoller(t, KubernetesConfig{Socket: k.path}, "")
	now := time.Now()
	p.poll(t.Context(), now)
	if n := len(series(rec.page(t), podInfo)); n != 200 {
		t.Errorf("%d series", n)
	}
	k.pods(pods[:100]...)
	for range 3 {
		now = now.Add(processInterval)
		p.poll(t.Context(), now)
	}
	page := rec.page(t)
	if n := len(series(page, podInfo)); n != 100 || strings.Contains(page, "pod-100") {
		t.Errorf("%d series after the pods' end", n)
	}
	if k.connections() != 1 {
		t.Errorf("%d connections", k.connections())
	}
	// More than is shown.
	pods = nil
	for i := range maxPodSeries + 1 {
		pods = append(pods, container(fmt.Sprint(i), "nvidia.com/gpu", uuidA))
	}
	k.pods(pods...)
	p.poll(t.Context(), now.Add(processInterval))
	if n := len(series(rec.page(t), podInfo)); n != maxPodSeries {
		t.Errorf("%d series, want %d", n, maxPodSeries)
	}
	podUp(t, rec, "1", "more than 2048 series")
}

// TestPodsFaults: whatever the kubelet does is a metric, and over when it is over.
func TestPodsFaults(t *testing.T) {
	fail := func(code codes.Code, text string) func(*kubelet) {
		return func(k *kubelet) {
			k.answer(func(context.Context) (*podresources.ListPodResourcesResponse, error) {
				return nil, status.Error(code, text)
			})
		}
	}
	for name, c := range map[string]struct {
		fault  func(k *kubelet)
		reason string
	}{
		"unimplemented": {fail(codes.Unimplemented, "unknown service v1.PodResourcesLister"), "kubelet: Unimplemented: unknown service"},
		"denied":        {fail(codes.PermissionDenied, "no"), "kubelet: PermissionDenied: no"},
		"hang": {func(k *kubelet) {
			k.answer(func(ctx context.Context) (*podresources.ListPodResourcesResponse, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
		}, "kubelet: DeadlineExceeded"},
		"20 MB": {func(k *kubelet) { k.pods(container(strings.Repeat("x", 20<<20), "nvidia.com/gpu", uuidA)) }, "kubelet: ResourceExhausted"},
		"malformed": {func(k *kubelet) {
			k.server.Stop()
			k.start(grpc.ForceServerCodecV2(rawCodec{encoding.GetCodecV2("proto")}))
		}, "kubelet: Internal"},
		"stopped":       {func(k *kubelet) { k.server.Stop() }, "kubelet: Unavailable"},
		"socket gone":   {func(k *kubelet) { k.server.Stop(); os.Remove(k.path) }, "no such file or directory"},
		"no socket":     {func(k *kubelet) { k.server.Stop(); os.Remove(k.path); write(k.t, k.path, "") }, "kubelet: Unavailable"},
		"another's API": {func(k *kubelet) { k.server.Stop(); os.Remove(k.path); bare(k.t, k.path) }, "kubelet: Unimplemented"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKubelet(t)
			k.start()
			k.pods(container("a", "nvidia.com/gpu", uuidA))
			p, rec := newPoller(t, KubernetesConfig{Socket: k.path}, "")
			now := time.Now()
			p.poll(t.Context(), now)
			podUp(t, rec, "1", `reason="ok"`)
			c.fault(k)
			if name == "hang" {
				p.limit = 300 * time.Millisecond
			}
			for range 2 {
				now = now.Add(maxPodBackoff)
				p.poll(t.Context(), now)
			}
			podUp(t, rec, "0", c.reason)
			want(t, "errors", series(rec.page(t), "rackpulse_source_read_errors_total", podSource), "2")
			want(t, "the last answer, until it is old", series(rec.page(t), podInfo), "1")
			p.limit = 10 * time.Second
			k.server.Stop()
			k.start()
			k.pods(container("b", "nvidia.com/gpu", uuidB))
			p.poll(t.Context(), now.Add(maxPodBackoff))
			podUp(t, rec, "1", `reason="ok"`)
			want(t, "pods again", series(rec.page(t), podInfo, `pod="b"`), "1")
		})
	}
}

// rawCodec answers with bytes that are no message.
type rawCodec struct{ encoding.CodecV2 }

func (rawCodec) Marshal(any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer("\x0a\xff\xff\xff\xff\x0fnonsense")}, nil
}

// bare serves gRPC without the kubelet's service.
func bare(t *testing.T, path string) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	server := grpc.NewServer()
	go server.Serve(listener)
	t.Cleanup(server.Stop)
}

// TestPodsRestart: a kubelet that came anew is asked at the next poll, even if the
// old one still holds its connection.
func TestPodsRestart(t *testing.T) {
	old := newKubelet(t)
	old.start()
	old.pods(container("old", "nvidia.com/gpu", uuidA))
	p, rec := newPoller(t, KubernetesConfig{Socket: old.path}, "")
	now := time.Now()
	p.poll(t.Context(), now)
	next := &kubelet{t: t, path: old.path}
	next.pods(container("new", "nvidia.com/gpu", uuidA))
	next.start()
	p.poll(t.Context(), now.Add(processInterval))
	page := rec.page(t)
	want(t, "new", series(page, podInfo, `pod="new"`), "1")
	want(t, "old", series(page, podInfo, `pod="old"`))
	want(t, "errors", series(page, "rackpulse_source_read_errors_total", podSource), "0")
}

// TestPodsBackoff: a kubelet that fails is asked ever more seldom.
func TestPodsBackoff(t *testing.T) {
	k := newKubelet(t)
	p, rec := newPoller(t, KubernetesConfig{Socket: k.path}, "")
	now := time.Now()
	for range 60 { // ten minutes
		p.poll(t.Context(), now)
		now = now.Add(processInterval)
	}
	podUp(t, rec, "0", "no such file")
	if n := p.status.Errors; n != 12 { // at 0, 10, 30, 70, 130 s, and then each minute
		t.Errorf("%d tries in ten minutes", n)
	}
}

// TestPodsAuto: without a kubelet there is nothing to tell; with "none" nothing is
// asked; a kubelet that came later is found.
func TestPodsAuto(t *testing.T) {
	k := newKubelet(t)
	cfg := KubernetesConfig{Socket: "auto"}
	p, rec := newPoller(t, cfg, k.path)
	p.config = func() KubernetesConfig { return cfg }
	now := time.Now()
	p.poll(t.Context(), now)
	podUp(t, rec, "", "")
	k.start()
	k.pods(container("a", "nvidia.com/gpu", uuidA))
	p.poll(t.Context(), now.Add(processInterval))
	podUp(t, rec, "1", "")
	k.server.Stop()
	os.Remove(k.path)
	p.poll(t.Context(), now.Add(2*processInterval))
	podUp(t, rec, "0", "no such file")
	cfg.Socket = "none"
	p.poll(t.Context(), now.Add(time.Hour))
	if p.conn != nil || p.status.Errors != 1 {
		t.Errorf("asked with socket none: %+v", p.status)
	}
}

// TestPodsEnd: the end of the agent does not wait for a kubelet that hangs.
func TestPodsEnd(t *testing.T) {
	k := newKubelet(t)
	k.start()
	asked := make(chan struct{})
	k.answer(func(ctx context.Context) (*podresources.ListPodResourcesResponse, error) {
		close(asked)
		<-ctx.Done()
		return nil, errors.New("late")
	})
	p, _ := newPoller(t, KubernetesConfig{Socket: k.path}, "")
	p.limit = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { p.run(ctx); close(done) }()
	<-asked
	cancel()
	<-done
}
