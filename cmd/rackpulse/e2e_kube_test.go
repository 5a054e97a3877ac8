// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gopkg.in/yaml.v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/rackpulse/rackpulse/testtool"
)

// kubeLab is a real kube-apiserver with its etcd; no kubelet, no controllers.
type kubeLab struct {
	t      *testing.T
	dir    string
	port   string
	args   []string
	api    *process
	admin  dynamic.Interface
	config string // kubeconfig of the registry's service account
}

func startKube(t *testing.T) *kubeLab {
	t.Helper()
	k := &kubeLab{t: t, dir: t.TempDir()}
	bin := func(dir, name string) string {
		return testtool.Binary(t, filepath.Join(testtool.CacheDir(), dir, name))
	}
	apiserver := bin("kubernetes-v1.37.2", "kube-apiserver")
	client, peer := "http://"+freePort(t), "http://"+freePort(t)
	start(t, k.dir, "etcd", bin("etcd-v3.7.3", "server"), "--data-dir=etcd", "--listen-client-urls="+client, "--advertise-client-urls="+client, "--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"sa.key":     string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
		"tokens.csv": "admintoken,admin,1,system:masters\nregtoken,system:serviceaccount:rackpulse:rackpulse-registry,2\n",
	} {
		if err := os.WriteFile(filepath.Join(k.dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, k.port, _ = net.SplitHostPort(freePort(t))
	k.args = []string{"--etcd-servers=" + client, "--service-account-issuer=https://127.0.0.1", "--service-account-signing-key-file=sa.key",
		"--service-account-key-file=sa.key", "--authorization-mode=RBAC", "--token-auth-file=tokens.csv", "--secure-port=" + k.port, "--bind-address=127.0.0.1",
		"--cert-dir=certs", "--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount"}
	k.api = start(t, k.dir, "kube-apiserver", apiserver, k.args...)
	k.admin, err = dynamic.NewForConfig(&rest.Config{Host: "https://127.0.0.1:" + k.port, BearerToken: "admintoken", TLSClientConfig: rest.TLSClientConfig{Insecure: true}, QPS: 100, Burst: 100})
	if err != nil {
		t.Fatal(err)
	}
	k.config = filepath.Join(k.dir, "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: 'https://127.0.0.1:%s', insecure-skip-tls-verify: true}}]\n"+
		"users: [{name: u, user: {token: regtoken}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n", k.port)
	if err := os.WriteFile(k.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	k.await(2*time.Minute, "the API serves", func(ctx context.Context) error {
		_, err := k.admin.Resource(resource("", "v1", "namespaces")).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return k
}

func resource(group, version, name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: name}
}

func (k *kubeLab) await(limit time.Duration, what string, check func(context.Context) error) {
	k.t.Helper()
	(&stack{t: k.t}).eventually(limit, what, func() error {
		ctx, cancel := context.WithTimeout(k.t.Context(), 10*time.Second)
		defer cancel()
		return check(ctx)
	})
}

// apply makes the objects of a YAML text.
func (k *kubeLab) apply(text string) {
	k.t.Helper()
	dec := yaml.NewDecoder(strings.NewReader(text))
	for {
		var object map[string]any
		err := dec.Decode(&object)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			k.t.Fatal(err)
		}
		data, _ := json.Marshal(object)
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(data); err != nil {
			k.t.Fatal(err)
		}
		gvk := u.GroupVersionKind()
		kind := strings.ToLower(gvk.Kind) + "s"
		r := k.admin.Resource(resource(gvk.Group, gvk.Version, kind))
		k.await(30*time.Second, "object "+u.GetName()+" is taken", func(ctx context.Context) error {
			var err error
			if u.GetNamespace() == "" {
				_, err = r.Create(ctx, u, metav1.CreateOptions{})
			} else {
				_, err = r.Namespace(u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{})
			}
			if err != nil && strings.Contains(err.Error(), "already exists") {
				return nil
			}
			return err
		})
	}
}

// status sets a part of an object's status.
func (k *kubeLab) status(r schema.GroupVersionResource, name, status string) {
	k.t.Helper()
	_, err := k.admin.Resource(r).Namespace("default").Patch(k.t.Context(), name, types.MergePatchType, []byte(`{"status":`+status+`}`), metav1.PatchOptions{}, "status")
	if err != nil {
		k.t.Fatal(err)
	}
}

// looks waits until a node's JSON holds, or does not hold, texts.
func (k *kubeLab) looks(node string, limit time.Duration, has []string, not ...string) {
	k.t.Helper()
	k.await(limit, fmt.Sprintf("node %s has %q and not %q", node, has, not), func(ctx context.Context) error {
		n, err := k.admin.Resource(resource("", "v1", "nodes")).Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		n.SetManagedFields(nil)
		data, _ := n.MarshalJSON()
		for _, text := range not {
			if bytes.Contains(data, []byte(text)) {
				return fmt.Errorf("%s", data)
			}
		}
		if !holdsAll(string(data), has) {
			return fmt.Errorf("%s", data)
		}
		return nil
	})
}

// evicted waits until a pod is being deleted, or is not for a while.
func (k *kubeLab) evicted(pod string) bool {
	k.t.Helper()
	p, err := k.admin.Resource(resource("", "v1", "pods")).Namespace("default").Get(k.t.Context(), pod, metav1.GetOptions{})
	return err != nil && strings.Contains(err.Error(), "not found") || err == nil && p.GetDeletionTimestamp() != nil
}

const kubeObjects = `
{apiVersion: v1, kind: Node, metadata: {name: gpu001}, spec: {taints: [{key: others/own, effect: NoSchedule}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: cpu001}, spec: {unschedulable: true}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: default, labels: {app: web}}, spec: {nodeName: gpu001, containers: [{name: c, image: i}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: train, namespace: default}, spec: {nodeName: gpu001, containers: [{name: c, image: i}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: agent, namespace: default, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: d, uid: u}]}, spec: {nodeName: gpu001, containers: [{name: c, image: i}]}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web, namespace: default}, spec: {minAvailable: 1, selector: {matchLabels: {app: web}}}}
`

// TestE2EKubernetes lets nodes of a real API die and come back, in mode hard with
// no witness, with the rights of deploy/kubernetes/rbac.yml only, while somebody
// else writes the nodes and the API server is started again in between.
func TestE2EKubernetes(t *testing.T) {
	t.Parallel()
	k := startKube(t)
	rbac, err := os.ReadFile(filepath.Join(testtool.Root(), "deploy", "kubernetes", "rbac.yml"))
	if err != nil {
		t.Fatal(err)
	}
	k.apply("{apiVersion: v1, kind: Namespace, metadata: {name: kube-node-lease}}")
	k.apply(string(rbac))
	k.apply(kubeObjects)
	for _, pod := range []string{"web", "train", "agent"} {
		k.status(resource("", "v1", "pods"), pod, `{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}`)
	}
	s := newSmall(t, "lease: {beat_interval: 1s, ttl: 8s, cooldown: 6s}\nactions: {mode: hard, witness: none, targets: [{action: kubernetes, kubeconfig: "+k.config+"}]}\n")
	c := newCrew(s, "gpu001", "gpu002", "pair1", "cpu001", "cpu002")
	for n := range c.stop {
		s.awaitState(n, "READY", 30*time.Second)
	}
	// Somebody writes the node all the time, so that writes collide.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	busy := make(chan struct{})
	go func() {
		defer close(busy)
		for i := 0; ctx.Err() == nil; i++ {
			_, _ = k.admin.Resource(resource("", "v1", "nodes")).Patch(ctx, "gpu001", types.MergePatchType,
				[]byte(fmt.Sprintf(`{"metadata":{"annotations":{"others/counter":"%d"}}}`, i)), metav1.PatchOptions{})
			time.Sleep(5 * time.Millisecond)
		}
	}()
	c.kill("gpu001")
	k.looks("gpu001", 15*time.Second, []string{"rackpulse.io/unhealthy", "others/own", `"type":"RackPulseHealthy"`, "rackpulse.io/mark"}, `"unschedulable":true`)
	// The lease expires: the node is cordoned, its pods are evicted but the one
	// that its budget keeps, and the daemon's.
	k.looks("gpu001", 20*time.Second, []string{`"unschedulable":true`, "rackpulse.io/cordoned"})
	s.eventually(20*time.Second, "train is evicted", func() error {
		if !k.evicted("train") {
			return errors.New("it is not")
		}
		return nil
	})
	s.eventually(15*time.Second, "the budget is told", func() error {
		if out := s.cli("audit", "gpu001"); !strings.Contains(out, "kept by a disruption budget") {
			return errors.New(out)
		}
		return nil
	})
	if k.evicted("web") || k.evicted("agent") {
		t.Error("a pod was evicted that must stay")
	}
	stop()
	<-busy
	k.api.end() // and is started again, with a budget that has room now
	k.api = start(t, k.dir, "kube-apiserver", testtool.Binary(t, filepath.Join(testtool.CacheDir(), "kubernetes-v1.37.2", "kube-apiserver")), k.args...)
	k.await(2*time.Minute, "the API serves again", func(ctx context.Context) error {
		_, err := k.admin.Resource(resource("", "v1", "nodes")).Get(ctx, "gpu001", metav1.GetOptions{})
		return err
	})
	k.status(resource("policy", "v1", "poddisruptionbudgets"), "web", `{"observedGeneration":1,"disruptionsAllowed":1,"currentHealthy":2,"desiredHealthy":1,"expectedPods":2}`)
	s.eventually(90*time.Second, "web is evicted", func() error {
		if !k.evicted("web") {
			return errors.New(s.cli("outbox"))
		}
		return nil
	})
	// A node that others cordoned dies, too; both come back.
	c.kill("cpu001")
	k.looks("cpu001", 20*time.Second, []string{"rackpulse.io/unhealthy", `"unschedulable":true`}, "rackpulse.io/cordoned")
	s.awaitState("cpu001", "EXPIRED", 20*time.Second)
	c.start("cpu001")
	c.start("gpu001")
	k.looks("gpu001", 60*time.Second, []string{"others/own", "no mark of rackpulse is on the node"}, "rackpulse.io/unhealthy", `"unschedulable":true`, "rackpulse.io/mark", "rackpulse.io/cordoned")
	k.looks("cpu001", 60*time.Second, []string{`"unschedulable":true`, "no mark of rackpulse"}, "rackpulse.io/unhealthy")
	if k.evicted("agent") {
		t.Error("the daemon's pod was evicted")
	}
	k.looks("gpu001", 100*time.Second, []string{`"rackpulse.io/health":"ready"`, `"rackpulse.io/rack":"r01"`})
	t.Logf("audit:\n%s", s.cli("audit", "gpu001"))
	k.api.signal(syscall.SIGTERM)
}
