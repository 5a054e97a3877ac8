// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/site"
)

func bigHall(tb testing.TB) *Hall {
	tb.Helper()
	s, err := site.Hall(64, 8, 8)
	if err != nil {
		tb.Fatal(err)
	}
	h, err := New(Spec{Site: s, Seed: 1, Epoch: epoch})
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

// BenchmarkSecond is one simulated second of 4,096 GPUs with its State.
func BenchmarkSecond(b *testing.B) {
	h := bigHall(b)
	b.ReportAllocs()
	for i := 1; b.Loop(); i++ {
		h.At(epoch.Add(time.Duration(i) * time.Second))
	}
}

// BenchmarkJump is an hour's jump of 4,096 GPUs.
func BenchmarkJump(b *testing.B) {
	h := bigHall(b)
	for i := 1; b.Loop(); i++ {
		h.At(epoch.Add(time.Duration(i) * time.Hour))
	}
}
