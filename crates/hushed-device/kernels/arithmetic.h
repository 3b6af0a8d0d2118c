// Arithmetic modulo primes q < 2^50, in 64-bit integers (ARITH 0) or in double multiply-adds (ARITH 1).
//
// Doubles: van der Hoeven, Lecerf and Quintin, "Modular SIMD arithmetic in Mathemagix" (2016), §3, as on processors.
// Integers: Shoup's products with a prepared factor, Barrett's otherwise. Words between kernels are in [0, q), so both
// give the same. No branch and no address depends on a word.

// Constants of one prime, CONSTANTS words apart.
#define CONSTANTS 16
#define Q c[0]                // q
#define RATIO c[1]            // floor(2^64/q)
#define INVERSE_Q c[2]        // 1/q as a double
#define BARRETT c[3]          // floor(2^2k/q), with k bits of q
#define BITS_Q c[4]           // k
#define HALF_WORD c[5]        // 2^25 mod q, then its Shoup word
#define HALF_WORD_SHOUP c[6]
#define WHOLE_WORD c[7]       // 2^50 mod q, then its Shoup word
#define WHOLE_WORD_SHOUP c[8]

// A factor, FACTOR words apart: a residue w, its Shoup word floor(w*2^64/q), and w in (-q/2, q/2) as a double.
#define FACTOR 4

// Adding and subtracting it rounds a double below 2^51 to the nearest integer.
#define ROUND 6755399441055744.0
#define INTEGER 4503599627370496.0

DEVICE u64 csub(u64 a, u64 b) { u64 d = a - b; return d + (b & (u64)((i64)d >> 63)); }
// a*w below 2q, for any word a.
DEVICE u64 shoup(u64 a, u64 w, u64 ws, u64 q) { return a * w - MUL_HIGH(a, ws) * q; }
// Any word, modulo q.
DEVICE u64 reduce_word(u64 a, u64 ratio, u64 q) { return csub(a - MUL_HIGH(a, ratio) * q, q); }
// A word below 2^52.
DEVICE f64 from_word(u64 x) { return FSUB(NUMBER(x | ((u64)0x43300000 << 32)), INTEGER); }
// Modulo q, in [-q/2, q/2].
DEVICE f64 reduce_number(f64 x, f64 q, f64 inv) { f64 n = FSUB(FMA(x, inv, ROUND), ROUND); return FMA(-n, q, x); }
// A number in (-q, q), as a word in [0, q).
DEVICE u64 to_word(f64 x, u64 q) { u64 w = BITS(FADD(x, ROUND)) - BITS(ROUND); return w + (q & (u64)((i64)w >> 63)); }
// x*w modulo q, given w/q: at most (1/2 + |x|/8q)*q.
DEVICE f64 times(f64 x, f64 w, f64 ratio, f64 q) {
    f64 high = FMUL(x, w), low = FMA(x, w, -high), n = FSUB(FMA(x, ratio, ROUND), ROUND);
    return FADD(FMA(-n, q, high), low);
}
// x*y modulo q.
DEVICE f64 product(f64 x, f64 y, f64 q, f64 inv) {
    f64 high = FMUL(x, y), low = FMA(x, y, -high), n = FSUB(FMA(high, inv, ROUND), ROUND);
    return FADD(FMA(-n, q, high), low);
}
// A double word below 32*q^2, modulo q: the quotient's estimate is at most 34 too small.
DEVICE u64 reduce_wide(u64 high, u64 low, GLOBAL const u64 *c) {
    const u32 k = (u32)BITS_Q;
    const u64 top = (high << (65 - k)) | (low >> (k - 1)), mu = BARRETT;
    const u64 n = (MUL_HIGH(top, mu) << (63 - k)) | ((top * mu) >> (k + 1));
    return reduce_word(low - n * Q, RATIO, Q);
}

#if ARITH == 0
#define PRIME const u64 q = Q
#define PRODUCT(x, y) reduce_wide(MUL_HIGH(x, y), (x) * (y), c)
#define PRODUCT_AND(x, y, sum) csub(PRODUCT(x, y) + (sum), q)
#define SCALED(x, f) csub(shoup(x, (f)[0], (f)[1], q), q)
#define SCALED_DIFFERENCE(x, y, f) SCALED((x) + q - (y), f)
#define SUM_OF(s) u64 s = 0, s##_high = 0
#define SUM_PRODUCT(s, x, y) { u64 low_ = (x) * (y); s += low_; s##_high += MUL_HIGH(x, y) + (s < low_); }
#define SUM_SCALED(s, x, f) { u64 low_ = SCALED(x, f); s += low_; s##_high += s < low_; }
#define SUM_REDUCED(s) { s = reduce_wide(s##_high, s, c); s##_high = 0; }
#define SUM_WORD(s) reduce_wide(s##_high, s, c)
#else
#define PRIME const u64 q = Q; const f64 qf = (f64)q, inv = NUMBER(INVERSE_Q)
#define PRODUCT(x, y) to_word(reduce_number(product(from_word(x), from_word(y), qf, inv), qf, inv), q)
#define PRODUCT_AND(x, y, sum) \
    to_word(reduce_number(FADD(product(from_word(x), from_word(y), qf, inv), from_word(sum)), qf, inv), q)
#define NUMBER_SCALED(x, f) times(x, NUMBER((f)[2]), FMUL(NUMBER((f)[2]), inv), qf)
#define SCALED(x, f) to_word(NUMBER_SCALED(from_word(x), f), q)
#define SCALED_DIFFERENCE(x, y, f) to_word(NUMBER_SCALED(FSUB(from_word(x), from_word(y)), f), q)
#define SUM_OF(s) f64 s = 0.0
#define SUM_PRODUCT(s, x, y) s = FADD(s, product(from_word(x), from_word(y), qf, inv));
#define SUM_SCALED(s, x, f) s = FADD(s, NUMBER_SCALED(from_word(x), f));
#define SUM_REDUCED(s) s = reduce_number(s, qf, inv);
#define SUM_WORD(s) to_word(reduce_number(s, qf, inv), q)
#endif
// The most products that a sum takes before it is reduced.
#define SUM_TERMS 8
