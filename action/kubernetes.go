// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"

	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/ledger"
)

func init() { register("kubernetes", newKubernetes) }

// What is ours on a Node.
const (
	// KubeTaint keeps new pods away (NoSchedule) while it is there.
	KubeTaint = "rackpulse.io/unhealthy"
	// KubeCondition is True while no mark of ours is on the node.
	KubeCondition = "RackPulseHealthy"
	// kubeMark is the annotation with our mark's words, kubeCordon the one that
	// says that it was us who made the node unschedulable.
	kubeMark   = "rackpulse.io/mark"
	kubeCordon = "rackpulse.io/cordoned"
)

const (
	// kubeTimeout bounds one request.
	kubeTimeout = 10 * time.Second
	// maxPods bounds the pods of a node that are looked at; kubelets take 110 by
	// default, 500 with extra settings.
	maxPods = 2000
)

var (
	kubeNodes = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	kubePods  = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

// kubeConfig is a target {action: kubernetes}.
type kubeConfig struct {
	head `yaml:",inline"`
	// Kubeconfig is a file of kubectl's; empty: the pod's service account.
	Kubeconfig string `yaml:"kubeconfig"`
}

// kubernetes marks Nodes with a taint, a condition and an annotation. Hard, it
// makes them unschedulable and evicts their pods through the eviction API, which
// keeps to PodDisruptionBudgets. Marks of others stay.
type kubernetes struct {
	client dynamic.Interface

	mu   sync.Mutex
	seen map[string]renewal
}

func newKubernetes(part config.Part, deps Deps) (Target, error) {
	var c kubeConfig
	if err := part.Decode(&c); err != nil {
		return nil, err
	}
	if c.Kubeconfig != "" {
		c.Kubeconfig = deps.Resolve(c.Kubeconfig)
	}
	client, err := kubeClient(c.Kubeconfig, "rackpulse-registry")
	if err != nil {
		return nil, err
	}
	return &kubernetes{client: client, seen: map[string]renewal{}}, nil
}

// kubeClient makes a client; with no kubeconfig it is the pod's service account.
func kubeClient(kubeconfig, agent string) (*dynamic.DynamicClient, error) {
	var cfg *rest.Config
	var err error
	if kubeconfig == "" {
		cfg, err = rest.InClusterConfig()
	} else {
		cfg, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	cfg.Timeout, cfg.UserAgent = kubeTimeout, agent
	cfg.QPS, cfg.Burst = 20, 40
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return atOnce{next} })
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return client, nil
}

// atOnce takes the header away that makes the client wait and repeat a call: a
// budget that keeps a pod is told at once, and asked again by the runner.
type atOnce struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (a atOnce) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := a.RoundTripper.RoundTrip(req)
	if err == nil {
		res.Header.Del("Retry-After")
	}
	return res, err
}

// Apply implements Target.
func (k *kubernetes) Apply(ctx context.Context, o Order) (string, error) {
	if o.Action == ledger.ActionResume {
		return k.resume(ctx, &o)
	}
	note, err := k.mark(ctx, &o)
	if err != nil || !o.Hard || note == kubeUnknown {
		return note, err
	}
	evicted, err := k.evict(ctx, o.Node)
	if err != nil {
		return "", err
	}
	return note + ", " + evicted, nil
}

// kubeUnknown is the note for a node that the cluster does not have.
const kubeUnknown = "is no node of this cluster"

