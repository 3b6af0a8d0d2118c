package main

import (
	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"strings"
)

const byOuterProducts = "outer products of columns and rows"

var dimensions = []int{16, 32, 64, 128}

// Products of two encrypted matrices, as `hushed-bench matmul` has them: all levels if the text names one, and otherwise
// the same two.
func matmul(only string) {
	for _, d := range dimensions {
		for level := 2; level <= 17; level++ {
			about := fields{"dimension": d, "level": level, "method": byOuterProducts}
			usual := level == 2 || level == 13
			if wants(about, only) && (usual || strings.Contains(only, "level")) {
				forgetPeak()
				outerProducts(d, level, about)
			}
		}
	}
}

// A·B = Σ_j A[:, j] ⊗ B[j, :] of d × d matrices, row by row in the first d² slots: each column and row is cut out by a
// mask, moved to the front and copied by rotations (baselines/matmul.rs of hushed-bench). Masks are encoded at every call,
// as there.
func outerProducts(d, level int, about fields) {
	// Key switches are of what the first rescale leaves.
	params := chain(level, specials(level))
	turns := []int{}
	for j := 1; j < d; j++ {
		turns = append(turns, j, d*j)
	}
	for by := 1; by < d; by *= 2 {
		turns = append(turns, -by, -d*by)
	}
	s := newSession(params, level-1, params.GaloisElements(turns), true)
	slots := params.MaxSlots()
	a, b := random(slots), random(slots)
	x, y := s.encrypt(a, level), s.encrypt(b, level)
	var out *rlwe.Ciphertext
	var rotations int
	rotate := func(ct *rlwe.Ciphertext, by int) *rlwe.Ciphertext {
		if by == 0 {
			return ct
		}
		rotations++
		turned, err := s.ev.RotateNew(ct, by)
		must(err)
		return turned
	}
	// The numbers of some slots, moved to the front, and copies of them further on.
	spread := func(ct *rlwe.Ciphertext, keep func(slot int) bool, front, step int) *rlwe.Ciphertext {
		mask := make([]float64, slots)
		for slot := 0; slot < d*d; slot++ {
			if keep(slot) {
				mask[slot] = 1
			}
		}
		cut, err := s.ev.MulNew(ct, s.factor(mask, level))
		must(err)
		must(s.ev.Rescale(cut, cut))
		cut = rotate(cut, front)
		for by := 1; by < d; by *= 2 {
			must(s.ev.Add(cut, rotate(cut, -by*step), cut))
		}
		return cut
	}
	seconds, runs := measure(func() {
		out, rotations = nil, 0
		for j := 0; j < d; j++ {
			column := spread(x, func(slot int) bool { return slot%d == j }, j, 1)
			row := spread(y, func(slot int) bool { return slot/d == j }, d*j, d)
			product, err := s.ev.MulRelinNew(column, row)
			must(err)
			if out == nil {
				out = product
			} else {
				must(s.ev.Add(out, product, out))
			}
		}
		must(s.ev.Rescale(out, out))
	})
	want := make([]complex128, d*d)
	for slot := range want {
		for k := 0; k < d; k++ {
			want[slot] += a[slot/d*d+k] * b[k*d+slot%d]
		}
	}
	worst, mean := errors(params, s.ecd, s.dec, want, sameSlot, out)
	for k, v := range describe(params) {
		about[k] = v
	}
	print(fields{
		"name": "matmul", "params": about, "level": level, "levels_used": level - out.Level(), "seconds": seconds, "runs": runs,
		"rotations": rotations, "relinearisations": d, "key_bytes": s.keys.BinarySize(),
		"precision_bits_min": worst, "precision_bits_mean": mean,
	})
}
