// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/rackpulse/rackpulse/collector"
)

const (
	podSource = "pod_resources"
	podsName  = "gpu_pods"

	// podDeadline bounds one List. The kubelet answers within milliseconds.
	podDeadline = 5 * time.Second
	// maxPodBackoff is the longest time between two tries while the kubelet fails.
	maxPodBackoff = time.Minute
	// maxPodAnswer is the bound of the kubelet's own clients.
	maxPodAnswer = 16 << 20
	// maxPodSeries bounds rackpulse_gpu_pod_info: 16 GPUs with 7 MIG instances each
	// and 16 replicas of each are 1792.
	maxPodSeries = 2048
	// maxPodLabel bounds one label; names in Kubernetes have at most 253 bytes.
	maxPodLabel = 253
)

var descPodInfo = &collector.Desc{
	Name:   "rackpulse_gpu_pod_info",
	Help:   "A container that has the GPU or MIG GPU instance, as the kubelet says, always 1. Several containers may share one.",
	Labels: []string{"UUID", "gpu", "GPU_I_ID", "namespace", "pod", "container", "resource", "claim"},
}

// podPoller asks the kubelet which container has which GPU. One goroutine.
type podPoller struct {
	logger log.Logger
	store  Store
	config func() KubernetesConfig
	index  func() *gpuIndex
	socket string        // what "auto" means
	limit  time.Duration // of one List

	conn     *grpc.ClientConn // nil: none
	path     string           // of conn
	file     os.FileInfo      // of the socket when conn was made
	status   collector.Status
	seen     bool // there was a socket, so that its absence is a failure
	told     string
	failures int
	next     time.Time
}