// mark puts our taint, condition and annotation on; hard also cordons.
func (k *kubernetes) mark(ctx context.Context, o *Order) (string, error) {
	found, err := k.change(ctx, o.Node, func(n *unstructured.Unstructured) bool {
		notes := n.GetAnnotations()
		if notes == nil {
			notes = map[string]string{}
		}
		changed := false
		if notes[kubeMark] == "" {
			notes[kubeMark], changed = o.Mark(), true
		}
		if off, _, _ := unstructured.NestedBool(n.Object, "spec", "unschedulable"); o.Hard && !off {
			_ = unstructured.SetNestedField(n.Object, true, "spec", "unschedulable")
			notes[kubeCordon], changed = "true", true
		}
		n.SetAnnotations(notes)
		taints := taintsOf(n)
		if !slices.ContainsFunc(taints, ourTaint) {
			taint := map[string]any{"key": KubeTaint, "value": o.Action, "effect": "NoSchedule", "timeAdded": o.Created.UTC().Format(time.RFC3339)}
			_ = unstructured.SetNestedSlice(n.Object, append(taints, taint), "spec", "taints")
			changed = true
		}
		return changed
	})
	if err != nil || !found {
		return kubeUnknown, err
	}
	if err := k.condition(ctx, o.Node, "False", o.Action, o.Mark()); err != nil {
		return "", err
	}
	n, err := k.client.Resource(kubeNodes).Get(ctx, o.Node, metav1.GetOptions{})
	switch {
	case err != nil:
		return "", fmt.Errorf("kubernetes: read node back: %w", err)
	case !slices.ContainsFunc(taintsOf(n), ourTaint):
		return "", errors.New("kubernetes took the taint, but it is gone again")
	case o.Hard:
		return "tainted and cordoned", nil
	}
	return "tainted", nil
}

// resume takes our marks off: the taint, the annotations, and the cordon if it
// was ours.
func (k *kubernetes) resume(ctx context.Context, o *Order) (string, error) {
	off := false
	found, err := k.change(ctx, o.Node, func(n *unstructured.Unstructured) bool {
		notes, taints := n.GetAnnotations(), taintsOf(n)
		kept := slices.DeleteFunc(slices.Clone(taints), ourTaint)
		if notes[kubeMark] == "" && len(kept) == len(taints) {
			return false
		}
		off = true
		_ = unstructured.SetNestedSlice(n.Object, kept, "spec", "taints")
		if notes[kubeCordon] != "" {
			unstructured.RemoveNestedField(n.Object, "spec", "unschedulable")
		}
		delete(notes, kubeMark)
		delete(notes, kubeCordon)
		n.SetAnnotations(notes)
		return true
	})
	switch {
	case err != nil:
		return "", err
	case !found:
		return kubeUnknown, nil
	}
	if err := k.condition(ctx, o.Node, "True", "Healthy", "no mark of rackpulse is on the node"); err != nil {
		return "", err
	}
	if !off {
		return "holds no mark of ours", nil
	}
	return "our marks are taken off", nil
}

// change reads, changes and writes a Node, anew when somebody else wrote it in
// between (its resourceVersion tells). found is false when there is none.
func (k *kubernetes) change(ctx context.Context, node string, do func(*unstructured.Unstructured) bool) (found bool, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		n, err := k.client.Resource(kubeNodes).Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !do(n) {
			return nil
		}
		_, err = k.client.Resource(kubeNodes).Update(ctx, n, metav1.UpdateOptions{FieldManager: "rackpulse"})
		return err
	})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("kubernetes: change node: %w", err)
	}
	return true, nil
}

// condition sets our condition in the node's status.
func (k *kubernetes) condition(ctx context.Context, node, status, reason, message string) error {
	now := time.Now().UTC().Format(time.RFC3339)
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{map[string]any{
		"type": KubeCondition, "status": status, "reason": reason, "message": message, "lastHeartbeatTime": now, "lastTransitionTime": now,
	}}}})
	if err != nil {
		return err
	}
	_, err = k.client.Resource(kubeNodes).Patch(ctx, node, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: "rackpulse"}, "status")
	if err != nil {
		return fmt.Errorf("kubernetes: set condition: %w", err)
	}
	return nil
}

