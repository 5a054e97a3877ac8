// SPDX-License-Identifier: Apache-2.0

package testtool

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// etcdStart is how long an etcd may take to answer.
const etcdStart = 30 * time.Second

// EtcdProgram is the path of etcd's server, as Binary.
func EtcdProgram(t testing.TB) string {
	t.Helper()
	return Binary(t, filepath.Join(CacheDir(), "etcd-v3.7.3", "server"))
}

// StartEtcd starts a real etcd in a folder and returns it with its URL once it
// answers. scheme is http or https; flags are those for https. Who calls it ends
// the process.
func StartEtcd(program, dir, scheme string, flags ...string) (*exec.Cmd, string, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, "", err
	}
	client, peer, health := scheme+"://"+ports[0], "http://"+ports[1], "http://"+ports[2]
	args := append([]string{"--data-dir=data", "--listen-client-urls=" + client, "--advertise-client-urls=" + client, "--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer, "--listen-metrics-urls=" + health, "--unsafe-no-fsync", "--log-level=error"}, flags...)
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	return cmd, client, startAnswering(cmd, health+"/health")
}

// freePorts returns addresses of this machine that nobody listens on.
func freePorts(n int) ([]string, error) {
	out := make([]string, n)
	for i := range out {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer ln.Close() // all at once, so that they differ
		out[i] = ln.Addr().String()
	}
	return out, nil
}

// startAnswering starts a command and waits until a page of it is there.
func startAnswering(cmd *exec.Cmd, url string) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(etcdStart); ; <-tick.C {
		resp, err := http.Get(url)
		if err == nil {
			_ = resp.Body.Close() // only the status counts
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed
			return fmt.Errorf("%s does not answer: %w", url, err)
		}
	}
}
