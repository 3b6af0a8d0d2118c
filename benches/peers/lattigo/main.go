// Lattigo v6 CKKS beside ours: one JSON object a line, fields as in docs/benchmarks.md.
//
//	peer-lattigo -mode ntt | ops | lintrans | matvec | matmul | ffn | boot | answers
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand"
	"os"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tuneinsight/lattigo/v6/circuits/ckks/bootstrapping"
	"github.com/tuneinsight/lattigo/v6/circuits/ckks/lintrans"
	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/ring"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"
	"github.com/tuneinsight/lattigo/v6/utils/sampling"
)

const peer = "lattigo 6.2.0"

type fields map[string]any

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// Peak resident memory in bytes.
func peak() int64 {
	b, _ := os.ReadFile("/proc/self/status")
	for _, l := range strings.Split(string(b), "\n") {
		if f := strings.Fields(l); len(f) > 1 && f[0] == "VmHWM:" {
			kib, _ := strconv.ParseInt(f[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

// Median seconds of f, and the number of runs: only one of what takes long.
func measure(f func()) (float64, int) {
	f()
	t := time.Now()
	f()
	one := time.Since(t).Seconds()
	if one > 10 {
		return one, 1
	}
	inner := int(math.Max(1, math.Min(200, 0.02/one)))
	runs := int(math.Max(5, math.Min(15, 1.0/(one*float64(inner)))))
	v := []float64{}
	for r := 0; r < runs; r++ {
		t := time.Now()
		for i := 0; i < inner; i++ {
			f()
		}
		v = append(v, time.Since(t).Seconds()/float64(inner))
	}
	sort.Float64s(v)
	return v[len(v)/2], runs
}

func print(row fields) {
	row["peer"] = peer
	row["peak_rss"] = peak()
	row["threads"] = runtime.GOMAXPROCS(0)
	b, err := json.Marshal(row)
	must(err)
	fmt.Println(string(b))
}

func row(name string, params fields, level int, each int, f func()) {
	s, runs := measure(f)
	print(fields{"name": name, "params": params, "level": level, "seconds": s / float64(each), "runs": runs})
}

func ntt() {
	for _, logN := range []int{13, 14, 15, 16} {
		g := ring.NewNTTFriendlyPrimesGenerator(50, uint64(2<<logN))
		p, err := g.NextDownstreamPrime()
		must(err)
		r, err := ring.NewRing(1<<logN, []uint64{p})
		must(err)
		prng, _ := sampling.NewPRNG()
		pol := ring.NewUniformSampler(prng, r).ReadNew()
		row("ntt", fields{"n": 1 << logN, "bits": 50, "direction": "forward"}, 0, 1, func() { r.NTT(pol, pol) })
		row("ntt", fields{"n": 1 << logN, "bits": 50, "direction": "inverse"}, 0, 1, func() { r.INTT(pol, pol) })
	}
}

// The chain of our N16 set: 50 | 17 x 40 | 11 x 50, special 8 x 50, 1680 bits.
func ours16() ckks.Parameters {
	lq := []int{50}
	for i := 0; i < 17; i++ {
		lq = append(lq, 40)
	}
	for i := 0; i < 11; i++ {
		lq = append(lq, 50)
	}
	p, err := ckks.NewParametersFromLiteral(ckks.ParametersLiteral{LogN: 16, LogQ: lq, LogP: []int{50, 50, 50, 50, 50, 50, 50, 50}, LogDefaultScale: 40})
	must(err)
	return p
}

func describe(p ckks.Parameters) fields {
	return fields{"log_n": p.LogN(), "log_qp": math.Round(p.LogQP()), "secret": "ternary"}
}

func ops(levels []int) {
	params := ours16()
	d := describe(params)
	kg := rlwe.NewKeyGenerator(params)
	sk, pk := kg.GenKeyPairNew()
	rots := make([]int, 32)
	for i := range rots {
		rots[i] = i + 1
	}
	rlk := kg.GenRelinearizationKeyNew(sk)
	gks := kg.GenGaloisKeysNew(params.GaloisElements(rots), sk)
	print(fields{"name": "ckks.key", "params": d, "key_bytes": gks[0].BinarySize()})
	evk := rlwe.NewMemEvaluationKeySet(rlk, gks...)
	ev := ckks.NewEvaluator(params, evk)
	ecd := ckks.NewEncoder(params)
	enc := ckks.NewEncryptor(params, pk)
	encs := ckks.NewEncryptor(params, sk)
	vals := random(params.MaxSlots())
	for _, lv := range levels {
		pt := ckks.NewPlaintext(params, lv)
		row("ckks.encode", d, lv, 1, func() { must(ecd.Encode(vals, pt)) })
		ct := ckks.NewCiphertext(params, 1, lv)
		row("ckks.encrypt", d, lv, 1, func() { must(encs.Encrypt(pt, ct)) })
		must(enc.Encrypt(pt, ct))
		ct2 := ct.CopyNew()
		res := ckks.NewCiphertext(params, 1, lv)
		row("ckks.add", d, lv, 1, func() { must(ev.Add(ct, ct2, res)) })
		row("ckks.mul_plain", d, lv, 1, func() { must(ev.Mul(ct, pt, res)) })
		row("ckks.mul_scalar_add", d, lv, 1, func() {
			res.Scale = ct.Scale.Mul(rlwe.NewScale(params.Q()[lv]))
			must(ev.MulThenAdd(ct, 0.3141, res))
		})
		prod, err := ev.MulNew(ct, pt)
		must(err)
		rs := ckks.NewCiphertext(params, 1, lv-1)
		row("ckks.rescale", d, lv, 1, func() { must(ev.Rescale(prod, rs)) })
		row("ckks.mul", d, lv, 1, func() { must(ev.MulRelin(ct, ct2, res)) })
		row("ckks.rotate", d, lv, 1, func() { must(ev.Rotate(ct, 1, res)) })
		om := map[int]*rlwe.Ciphertext{}
		for _, r := range rots {
			om[r] = ckks.NewCiphertext(params, 1, lv)
		}
		row("ckks.rotate_hoisted", d, lv, len(rots), func() { must(ev.RotateHoisted(ct, rots, om)) })
		runtime.GC()
	}
}

func random(n int) []complex128 {
	v := make([]complex128, n)
	for i := range v {
		v[i] = complex(2*rand.Float64()-1, 2*rand.Float64()-1)
	}
	return v
}

// A 768 x 768 matrix as 768 generalised diagonals, by baby-step giant-step.
func linearTransform(level int) {
	params := ours16()
	d := describe(params)
	d["dimension"] = 768
	diagonals := make(lintrans.Diagonals[complex128])
	for i := 0; i < 768; i++ {
		diagonals[i] = random(params.MaxSlots())
	}
	lp := bySteps(params, diagonals.DiagonalsIndexList(), level, 1)
	lt := lintrans.NewTransformation(params, lp)
	s := newSession(params, params.MaxLevel(), lintrans.GaloisElements(params, lp), false)
	must(lintrans.Encode(s.ecd, diagonals, lt))
	ev := lintrans.NewEvaluator(s.ev)
	ct := s.encrypt(random(params.MaxSlots()), level)
	row("lintrans", d, level, 1, func() {
		_, err := ev.EvaluateNew(ct, lt)
		must(err)
	})
}

func boot(name string, reps, threads int) {
	sets := map[string]struct {
		S ckks.ParametersLiteral
		B bootstrapping.ParametersLiteral
	}{
		"N16QP1767H32768H32": {bootstrapping.N16QP1767H32768H32.SchemeParams, bootstrapping.N16QP1767H32768H32.BootstrappingParams},
		"N16QP1546H192H32":   {bootstrapping.N16QP1546H192H32.SchemeParams, bootstrapping.N16QP1546H192H32.BootstrappingParams},
	}
	s, ok := sets[name]
	if !ok {
		fmt.Fprintln(os.Stderr, "peer-lattigo: no set", name)
		os.Exit(2)
	}
	params, err := ckks.NewParametersFromLiteral(s.S)
	must(err)
	bp, err := bootstrapping.NewParametersFromLiteral(params, s.B)
	must(err)
	kg := rlwe.NewKeyGenerator(params)
	sk, pk := kg.GenKeyPairNew()
	start := time.Now()
	evk, _, err := bp.GenEvaluationKeys(sk)
	must(err)
	size := evk.MemEvaluationKeySet.BinarySize() + evk.EvkDenseToSparse.BinarySize() + evk.EvkSparseToDense.BinarySize()
	ev, err := bootstrapping.NewEvaluator(bp, evk)
	must(err)
	setup := time.Since(start).Seconds()
	runtime.GC()
	ecd := ckks.NewEncoder(params)
	enc := ckks.NewEncryptor(params, pk)
	vals := random(params.MaxSlots())
	pt := ckks.NewPlaintext(params, 0)
	must(ecd.Encode(vals, pt))
	ct, err := enc.EncryptNew(pt)
	must(err)
	var out *rlwe.Ciphertext
	times := []float64{}
	for r := 0; r <= reps; r++ {
		t := time.Now()
		var wg sync.WaitGroup
		for k := 0; k < threads; k++ {
			wg.Add(1)
			go func() {
				defer wg.Done()
				o, err := ev.Bootstrap(ct.CopyNew())
				must(err)
				if k == 0 {
					out = o
				}
			}()
		}
		wg.Wait()
		if r > 0 {
			times = append(times, time.Since(t).Seconds()/float64(threads))
		}
	}
	sort.Float64s(times)
	worst, mean := errors(params, ecd, ckks.NewDecryptor(params, sk), vals, sameSlot, out)
	print(fields{
		"name": "bootstrap", "params": fields{"set": name, "log_n": params.LogN(), "log_qp": math.Round(bp.BootstrappingParameters.LogQP()), "slots": params.MaxSlots()},
		"seconds": times[len(times)/2], "runs": reps, "setup_seconds": setup, "key_bytes": size, "level": out.Level(),
		"modulus_bits_left":  params.LogQLvl(out.Level()) - params.LogQi()[0],
		"precision_bits_min": worst, "precision_bits_mean": mean, "concurrent": threads,
	})
}

// Where the expected number i is slot i.
func sameSlot(i int) int { return i }

// Bits of the worst slot, and the mean of the bits over slots; real and imaginary parts.
func errors(params ckks.Parameters, ecd *ckks.Encoder, dec *rlwe.Decryptor, want []complex128, slot func(int) int, ct *rlwe.Ciphertext) (float64, float64) {
	got := make([]complex128, params.MaxSlots())
	must(ecd.Decode(dec.DecryptNew(ct), got))
	worst, sum := math.Inf(1), 0.0
	for i := range want {
		e := got[slot(i)] - want[i]
		for _, e := range []float64{real(e), imag(e)} {
			bits := -math.Log2(math.Max(math.Abs(e), 1e-30))
			worst = math.Min(worst, bits)
			sum += bits
		}
	}
	return worst, sum / float64(2*len(want))
}

func main() {
	mode := flag.String("mode", "ops", "ntt | ops | lintrans | matvec | matmul | ffn | boot | answers")
	set := flag.String("set", "N16QP1767H32768H32", "boot: N16QP1767H32768H32 | N16QP1546H192H32")
	reps := flag.Int("reps", 3, "boot: repetitions after one to warm up")
	threads := flag.Int("threads", 1, "boot: bootstraps at once")
	only := flag.String("only", "", "matvec, matmul: only sizes whose parameters contain this text, as hushed-bench has it")
	flag.Parse()
	switch *mode {
	case "ntt":
		ntt()
	case "ops":
		ops([]int{2, 6, 13, 28})
	case "lintrans":
		linearTransform(6)
	case "ffn":
		ffn("gelu", 127)
		ffn("gelu", 28)
		ffn("no activation", 0)
		ffn("merged", 0)
	case "matvec":
		matvec(*only)
	case "matmul":
		matmul(*only)
	case "boot":
		boot(*set, *reps, *threads)
	case "answers":
		answers()
	default:
		flag.Usage()
		os.Exit(2)
	}
}
