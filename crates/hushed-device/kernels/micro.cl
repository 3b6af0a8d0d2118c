// Throughput of single operations from registers, for measurements: eight independent chains a thread.
#define ROUNDS 256u
#define CHAINS(TYPE, START, STEP, END) \
    TYPE x[8]; \
    UNROLL for (u32 i = 0; i < 8; i++) x[i] = START; \
    for (u32 r = 0; r < ROUNDS; r++) { UNROLL for (u32 i = 0; i < 8; i++) { STEP; } } \
    u64 sum = 0; \
    UNROLL for (u32 i = 0; i < 8; i++) sum += END; \
    out[256 * BLOCK_X + THREAD] = sum
#define MICRO(name) KERNEL(256) name(GLOBAL u64 *out, GLOBAL const u64 *RESTRICT c)
MICRO(micro_fma) { const f64 a = (f64)THREAD, b = NUMBER(INVERSE_Q); CHAINS(f64, (f64)(THREAD + i), x[i] = FMA(x[i], b, a), BITS(x[i])); }
MICRO(micro_mad_wide) { const u32 w = (u32)RATIO; CHAINS(u64, Q + THREAD + i, x[i] = (u64)(u32)x[i] * w + x[i], x[i]); }
MICRO(micro_times) {
    const f64 q = (f64)Q, inv = NUMBER(INVERSE_Q), w = (f64)(Q / 3), f = FMUL(w, inv);
    CHAINS(f64, (f64)(THREAD + i), x[i] = times(x[i], w, f, q), BITS(x[i]));
}
KERNEL(256) copy(GLOBAL pair64 *RESTRICT out, GLOBAL const pair64 *RESTRICT in) {
    out[256 * BLOCK_X + THREAD] = in[256 * BLOCK_X + THREAD];
}
