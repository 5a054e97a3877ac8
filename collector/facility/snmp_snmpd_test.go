// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/testtool"
)

const (
	authSecret    = "authentication passphrase"
	privacySecret = "privacy passphrase"
)

// snmpd is net-snmp's agent on this machine.
type snmpd struct {
	t       testing.TB
	program string
	dir     string
	port    int
	cmd     *exec.Cmd
}

// startSNMPD starts an agent with a community and users of all kinds.
func startSNMPD(t testing.TB) *snmpd {
	t.Helper()
	s := &snmpd{t: t, program: testtool.Binary(t, "snmpd"), dir: t.TempDir()}
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(conn.LocalAddr().String())
	s.port, _ = strconv.Atoi(port)
	conn.Close()
	conf := "rocommunity public 127.0.0.1\n"
	for user, kind := range snmpdUsers {
		conf += "createUser " + user
		switch auth, privacy, _ := strings.Cut(kind, " "); {
		case privacy != "":
			conf += fmt.Sprintf(" %s %q %s %q\nrouser %s priv\n", auth, authSecret, privacy, privacySecret, user)
		case auth != "":
			conf += fmt.Sprintf(" %s %q\nrouser %s auth\n", auth, authSecret, user)
		default:
			conf += "\nrouser " + user + " noauth\n"
		}
	}
	for file, text := range map[string]string{"snmpd.conf": conf, "auth": authSecret, "privacy": privacySecret} {
		if err := os.WriteFile(filepath.Join(s.dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.start()
	t.Cleanup(s.stop)
	return s
}

// snmpdUsers are user -> protocols of authentication and privacy.
var snmpdUsers = map[string]string{
	"nobody": "", "md5": "MD5", "sha": "SHA", "md5des": "MD5 DES", "shaaes": "SHA AES", "sha256aes": "SHA-256 AES", "sha512aes256": "SHA-512 AES-256",
}

func (s *snmpd) start() {
	s.t.Helper()
	s.cmd = exec.Command(s.program, "-f", "-Lf", filepath.Join(s.dir, "log"), "-C", "-c", filepath.Join(s.dir, "snmpd.conf"),
		"-p", filepath.Join(s.dir, "pid"), "-I", "-smux", fmt.Sprintf("udp:127.0.0.1:%d", s.port))
	s.cmd.Env = []string{"SNMP_PERSISTENT_DIR=" + s.dir + "/state", "MIBS="}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *snmpd) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// open opens the agent as a switch.
func (s *snmpd) open(snmp string) *snmpDriver {
	s.t.Helper()
	snmp = strings.ReplaceAll(snmp, "DIR", s.dir)
	d, ok := openOf(s.t, fmt.Sprintf("facility: [{device: tor1, driver: snmp, profile: if-mib, address: '127.0.0.1:%d', snmp: {%s}}]", s.port, snmp)).(*snmpDriver)
	if !ok {
		s.t.Fatal("another driver")
	}
	return d
}

// read reads until the agent answers.
func (s *snmpd) read(d *snmpDriver) []Reading {
	s.t.Helper()
	var err error
	var list []Reading
	for range 50 {
		ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
		list, err = d.Read(ctx)
		cancel()
		if err == nil {
			return list
		}
		time.Sleep(100 * time.Millisecond)
	}
	log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	s.t.Fatalf("%v\n%s", err, log)
	return nil
}

// TestSNMPD reads a real agent by all kinds of security and compares it with
// what the kernel says of its interfaces.
func TestSNMPD(t *testing.T) {
	s := startSNMPD(t)
	community := "community_file: " + communityFile(t)
	for _, c := range []struct{ name, snmp string }{
		{"v2c", community},
		{"v1", "version: 1, " + community},
		{"v3 without security", "version: 3, user: nobody"},
		{"v3 md5", "version: 3, user: md5, auth: md5, auth_file: DIR/auth"},
		{"v3 sha", "version: 3, user: sha, auth_file: DIR/auth"},
		{"v3 md5 des", "version: 3, user: md5des, auth: md5, auth_file: DIR/auth, privacy: des, privacy_file: DIR/privacy"},
		{"v3 sha aes", "version: 3, user: shaaes, auth_file: DIR/auth, privacy_file: DIR/privacy"},
		{"v3 sha256 aes", "version: 3, user: sha256aes, auth: sha256, auth_file: DIR/auth, privacy: aes, privacy_file: DIR/privacy"},
		{"v3 sha512 aes256", "version: 3, user: sha512aes256, auth: sha512, auth_file: DIR/auth, privacy: aes256c, privacy_file: DIR/privacy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkPorts(t, s.read(s.open(c.snmp)), c.name == "v1")
		})
	}
	wrong := s.open("version: 3, user: sha, auth_file: DIR/privacy")
	_, err := wrong.Read(t.Context())
	wantErr(t, err, "auth_file is wrong", fmt.Sprint(s.port))
	unknown := s.open("version: 3, user: stranger, auth_file: DIR/auth")
	_, err = unknown.Read(t.Context())
	wantErr(t, err, "user, auth or the passphrase")
}

// TestSNMPDRestart: the agent is killed between two reads and comes back; with
// version 3 its clock then starts anew.
func TestSNMPDRestart(t *testing.T) {
	s := startSNMPD(t)
	d := s.open("version: 3, user: shaaes, auth_file: DIR/auth, privacy_file: DIR/privacy, timeout: 500ms")
	s.read(d)
	s.stop()
	if _, err := d.Read(t.Context()); err == nil {
		t.Error("a dead agent was read")
	}
	s.start()
	checkPorts(t, s.read(d), false)
}

// checkPorts compares the ports with /sys/class/net. Version 1 has no 64-bit
// counters.
func checkPorts(t *testing.T, list []Reading, v1 bool) {
	t.Helper()
	found := 0
	names, err := filepath.Glob("/sys/class/net/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range names {
		sys := func(file string) string {
			data, _ := os.ReadFile(filepath.Join(dir, file))
			return strings.TrimSpace(string(data))
		}
		name := filepath.Base(dir)
		up, there := valueOf(t, list, "port_up", name)
		if there != (sys("type") == "1") { // ARPHRD_ETHER
			t.Errorf("port %s is there: %v, its type is %s", name, there, sys("type"))
		}
		if !there {
			continue
		}
		found++
		if state := sys("operstate"); state == "up" && up != 1 || state == "down" && up != 0 {
			t.Errorf("port %s is %v, the kernel says %s", name, up, state)
		}
		kernel, _ := strconv.ParseFloat(sys("statistics/rx_bytes"), 64)
		if bytes, there := valueOf(t, list, "port_receive_bytes", name); !v1 && (!there || bytes > kernel || bytes < kernel*0.9-1e6) {
			t.Errorf("port %s has received %v bytes (there: %v), the kernel says %v", name, bytes, there, kernel)
		}
	}
	if found == 0 {
		testtool.Missing(t, "this machine has no Ethernet interface to compare with")
	}
}
