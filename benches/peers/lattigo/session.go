package main

import (
	"encoding/json"
	"os"
	"runtime/debug"
	"strings"

	"github.com/tuneinsight/lattigo/v6/circuits/ckks/lintrans"
	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"
)

// A chain of only the primes that are used: 50 | levels x 40 bits, and special primes of 50.
func chain(levels, special int) ckks.Parameters {
	lq := []int{50}
	for i := 0; i < levels; i++ {
		lq = append(lq, 40)
	}
	lp := []int{}
	for i := 0; i < special; i++ {
		lp = append(lp, 50)
	}
	params, err := ckks.NewParametersFromLiteral(ckks.ParametersLiteral{LogN: 16, LogQ: lq, LogP: lp, LogDefaultScale: 40})
	must(err)
	return params
}

// Special primes for key switches of so many primes: one digit of a short chain, and two of a longer one. One digit
// halves the keys; at level 2 a map takes as long as with two, and matrix products an eighth less.
func specials(limbs int) int {
	if limbs <= 8 {
		return limbs
	}
	return (limbs + 1) / 2
}

// A map with these diagonals at a level, with 2^ratio times as many baby steps as giant ones.
func bySteps(params ckks.Parameters, diagonals []int, level, ratio int) lintrans.Parameters {
	return lintrans.Parameters{
		DiagonalsIndexList:        diagonals,
		LevelQ:                    level,
		LevelP:                    params.MaxLevelP(),
		Scale:                     rlwe.NewScale(params.Q()[level]),
		LogDimensions:             params.LogMaxDimensions(),
		LogBabyStepGiantStepRatio: ratio,
	}
}

// Keys of one parameter set, and what uses them.
type session struct {
	params ckks.Parameters
	ecd    *ckks.Encoder
	enc    *rlwe.Encryptor
	dec    *rlwe.Decryptor
	keys   *rlwe.MemEvaluationKeySet
	ev     *ckks.Evaluator
}

// Keys are for key switches up to a level: of rotations, and of products if they are multiplied.
func newSession(params ckks.Parameters, level int, rotations []uint64, multiplied bool) *session {
	kg := rlwe.NewKeyGenerator(params)
	sk, pk := kg.GenKeyPairNew()
	limit := rlwe.EvaluationKeyParameters{LevelQ: &level}
	var relin *rlwe.RelinearizationKey
	if multiplied {
		relin = kg.GenRelinearizationKeyNew(sk, limit)
	}
	keys := rlwe.NewMemEvaluationKeySet(relin, kg.GenGaloisKeysNew(rotations, sk, limit)...)
	return &session{
		params: params, ecd: ckks.NewEncoder(params), enc: ckks.NewEncryptor(params, pk), dec: ckks.NewDecryptor(params, sk),
		keys: keys, ev: ckks.NewEvaluator(params, keys),
	}
}

func (s *session) encrypt(values []complex128, level int) *rlwe.Ciphertext {
	pt := ckks.NewPlaintext(s.params, level)
	must(s.ecd.Encode(values, pt))
	ct, err := s.enc.EncryptNew(pt)
	must(err)
	return ct
}

// A plaintext whose product with a ciphertext of this level keeps the ciphertext's scale after the rescale.
func (s *session) factor(values []float64, level int) *rlwe.Plaintext {
	pt := ckks.NewPlaintext(s.params, level)
	pt.Scale = rlwe.NewScale(s.params.Q()[level])
	must(s.ecd.Encode(values, pt))
	return pt
}

// Whether a row is asked for: its parameters, as JSON, contain the text, as with --only of hushed-bench.
func wants(about fields, only string) bool {
	b, err := json.Marshal(about)
	must(err)
	return strings.Contains(string(b), only)
}

// Gives back what earlier rows held, and restarts the peak.
func forgetPeak() {
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
}
