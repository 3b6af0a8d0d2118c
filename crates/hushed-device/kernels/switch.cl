// Key switching: conversion of digits, inner products with a key, division by the special primes.

// The most primes that a conversion comes from.
#define MOST_SOURCES 14
#define CONVERT_THREADS 128

// Centred integers from one set of primes to others, from the terms y_j = x_j·(F/f_j)^-1 mod f_j: Σ y_j·F/f_j - v·F with
// v = round(Σ y_j/f_j), in fixed point with 51 bits after the point, as `hushed-math` computes it. Products are of halves
// of 25 bits by Karatsuba's method: three of 32 bits a term, without carries.
//
// Grid: N/CONVERT_THREADS × jobs. A job: its first source, their number, the position of the first in `terms`, its first
// target, their number. A source: floor(2^(51 + bits)/f), bits of f. A target: its prime, its position in `out`, the
// first of its factors, which are the halves of F/f_j for each source and of -F.
#define JOB 8
KERNEL(CONVERT_THREADS) convert(GLOBAL u64 *RESTRICT out, GLOBAL const u64 *RESTRICT terms,
                                GLOBAL const u64 *RESTRICT sources, GLOBAL const u32 *RESTRICT targets,
                                GLOBAL const pair32 *RESTRICT halves, GLOBAL const u64 *RESTRICT constants,
                                GLOBAL const u32 *RESTRICT jobs) {
    GLOBAL const u32 *job = jobs + JOB * BLOCK_Y;
    const u32 i = CONVERT_THREADS * BLOCK_X + THREAD, count = job[1];
    GLOBAL const u64 *f = sources + 2 * job[0], *y = terms + (u64)job[2] * N + i;
    GLOBAL const u32 *target = targets + 4 * job[3], *end = target + 4 * job[4];
    u32 low[MOST_SOURCES], high[MOST_SOURCES];
    u64 v = ((u64)1 << 50) + count;
    UNROLL for (u32 j = 0; j < MOST_SOURCES; j++) {
        low[j] = high[j] = 0;
        if (j < count) {
            const u64 term = y[(u64)j * N], ratio = f[2 * j];
            const u32 bits = (u32)f[2 * j + 1];
            v += (MUL_HIGH(term, ratio) << (64 - bits)) | ((term * ratio) >> bits);
            low[j] = (u32)term & 0x1ffffffu;
            high[j] = (u32)(term >> 25);
        }
    }
    v >>= 51;
    for (; target != end; target += 4) {
        GLOBAL const pair32 *w = halves + target[2];
        GLOBAL const u64 *c = constants + target[0] * CONSTANTS;
        u64 sum_low = 0, sum_high = 0, sum_both = 0;
        UNROLL for (u32 j = 0; j < MOST_SOURCES; j++)
            if (j < count) {
                const pair32 h = w[j];
                sum_low += (u64)low[j] * h.x;
                sum_high += (u64)high[j] * h.y;
                sum_both += (u64)(low[j] + high[j]) * (h.x + h.y);
            }
        u64 sum_middle = sum_both - sum_low - sum_high;
        sum_low += (u32)v * (u64)w[count].x;
        sum_middle += (u32)v * (u64)w[count].y;
        const u64 sum = sum_low + shoup(sum_middle, HALF_WORD, HALF_WORD_SHOUP, Q)
                      + shoup(sum_high, WHOLE_WORD, WHOLE_WORD_SHOUP, Q);
        out[(u64)target[1] * N + i] = reduce_word(sum, RATIO, Q);
    }
}

// (b, a) = Σ_i d_i·(kb_i, ka_i) + P·added. For each limb `limbs` has its prime, its position in the key, then the
// position of each digit: in `digits`, or with the highest bit in `own`, the polynomial itself. The key: by digit, b then
// a, `key_limbs` limbs each. `added` has bit 0 if something is added to b, bit 1 for a; in the first `added_limbs` limbs.
// Grid: N/POINTS × limbs.
KERNEL(POINTS) dot_pair(GLOBAL u64 *RESTRICT sums, GLOBAL const u64 *RESTRICT digits, GLOBAL const u64 *RESTRICT own,
                        GLOBAL const u64 *RESTRICT key, GLOBAL const u64 *added_b, GLOBAL const u64 *added_a,
                        GLOBAL const u64 *RESTRICT factors, GLOBAL const u64 *RESTRICT constants,
                        GLOBAL const u32 *RESTRICT limbs, const u32 count, const u32 key_limbs, const u32 all_limbs,
                        const u32 added, const u32 added_limbs) {
    AT;
    GLOBAL const u32 *place = limbs + (u64)limb * (2 + count);
    GLOBAL const u64 *c = constants + place[0] * CONSTANTS;
    PRIME;
    SUM_OF(b);
    SUM_OF(a);
    for (u32 j = 0; j < count; j++) {
        const u32 from = place[2 + j];
        const u64 d = from >> 31 ? own[(u64)(from & 0x7fffffffu) * N + k] : digits[(u64)from * N + k];
        const u64 at = ((u64)(2 * j) * key_limbs + place[1]) * N + k;
        const u64 kb = key[at], ka = key[at + (u64)key_limbs * N];
        SUM_PRODUCT(b, d, kb)
        SUM_PRODUCT(a, d, ka)
        if (j % SUM_TERMS == SUM_TERMS - 1) {
            SUM_REDUCED(b)
            SUM_REDUCED(a)
        }
    }
    if (limb < added_limbs) {
        GLOBAL const u64 *f = factors + FACTOR * limb;
        if (added & 1) SUM_SCALED(b, added_b[i], f)
        if (added & 2) SUM_SCALED(a, added_a[i], f)
    }
    sums[i] = SUM_WORD(b);
    sums[i + (u64)all_limbs * N] = SUM_WORD(a);
}

// (sum - lifted)·factor, turned by X → X^g (g = 1: not turned). `limbs` has for each limb its prime, and its position in
// `sums`, in `lifted` and in `out`. Grid: N/POINTS × limbs.
KERNEL(POINTS) finish(GLOBAL u64 *RESTRICT out, GLOBAL const u64 *RESTRICT sums, GLOBAL const u64 *RESTRICT lifted,
                      GLOBAL const u64 *RESTRICT factors, GLOBAL const u64 *RESTRICT constants,
                      GLOBAL const u32 *RESTRICT limbs, const u32 g) {
    const u32 k = POINTS * BLOCK_X + THREAD, from = source(k, g);
    GLOBAL const u32 *place = limbs + 4 * BLOCK_Y;
    GLOBAL const u64 *c = constants + place[0] * CONSTANTS, *f = factors + FACTOR * BLOCK_Y;
    PRIME;
    const u64 sum = sums[(u64)place[1] * N + from], low = lifted[(u64)place[2] * N + from];
    out[(u64)place[3] * N + k] = SCALED_DIFFERENCE(sum, low, f);
}
