package main

import (
	"fmt"
	"math"
	"os"

	"github.com/tuneinsight/lattigo/v6/circuits/ckks/lintrans"
	"github.com/tuneinsight/lattigo/v6/circuits/ckks/polynomial"
	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/utils/bignum"
)

// A map of one vector over all slots, as `hushed-bench ffn` has it: so many diagonals, and sums over so many classes of
// slots. The numbers are random, and so small that results stay within 1.
type splitMap struct {
	diagonals, step, classes int
}

var (
	up     = splitMap{128, 4096, 8}
	down   = splitMap{128, 896, 32}
	merged = splitMap{32, 1024, 32}
)

// GELU of half·t in Chebyshev polynomials of t.
func gelu(degree int, half float64) ([]float64, func(float64) float64) {
	f := func(x float64) float64 {
		return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}
	n := degree + 1
	angle := func(i int) float64 { return math.Pi * (float64(i) + 0.5) / float64(n) }
	c := make([]float64, n)
	for k := range c {
		for i := 0; i < n; i++ {
			c[k] += f(half*math.Cos(angle(i))) * math.Cos(float64(k)*angle(i)) * 2 / float64(n)
		}
	}
	c[0] /= 2
	return c, func(t float64) float64 {
		b1, b2 := 0.0, 0.0
		for k := degree; k > 0; k-- {
			b1, b2 = 2*t*b1-b2+c[k], b1
		}
		return t*b1 - b2 + c[0]
	}
}

// The feed-forward block of GPT-2 on one vector, with no more primes than it uses up.
func ffn(form string, degree int) {
	maps, depth := []splitMap{up, down}, 0
	half := 12.0
	switch form {
	case "gelu":
		depth = int(math.Ceil(math.Log2(float64(degree + 1))))
		if degree < 64 {
			half = 8.8
		}
	case "merged":
		maps = []splitMap{merged}
	case "no activation":
	default:
		fmt.Fprintln(os.Stderr, "peer-lattigo: no form", form)
		os.Exit(2)
	}
	levels := len(maps) + depth
	// Two digits at the top.
	params := chain(levels, (levels+2)/2)
	slots := params.MaxSlots()
	elements := map[uint64]bool{}
	transforms := make([]lintrans.LinearTransformation, len(maps))
	clear := make([]lintrans.Diagonals[complex128], len(maps))
	level := levels
	for i, m := range maps {
		clear[i] = make(lintrans.Diagonals[complex128])
		for d := 0; d < m.diagonals; d++ {
			v := random(slots)
			for s := range v {
				v[s] = complex(real(v[s])/float64(m.diagonals*m.classes), 0)
			}
			clear[i][d] = v
		}
		lp := bySteps(params, clear[i].DiagonalsIndexList(), level, 3)
		transforms[i] = lintrans.NewTransformation(params, lp)
		for _, e := range lintrans.GaloisElements(params, lp) {
			elements[e] = true
		}
		for by := 1; by < m.classes; by *= 2 {
			elements[params.GaloisElement(by*m.step)] = true
		}
		level--
		if i == 0 {
			level -= depth
		}
	}
	list := []uint64{}
	for e := range elements {
		list = append(list, e)
	}
	on := newSession(params, levels, list, true)
	for i := range maps {
		must(lintrans.Encode(on.ecd, clear[i], transforms[i]))
	}
	ev := on.ev
	lt, pe := lintrans.NewEvaluator(ev), polynomial.NewEvaluator(params, ev)
	coeffs, f := gelu(degree, half)
	poly := polynomial.NewPolynomial(bignum.NewPolynomial(bignum.Chebyshev, coeffs, [2]float64{-1, 1}))

	x := random(slots)
	for s := range x {
		x[s] = complex(real(x[s]), 0)
	}
	in := on.encrypt(x, levels)
	var out *rlwe.Ciphertext
	run := func() {
		ct := in
		for i, m := range maps {
			mapped, err := lt.EvaluateNew(ct, transforms[i])
			must(err)
			ct = mapped
			must(ev.Rescale(ct, ct))
			for by := 1; by < m.classes; by *= 2 {
				turned, err := ev.RotateNew(ct, by*m.step)
				must(err)
				must(ev.Add(ct, turned, ct))
			}
			if i == 0 && depth > 0 {
				ct, err = pe.Evaluate(ct, poly, params.DefaultScale())
				must(err)
			}
		}
		out = ct
	}
	seconds, runs := measure(run)

	want := make([]float64, slots)
	for s := range want {
		want[s] = real(x[s])
	}
	for i, m := range maps {
		sum := make([]float64, slots)
		for d, v := range clear[i] {
			for s := range sum {
				sum[s] += real(v[s]) * want[(s+d)%slots]
			}
		}
		for by := 1; by < m.classes; by *= 2 {
			next := make([]float64, slots)
			for s := range next {
				next[s] = sum[s] + sum[(s+by*m.step)%slots]
			}
			sum = next
		}
		want = sum
		if i == 0 && depth > 0 {
			for s := range want {
				want[s] = f(want[s])
			}
		}
	}
	expected := make([]complex128, slots)
	for s := range expected {
		expected[s] = complex(want[s], 0)
	}
	worst, mean := errors(params, on.ecd, on.dec, expected, sameSlot, out)
	d := describe(params)
	d["width"], d["hidden"], d["form"], d["layout"] = 768, 3072, form, "one vector over all slots"
	if depth > 0 {
		d["degree"] = degree
	}
	print(fields{
		"name": "ffn", "params": d, "level": levels, "seconds": seconds, "runs": runs, "level_left": out.Level(),
		"key_bytes": on.keys.BinarySize(), "precision_bits_min": worst, "precision_bits_mean": mean,
	})
}
