// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reader may read what explain --job asks for, and nothing else.
const reader = `
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: explain}, rules: [{apiGroups: [""], resources: [pods, events], verbs: [get, list]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: explain}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: explain}, subjects: [{kind: User, name: "system:serviceaccount:rackpulse:rackpulse-registry", apiGroup: rbac.authorization.k8s.io}]}
---
{apiVersion: v1, kind: Pod, metadata: {name: train-0, namespace: default, labels: {job-name: train}}, spec: {nodeName: gpu001, containers: [{name: c, image: i}]}}
---
{apiVersion: v1, kind: Event, metadata: {name: e1, namespace: default}, involvedObject: {kind: Pod, name: train-0, namespace: default}, reason: NodeNotReady, type: Warning, message: Node is not ready, source: {component: kubelet, host: gpu001}, lastTimestamp: "%[1]s"}
`

// TestE2EJobPod asks a real API server for a pod whose node lost a GPU: by the
// pod, by its Job, and by its events once the pod is gone.
func TestE2EJobPod(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hall := startHall(t, dir, "gpu-lost", "600")
	k := startKube(t)
	s := &stack{t: t}
	s.eventually(2*time.Minute, "the lost GPU is seen", func() error {
		if code, out := askWhy(t, nil, "--node=gpu001", "--brief", "--prometheus.url="+hall); code != 0 {
			return fmt.Errorf("exit status %d: %s", code, out)
		}
		return nil
	})
	now := time.Now().UTC().Truncate(time.Second)
	k.apply(fmt.Sprintf(reader, now.Format(time.RFC3339)))
	k.status(resource("", "v1", "pods"), "train-0", fmt.Sprintf(`{"phase":"Failed","startTime":"%s","containerStatuses":[{"name":"c","image":"i","imageID":"i","ready":false,"restartCount":0,"state":{"terminated":{"exitCode":137,"reason":"Error","finishedAt":"%s"}}}]}`,
		now.Add(-time.Hour).Format(time.RFC3339), now.Format(time.RFC3339)))
	ask := func(pod string, code int, want ...string) {
		t.Helper()
		got, out := askWhy(t, nil, "--job="+pod, "--prometheus.url="+hall, "--kubeconfig="+k.config)
		if got != code || !holdsAll(out, want) {
			t.Errorf("%s: exit status %d, want %d with %q:\n%s", pod, got, code, want, out)
		}
	}
	ask("default/train-0", 0, "CAUSE: GPU 0 of gpu001", "job default/train-0 (Failed) ended "+now.Format("15:04:05")+" on gpu001", "container c: Error, exit code 137", "NodeNotReady: Node is not ready")
	ask("default/train", 0, "CAUSE: GPU 0 of gpu001", "exit code 137")
	ask("default/other", 3, "no such job")
	ask("kube-system/Bad_Name", 3, "want namespace/pod")
	grace := int64(0)
	if err := k.admin.Resource(resource("", "v1", "pods")).Namespace("default").Delete(t.Context(), "train-0", metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		t.Fatal(err)
	}
	ask("default/train-0", 0, "CAUSE: GPU 0 of gpu001", "(NodeNotReady)")
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte(strings.Repeat("x: [", 10)), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := askWhy(t, nil, "--job=default/train-0", "--prometheus.url="+hall, "--kubeconfig="+bad); code != 3 || !strings.Contains(out, "kubeconfig") {
		t.Errorf("a bad kubeconfig: exit status %d: %s", code, out)
	}
}
