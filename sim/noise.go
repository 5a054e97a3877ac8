// SPDX-License-Identifier: Apache-2.0

package sim

import "math"

// mix is the finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection that
// turns neighbouring inputs into unrelated outputs.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hashName returns the random stream of a named entity (FNV-1a, then mixed), so
// that adding one entity to a site does not change the others.
func hashName(seed int64, name string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(name); i++ {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return mix(h ^ mix(uint64(seed)))
}

// uniform returns draw k of a stream, in [0, 1).
func uniform(stream uint64, k int64) float64 {
	return float64(mix(stream^mix(uint64(k)))>>11) / (1 << 53)
}

// between returns draw k of a stream, in [lo, hi).
func between(stream uint64, k int64, lo, hi float64) float64 {
	return lo + (hi-lo)*uniform(stream, k)
}

// noise returns a near-normal value of unit variance: the sum of four uniform
// 16-bit pieces of one draw. It depends on stream and step only, never on how
// often or in which order it is asked for.
func noise(stream uint64, step int64) float64 {
	x := mix(stream ^ uint64(step)*0xd1342543de82ef95)
	sum := float64(x&0xffff) + float64(x>>16&0xffff) + float64(x>>32&0xffff) + float64(x>>48)
	return (sum/65536 - 2) * math.Sqrt(3) // four pieces: variance 4/12
}