// run polls until ctx is done.
func (p *podPoller) run(ctx context.Context) {
	ticker := time.NewTicker(processInterval)
	defer ticker.Stop()
	defer p.disconnect()
	for {
		p.poll(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// poll asks once, unless it failed not long ago, and publishes.
func (p *podPoller) poll(ctx context.Context, now time.Time) {
	cfg := p.config()
	path := cfg.Socket
	if path == "auto" {
		path = p.socket
	}
	if path != p.path {
		p.disconnect()
		p.path, p.next, p.failures = path, time.Time{}, 0
	}
	if path == "none" || now.Before(p.next) {
		return
	}
	pods, err := p.list(ctx)
	if ctx.Err() != nil {
		return
	}
	end := time.Now()
	if err == nil {
		p.seen = true
		p.status.Duration = end.Sub(now)
		points, remark := podPoints(pods, &cfg, p.index())
		p.store.Put(collector.Snapshot{Source: podsName, At: now, Interval: processInterval, Points: points})
		p.failures, p.next = 0, time.Time{}
		p.tell(true, remark, end)
		return
	}
	p.disconnect()
	if errors.Is(err, os.ErrNotExist) && cfg.Socket == "auto" && !p.seen {
		return // no kubelet on this node
	}
	p.seen = true
	p.status.Errors++
	p.failures++
	wait := min(processInterval<<min(p.failures-1, 8), maxPodBackoff)
	p.next = now.Add(wait - processInterval/2) // half a tick of tolerance
	p.tell(false, err.Error(), end)
}

// tell publishes the state, and logs it when it changed.
func (p *podPoller) tell(up bool, reason string, now time.Time) {
	if p.status.Up != up || p.status.Since.IsZero() {
		p.status.Since = now
	}
	p.status.Up, p.status.Reason, p.status.Consecutive = up, reason, p.failures
	if up {
		p.status.LastSample = now
	}
	p.store.SetStatus(podSource, p.status)
	if text := fmt.Sprint(up, reason); text != p.told {
		p.told = text
		level.Info(p.logger).Log("msg", "pods of the GPUs", "socket", p.path, "up", up, "reason", reason)
	}
}

// list asks the kubelet over the connection that there is, or a new one.
func (p *podPoller) list(ctx context.Context) (*podresources.ListPodResourcesResponse, error) {
	file, err := os.Stat(p.path)
	if err != nil {
		return nil, err
	}
	if p.conn != nil && !os.SameFile(file, p.file) { // another kubelet
		p.disconnect()
	}
	if p.conn == nil {
		p.conn, err = grpc.NewClient("unix:"+p.path, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithNoProxy(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxPodAnswer)))
		if err != nil {
			return nil, err
		}
		p.file = file
	}
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	answer, err := podresources.NewPodResourcesListerClient(p.conn).List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("kubelet: %s: %s", status.Code(err), status.Convert(err).Message())
	}
	return answer, nil
}

func (p *podPoller) disconnect() {
	if p.conn == nil {
		return
	}
	if err := p.conn.Close(); err != nil {
		level.Debug(p.logger).Log("msg", "closing the kubelet's connection", "err", err)
	}
	p.conn = nil
}

// podList collects the series of one answer.
type podList struct {
	points  []collector.Point
	seen    map[string]bool
	unknown []string // device ids that name no GPU of this node
	cut     bool     // there were more than maxPodSeries
}

// podPoints turns an answer into points; remark says what is odd about it.
func podPoints(answer *podresources.ListPodResourcesResponse, cfg *KubernetesConfig, index *gpuIndex) (points []collector.Point, remark string) {
	l := podList{seen: map[string]bool{}}
	for _, pod := range answer.GetPodResources() {
		for _, c := range pod.GetContainers() {
			for _, d := range c.GetDevices() {
				if !cfg.holdsGPUs(d.GetResourceName()) {
					continue
				}
				for _, id := range d.GetDeviceIds() {
					ref, ok := index.device(id)
					l.add(ref, ok, id, pod, c, d.GetResourceName(), "")
				}
			}
			l.addClaims(pod, c, cfg, index)
		}
	}
	slices.SortFunc(l.points, func(a, b collector.Point) int { return slices.Compare(a.Values, b.Values) })
	var remarks []string
	if n := len(l.unknown); n > 0 {
		slices.Sort(l.unknown)
		remarks = append(remarks, fmt.Sprintf("%d device ids name no GPU of this node, such as %s", n, clip(l.unknown[0])))
	}
	if l.cut {
		remarks = append(remarks, fmt.Sprintf("more than %d series, the rest is left out", maxPodSeries))
	}
	return l.points, strings.Join(remarks, "; ")
}

// addClaims adds the devices of a container's resource claims (DRA).
func (l *podList) addClaims(pod *podresources.PodResources, c *podresources.ContainerResources, cfg *KubernetesConfig, index *gpuIndex) {
	for _, claim := range c.GetDynamicResources() {
		for _, r := range claim.GetClaimResources() {
			if !cfg.holdsGPUs(r.GetDriverName()) {
				continue
			}
			var cdi []string
			for _, d := range r.GetCdiDevices() {
				cdi = append(cdi, d.GetName())
			}
			ref, ok := index.claimed(r.GetDeviceName(), cdi)
			l.add(ref, ok, r.GetDeviceName(), pod, c, r.GetDriverName(), claim.GetClaimName())
		}
	}
}

// add adds one container's device. Replicas of one device make one series.
func (l *podList) add(ref gpuRef, known bool, id string, pod *podresources.PodResources, c *podresources.ContainerResources, resource, claim string) {
	if !known {
		if len(l.unknown) < maxPodSeries {
			l.unknown = append(l.unknown, id)
		}
		return
	}
	values := []string{ref.UUID, ref.Index, ref.GI, clip(pod.GetNamespace()), clip(pod.GetName()), clip(c.GetName()), clip(resource), clip(claim)}
	key := strings.Join(values, "\xff")
	switch {
	case l.seen[key]:
	case len(l.points) == maxPodSeries:
		l.cut = true
	default:
		l.seen[key] = true
		l.points = append(l.points, collector.Point{Desc: descPodInfo, Values: values, Value: 1})
	}
}

// clip bounds a text from outside that becomes a label.
func clip(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxPodLabel)], "?")
}
