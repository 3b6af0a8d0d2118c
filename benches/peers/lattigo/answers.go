package main

import (
	"encoding/json"
	"math"
	"math/big"
	"os"

	"github.com/tuneinsight/lattigo/v6/circuits/ckks/bootstrapping"
	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"
	"github.com/tuneinsight/lattigo/v6/utils"
)

// The input of both libraries: slot j is (u(2j), u(2j+1)), u a linear congruence mapped to [-1, 1).
func inputs(slots int) []complex128 {
	state := uint64(20251120)
	next := func() float64 {
		state = state*6364136223846793005 + 1442695040888963407
		return float64(state>>11)/float64(uint64(1)<<52) - 1
	}
	v := make([]complex128, slots)
	for i := range v {
		re := next()
		v[i] = complex(re, next())
	}
	return v
}

// What our tests compare with: the coefficients of an encoding, the slots of a decoding, and the message error of a whole bootstrap.
func answers() {
	params, err := ckks.NewParametersFromLiteral(ckks.ParametersLiteral{LogN: 10, LogQ: []int{50, 40}, LogP: []int{50}, LogDefaultScale: 40})
	must(err)
	ecd := ckks.NewEncoder(params)
	pt := ckks.NewPlaintext(params, params.MaxLevel())
	must(ecd.Encode(inputs(params.MaxSlots()), pt))
	coefficients := make([]*big.Int, params.N())
	for i := range coefficients {
		coefficients[i] = new(big.Int)
	}
	r := params.RingQ().AtLevel(pt.Level())
	poly := pt.Value.CopyNew()
	r.INTT(*poly, *poly)
	r.PolyToBigintCentered(*poly, 1, coefficients)
	values := make([]int64, len(coefficients))
	for i, c := range coefficients {
		values[i] = c.Int64()
	}

	// The input again, as coefficients of 39 bits: what they decode to, every eighth slot.
	for i, v := range inputs(params.MaxSlots()) {
		coefficients[2*i].SetInt64(int64(real(v) * (1 << 39)))
		coefficients[2*i+1].SetInt64(int64(imag(v) * (1 << 39)))
	}
	r.SetCoefficientsBigint(coefficients, pt.Value)
	r.NTT(pt.Value, pt.Value)
	decoded := make([]complex128, params.MaxSlots())
	must(ecd.Decode(pt, decoded))
	slots := make([][2]float64, 0, len(decoded)/8)
	for i := 0; i < len(decoded); i += 8 {
		slots = append(slots, [2]float64{real(decoded[i]), imag(decoded[i])})
	}

	lit := bootstrapping.N16QP1767H32768H32
	scheme := lit.SchemeParams
	scheme.LogN = 12
	scheme.Xs = nil
	small, err := ckks.NewParametersFromLiteral(scheme)
	must(err)
	b := lit.BootstrappingParams
	b.LogN = utils.Pointy(12)
	bp, err := bootstrapping.NewParametersFromLiteral(small, b)
	must(err)
	sk := rlwe.NewKeyGenerator(small).GenSecretKeyNew()
	evk, _, err := bp.GenEvaluationKeys(sk)
	must(err)
	ev, err := bootstrapping.NewEvaluator(bp, evk)
	must(err)
	ecd = ckks.NewEncoder(small)
	in := inputs(small.MaxSlots())
	pt = ckks.NewPlaintext(small, 0)
	must(ecd.Encode(in, pt))
	ct, err := ckks.NewEncryptor(small, sk).EncryptNew(pt)
	must(err)
	out, err := ev.Bootstrap(ct)
	must(err)
	dec := ckks.NewDecryptor(small, sk)
	worst, mean := errors(small, ecd, dec, in, sameSlot, out)
	got := make([]complex128, len(in))
	must(ecd.Decode(dec.DecryptNew(out), got))
	first := make([][2]float64, 16)
	for i := range first {
		first[i] = [2]float64{real(got[i]), imag(got[i])}
	}
	e := json.NewEncoder(os.Stdout)
	must(e.Encode(fields{
		"library": peer,
		"encode":  fields{"log_n": 10, "scale_bits": 40, "coefficients": values},
		"decode":  fields{"log_n": 10, "scale_bits": 40, "every": 8, "slots": slots},
		"bootstrap": fields{"log_n": 12, "set": "N16QP1767H32768H32 at a small, insecure ring", "precision_bits_min": math.Round(worst*100) / 100,
			"precision_bits_mean": math.Round(mean*100) / 100, "first_slots": first},
	}))
}
