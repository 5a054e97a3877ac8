// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"net"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// lateRelay passes datagrams to a controller at once and its answers back after
// a delay; asked counts the former.
func lateRelay(t *testing.T, to string) (address string, delay, asked *atomic.Int64) {
	t.Helper()
	front, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	back, err := net.Dial("udp", to)
	if err != nil {
		t.Fatal(err)
	}
	var asker atomic.Value
	delay, asked = new(atomic.Int64), new(atomic.Int64)
	done := make(chan struct{}, 2)
	go func() {
		defer func() { done <- struct{}{} }()
		buf := make([]byte, 2048)
		for {
			n, from, err := front.ReadFrom(buf)
			if err != nil {
				return
			}
			asker.Store(from)
			asked.Add(1)
			_, _ = back.Write(buf[:n]) // lost, as datagrams are
		}
	}()
	go func() {
		defer func() { done <- struct{}{} }()
		buf := make([]byte, 2048)
		for {
			n, err := back.Read(buf)
			if opErr, ok := err.(*net.OpError); ok && opErr.Temporary() || err != nil && strings.Contains(err.Error(), "refused") {
				continue // the simulator does not listen yet
			}
			if err != nil {
				return
			}
			answer := append([]byte(nil), buf[:n]...)
			time.AfterFunc(time.Duration(delay.Load()), func() { _, _ = front.WriteTo(answer, asker.Load().(net.Addr)) })
		}
	}()
	t.Cleanup(func() {
		_ = front.Close()
		_ = back.Close()
		<-done
		<-done
	})
	return front.LocalAddr().String(), delay, asked
}

// TestIPMISlow: a controller that takes a while for each answer is waited for,
// one that answers after the deadline has failed by then, and both are no matter
// to the device beside it, which is read on.
func TestIPMISlow(t *testing.T) {
	entry, _ := ipmiSim(t)
	text := entry("")
	to := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(text)
	address, delay, asked := lateRelay(t, to)
	delay.Store(int64(50 * time.Millisecond))
	b := newBench(t)
	var reads atomic.Int64
	b.onRead("good", func(context.Context) ([]Reading, error) {
		return []Reading{{Quantity: "power", Value: float64(reads.Add(1))}}, nil
	})
	text = strings.Replace(strings.Replace(text, to, address, 1), "deadline: 2s", "interval: 5s\n  deadline: 5s", 1) +
		"- {device: r01-a, driver: scripted, profile: " + t.Name() + ", address: good, interval: 100ms, deadline: 100ms}\n"
	store, stop := runText(t, text)
	defer stop()
	wait := func(what string, within time.Duration, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(within); !ok(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: not within %s:\n%s", what, within, page(t, store))
			}
		}
	}
	shows := func(line string, within time.Duration) {
		t.Helper()
		wait(line, within, func() bool { return strings.Contains(page(t, store), line) })
	}
	shows(`rack_inlet_temperature_celsius{position="top",sensor="r01-in-top",rack_id="r01"} 24.5`, time.Minute)
	delay.Store(int64(50 * time.Second))
	before := asked.Load()
	wait("the next read", time.Minute, func() bool { return asked.Load() > before })
	others := reads.Load()
	shows(`facility_device_up{device="r01-in-top",driver="ipmi",position="top",sensor="r01-in-top",rack_id="r01"} 0`, 30*time.Second)
	// One command is given up after a sixth of the deadline, twice: 1.7 s, in which
	// 16 reads of the other device are due. A busy machine may leave out most.
	if n := reads.Load() - others; n < 3 {
		t.Errorf("%d reads of the other device while the controller was waited for", n)
	}
}
