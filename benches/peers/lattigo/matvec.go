package main

import (
	common "github.com/tuneinsight/lattigo/v6/circuits/common/lintrans"

	"github.com/tuneinsight/lattigo/v6/circuits/ckks/lintrans"
	"github.com/tuneinsight/lattigo/v6/core/rlwe"
)

// The first maps of feed-forward blocks, as `hushed-bench matvec` has them: inputs and outputs.
var wide = [][2]int{{768, 3072}, {3072, 8192}, {4096, 14336}}

const (
	// The levels that packed rows use up; both methods start at this level.
	wideLevel   = 2
	wideBySteps = "baby-step giant-step, double hoisted"
	wideByRows  = "packed rows"
)

func matvec(only string) {
	for _, shape := range wide {
		for _, method := range []string{wideBySteps, wideByRows} {
			about := fields{"inputs": shape[0], "outputs": shape[1], "method": method}
			if wants(about, only) {
				forgetPeak()
				if method == wideBySteps {
					matvecBySteps(shape[0], shape[1], about)
				} else {
					matvecByRows(shape[0], shape[1], about)
				}
			}
		}
	}
}

// The weights of ours: a public pattern within 1/16.
func weight(row, column int) float64 {
	return (float64((row*31+column*17)%1009)/1009 - 0.5) / 8
}

// The least power of two that is not below n.
func powerOfTwo(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

// matvecRow encrypts a random vector, with random numbers in the slots without a column, measures the map, which returns
// its rotations too, and compares all outputs with the product in float64.
func matvecRow(s *session, inputs, outputs int, column func(slot int) (int, bool), slot func(row int) int,
	apply func(*rlwe.Ciphertext) (*rlwe.Ciphertext, int), plaintexts, limbs int, about fields) {
	x := random(inputs)
	slots := random(s.params.MaxSlots())
	for i := range slots {
		if c, ok := column(i); ok {
			slots[i] = x[c]
		}
	}
	in := s.encrypt(slots, wideLevel)
	var out *rlwe.Ciphertext
	var rotations int
	seconds, runs := measure(func() { out, rotations = apply(in) })
	want := make([]complex128, outputs)
	for r := range want {
		for c := range x {
			want[r] += complex(weight(r, c), 0) * x[c]
		}
	}
	worst, mean := errors(s.params, s.ecd, s.dec, want, slot, out)
	for k, v := range describe(s.params) {
		about[k] = v
	}
	print(fields{
		"name": "matvec", "params": about, "level": wideLevel, "levels_used": wideLevel - out.Level(), "seconds": seconds,
		"runs": runs, "rotations": rotations, "plaintext_bytes": plaintexts * limbs * s.params.N() * 8,
		"key_bytes": s.keys.BinarySize(), "precision_bits_min": worst, "precision_bits_mean": mean,
	})
}

// The slots are cut into classes of `step` slots with a place for every output. Each adds up its share of an output's
// products, one column a diagonal, and the shares are summed by rotations: places.rs of hushed-bench, for a client that
// packs its input.
func matvecBySteps(inputs, outputs int, about fields) {
	params := chain(wideLevel, specials(wideLevel+1))
	slots := params.MaxSlots()
	step, period := powerOfTwo(outputs), powerOfTwo(inputs)
	classes := slots / step
	offsets := period / classes
	column := func(slot int) (int, bool) {
		c := (slot + slot/step*offsets) % period
		return c, c < inputs
	}
	diagonals := make(lintrans.Diagonals[float64])
	for j := 0; j < offsets; j++ {
		diagonals[j] = make([]float64, slots)
		for slot := range diagonals[j] {
			if c, ok := column((slot + j) % slots); ok && slot%step < outputs {
				diagonals[j][slot] = weight(slot%step, c)
			}
		}
	}
	// More baby steps for a giant one than elsewhere here: the smallest shape takes a quarter less time.
	lp := bySteps(params, diagonals.DiagonalsIndexList(), wideLevel, 3)
	lt := lintrans.NewTransformation(params, lp)
	elements := lintrans.GaloisElements(params, lp)
	folds := []int{}
	for by := step; by < slots; by *= 2 {
		folds = append(folds, by)
	}
	s := newSession(params, wideLevel, append(elements, params.GaloisElements(folds)...), false)
	must(lintrans.Encode(s.ecd, diagonals, lt))
	diagonals = nil
	_, giants, babies := common.LinearTransformation(lt).BSGSIndex()
	// Each has the rotation by 0, which costs nothing.
	rotations := len(giants) - 1 + len(babies) - 1 + len(folds)
	transforms := lintrans.NewEvaluator(s.ev)
	apply := func(x *rlwe.Ciphertext) (*rlwe.Ciphertext, int) {
		sum, err := transforms.EvaluateNew(x, lt)
		must(err)
		must(s.ev.Rescale(sum, sum))
		for _, by := range folds {
			turned, err := s.ev.RotateNew(sum, by)
			must(err)
			must(s.ev.Add(sum, turned, sum))
		}
		return sum, rotations
	}
	// Diagonals are multiplied before the division by the special primes.
	limbs := wideLevel + 1 + params.PCount()
	matvecRow(s, inputs, outputs, column, func(row int) int { return row }, apply, offsets, limbs, about)
}

// Rows side by side in plaintexts; each is summed by rotations, and the sums are masked and combined: `PackedRows` of
// hushed-bench.
func matvecByRows(inputs, outputs int, about fields) {
	// Rotations are of what the first rescale leaves.
	params := chain(wideLevel, specials(wideLevel))
	slots, columns := params.MaxSlots(), powerOfTwo(inputs)
	side := slots / columns
	turns := []int{-1}
	for by := 1; by < columns; by *= 2 {
		turns = append(turns, by)
	}
	s := newSession(params, wideLevel-1, params.GaloisElements(turns), false)
	rows := make([]*rlwe.Plaintext, (outputs+side-1)/side)
	for i := range rows {
		values := make([]float64, slots)
		for k := 0; k < side && i*side+k < outputs; k++ {
			for c := 0; c < inputs; c++ {
				values[k*columns+c] = weight(i*side+k, c)
			}
		}
		rows[i] = s.factor(values, wideLevel)
	}
	first := make([]float64, slots)
	for k := 0; k < slots; k += columns {
		first[k] = 1
	}
	mask := s.factor(first, wideLevel-1)
	apply := func(x *rlwe.Ciphertext) (sum *rlwe.Ciphertext, rotations int) {
		rotate := func(ct *rlwe.Ciphertext, by int) *rlwe.Ciphertext {
			rotations++
			turned, err := s.ev.RotateNew(ct, by)
			must(err)
			return turned
		}
		// Last rows first: each later step moves the sum by one.
		for i := len(rows) - 1; i >= 0; i-- {
			row, err := s.ev.MulNew(x, rows[i])
			must(err)
			must(s.ev.Rescale(row, row))
			for by := 1; by < columns; by *= 2 {
				must(s.ev.Add(row, rotate(row, by), row))
			}
			must(s.ev.Mul(row, mask, row))
			if sum != nil {
				must(s.ev.Add(row, rotate(sum, -1), row))
			}
			sum = row
		}
		must(s.ev.Rescale(sum, sum))
		return sum, rotations
	}
	column := func(slot int) (int, bool) { return slot % columns, slot%columns < inputs }
	place := func(row int) int { return row%side*columns + row/side }
	matvecRow(s, inputs, outputs, column, place, apply, len(rows), wideLevel+1, about)
}