// evict asks for the eviction of all pods of a node that a controller can make
// again elsewhere. While a budget forbids some it is an error, so that it is
// tried again.
func (k *kubernetes) evict(ctx context.Context, node string) (string, error) {
	list, err := k.client.Resource(kubePods).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node, Limit: maxPods})
	if err != nil {
		return "", fmt.Errorf("kubernetes: list pods of the node: %w", err)
	}
	evicted, stay, kept := 0, 0, 0
	for i := range list.Items {
		pod := &list.Items[i]
		if !evictable(pod) {
			stay++
			continue
		}
		body := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "policy/v1", "kind": "Eviction",
			"metadata": map[string]any{"name": pod.GetName(), "namespace": pod.GetNamespace()},
		}}
		_, err := k.client.Resource(kubePods).Namespace(pod.GetNamespace()).Create(ctx, body, metav1.CreateOptions{}, "eviction")
		var status apierrors.APIStatus
		switch {
		case err == nil || apierrors.IsNotFound(err):
			evicted++
		case apierrors.IsTooManyRequests(err) || errors.As(err, &status) && status.Status().Code == http.StatusTooManyRequests:
			kept++
		default:
			return "", fmt.Errorf("kubernetes: evict %s/%s: %w", pod.GetNamespace(), pod.GetName(), err)
		}
	}
	if kept > 0 {
		return "", fmt.Errorf("kubernetes: %d pods evicted, %d are kept by a disruption budget", evicted, kept)
	}
	return fmt.Sprintf("%d pods evicted, %d left (of daemons, static or done)", evicted, stay), nil
}

// evictable says whether a pod is work that can go elsewhere.
func evictable(pod *unstructured.Unstructured) bool {
	if pod.GetDeletionTimestamp() != nil || pod.GetAnnotations()["kubernetes.io/config.mirror"] != "" {
		return false
	}
	if phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase"); phase == "Succeeded" || phase == "Failed" {
		return false
	}
	return !slices.ContainsFunc(pod.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.Kind == "DaemonSet" })
}

func taintsOf(n *unstructured.Unstructured) []any {
	taints, _, _ := unstructured.NestedSlice(n.Object, "spec", "taints")
	return taints
}

func ourTaint(t any) bool {
	m, _ := t.(map[string]any)
	return m["key"] == KubeTaint
}

// leaseGrace is how long a kubelet's lease must stand still to tell of a dead
// node: its duration is 40 s, and it is renewed every 10 s.
const leaseGrace = 40 * time.Second

var kubeLeases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}

// renewal is a time that a kubelet wrote into its lease, and since when we see it.
type renewal struct {
	text  string
	since time.Time
	moved bool // it was another one before
}

// Witness implements Witness: the kubelet's own lease. Only whether it moves
// counts, on our clock, never the time that it holds: clocks of nodes are wrong.
func (k *kubernetes) Witness(ctx context.Context, node string) (ledger.Witness, string) {
	l, err := k.client.Resource(kubeLeases).Namespace("kube-node-lease").Get(ctx, node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return ledger.WitnessSilent, "Kubernetes holds no lease of it"
	case err != nil:
		return ledger.WitnessSilent, err.Error()
	}
	text, _, _ := unstructured.NestedString(l.Object, "spec", "renewTime")
	return k.moves(node, text, time.Now())
}

// moves judges a lease that holds the time text now.
func (k *kubernetes) moves(node, text string, now time.Time) (ledger.Witness, string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, r := range k.seen { // those that nobody asks about any more
		if now.Sub(r.since) > time.Hour {
			delete(k.seen, id)
		}
	}
	r, known := k.seen[node]
	if !known || r.text != text {
		r = renewal{text: text, since: now, moved: known}
		k.seen[node] = r
	}
	switch age := now.Sub(r.since); {
	case age >= leaseGrace:
		return ledger.WitnessDead, fmt.Sprintf("its kubelet has not renewed its lease for %s either", age.Round(time.Second))
	case r.moved:
		return ledger.WitnessAlive, "its kubelet renews its lease"
	}
	return ledger.WitnessSilent, "its kubelet's lease is watched"
}

// Close implements Target.
func (k *kubernetes) Close() error { return nil }
