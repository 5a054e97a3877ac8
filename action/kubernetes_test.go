// SPDX-License-Identifier: Apache-2.0

package action

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rackpulse/rackpulse/ledger"
)

// TestKubeLease: only whether a lease moves counts, not the time that it holds.
func TestKubeLease(t *testing.T) {
	k := &kubernetes{seen: map[string]renewal{}}
	now := time.Now()
	for i, step := range []struct {
		after time.Duration
		text  string
		want  ledger.Witness
	}{
		{0, "2001-01-01T00:00:00Z", ledger.WitnessSilent},
		{10 * time.Second, "2001-01-01T00:00:10Z", ledger.WitnessAlive}, // a clock that is 25 years off
		{39 * time.Second, "2001-01-01T00:00:10Z", ledger.WitnessAlive},
		{time.Second, "2001-01-01T00:00:10Z", ledger.WitnessDead},
		{5 * time.Minute, "2001-01-01T00:00:10Z", ledger.WitnessDead},
		{time.Second, "1999-01-01T00:00:00Z", ledger.WitnessAlive}, // its clock was set back
	} {
		now = now.Add(step.after)
		if got, words := k.moves("gpu001", step.text, now); got != step.want {
			t.Errorf("step %d: %d %q, want %d", i, got, words, step.want)
		}
	}
	k.moves("gpu002", "x", now.Add(2*time.Hour))
	if len(k.seen) != 1 {
		t.Errorf("%d leases are remembered", len(k.seen))
	}
}

func TestEvictable(t *testing.T) {
	pod := func(change func(*unstructured.Unstructured)) *unstructured.Unstructured {
		p := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"phase": "Running"}}}
		change(p)
		return p
	}
	for name, tc := range map[string]struct {
		pod  *unstructured.Unstructured
		want bool
	}{
		"job": {pod(func(p *unstructured.Unstructured) {
			p.SetOwnerReferences([]metav1.OwnerReference{{Kind: "Job"}})
		}), true},
		"daemon": {pod(func(p *unstructured.Unstructured) {
			p.SetOwnerReferences([]metav1.OwnerReference{{Kind: "DaemonSet"}})
		}), false},
		"static": {pod(func(p *unstructured.Unstructured) {
			p.SetAnnotations(map[string]string{"kubernetes.io/config.mirror": "1"})
		}), false},
		"done": {pod(func(p *unstructured.Unstructured) {
			p.Object["status"] = map[string]any{"phase": "Succeeded"}
		}), false},
		"leaving": {pod(func(p *unstructured.Unstructured) {
			now := metav1.Now()
			p.SetDeletionTimestamp(&now)
		}), false},
	} {
		if got := evictable(tc.pod); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestKubernetesRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "bad"), []byte("kind: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for text, want := range map[string]string{
		"{action: kubernetes, kubeconfig: none}": "kubeconfig",
		"{action: kubernetes, kubeconfig: bad}":  "kubeconfig",
		"{action: kubernetes}":                   "kubeconfig",
	} {
		if _, err := Open(parts(t, "targets: ["+text+"]"), deps(dir)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
