// Word by word. Grid: N/POINTS blocks × limbs; `ids` names the prime of each limb.
#define POINTS 256
#define AT const u32 limb = BLOCK_Y, k = POINTS * BLOCK_X + THREAD; const u64 i = (u64)limb * N + k
#define OF_PRIME GLOBAL const u64 *c = constants + ids[limb] * CONSTANTS; PRIME
#define POINTWISE(name, more) KERNEL(POINTS) name(GLOBAL u64 *out, GLOBAL const u64 *a, GLOBAL const u64 *b, \
    GLOBAL const u64 *RESTRICT constants, GLOBAL const u32 *RESTRICT ids more)

POINTWISE(add, NOTHING) { AT; const u64 q = constants[ids[limb] * CONSTANTS]; out[i] = csub(a[i] + b[i], q); }
POINTWISE(subtract, NOTHING) { AT; const u64 q = constants[ids[limb] * CONSTANTS]; out[i] = csub(a[i] + q - b[i], q); }
POINTWISE(negate, NOTHING) { AT; const u64 q = constants[ids[limb] * CONSTANTS]; out[i] = csub(q - a[i], q); }
POINTWISE(multiply, NOTHING) { AT; OF_PRIME; out[i] = PRODUCT(a[i], b[i]); }
POINTWISE(multiply_add, NOTHING) { AT; OF_PRIME; out[i] = PRODUCT_AND(a[i], b[i], out[i]); }
// a times a factor per limb; b is not read.
POINTWISE(multiply_scalar, FACTORS_TOO) { AT; OF_PRIME; out[i] = SCALED(a[i], factors + FACTOR * limb); }

// The value at k of a(X^g) is the value of a at source(k, g): value k belongs to ψ^(2·rev(k) + 1). Runs of 8 words stay
// together.
DEVICE u32 source(u32 k, u32 g) {
    u32 e = ((2 * (reverse32(k) >> (32 - LOG_N)) + 1) * g) % (2 * N);
    return reverse32(e >> 1) >> (32 - LOG_N);
}
KERNEL(POINTS) automorphism(GLOBAL u64 *RESTRICT out, GLOBAL const u64 *RESTRICT a, const u32 g) {
    AT;
    out[i] = a[(u64)limb * N + source(k, g)];
}
