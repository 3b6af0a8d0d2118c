// The negacyclic transform of degree N = 2^LOG_N, in two launches: layers over columns, then over rows.
//
// N = R*R words are R rows of R, R = A*A. A block takes COLUMNS columns (or rows), a thread A words of one of them at a
// time: log2(A) layers in registers, an exchange through shared memory, log2(A) layers again.
#define LOG_A (LOG_N / 4)
#define A (1u << LOG_A)
#define R (A * A)
#define N (R * R)
#define THREADS (COLUMNS * A)
#define TILE (COLUMNS * R)
// Index into shared memory, with a gap after every 16 words against bank conflicts.
#define PAD(i) ((i) + ((i) >> 4))

#if ARITH == 0
typedef u64 num;
typedef pair64 twiddle; // w and its Shoup word
#define MODULUS(c) const u64 q = Q, ratio = RATIO, q2 = 2 * q
#define LOAD(x) (x)
#define STORE(x) reduce_word(x, ratio, q)
#define MID_OUT(x) (x)
#define MID_OUT_INVERSE(x) reduce_word(x, ratio, q)
#define MID_IN(x) (x)
#define TIMES(value, w) shoup(value, (w).x, (w).y, q)
#define FORWARD(u, v, w) { num t_ = TIMES(v, w); v = u + q2 - t_; u = u + t_; }
#define INVERSE(u, v, w, bound) { num t_ = u + (bound) * q - v; u = u + v; v = TIMES(t_, w); }
#define TAME(x)
#define SCALE(x, f) csub(shoup(x, (f)[0], (f)[1], q), q)
#else
typedef f64 num;
typedef f64 twiddle; // w in (-q/2, q/2)
#define MODULUS(c) const u64 q = Q; const f64 qf = (f64)q, inv = NUMBER(INVERSE_Q)
#define LOAD(x) from_word(x)
#define STORE(x) to_word(reduce_number(x, qf, inv), q)
#define MID_OUT(x) BITS(x)
#define MID_OUT_INVERSE(x) BITS(x)
#define MID_IN(x) NUMBER(x)
#define TIMES(value, w) times(value, w, FMUL(w, inv), qf)
#define FORWARD(u, v, w) { num t_ = TIMES(v, w); v = FSUB(u, t_); u = FADD(u, t_); }
#define INVERSE(u, v, w, bound) { num t_ = FSUB(u, v); u = FADD(u, v); v = TIMES(t_, w); }
#define TAME(x) x = reduce_number(x, qf, inv)
#define SCALE(x, f) to_word(NUMBER_SCALED(x, f), q)
#endif

// log2(A) layers on A words; W(j, k) is the factor of block k of the 2^j blocks of layer j. Before every second layer,
// the words that are summed, and not multiplied, in both layers that follow are reduced.
#define FORWARD_LAYERS(x, W) \
    UNROLL for (u32 j = 0; j < LOG_A; j++) { \
        const u32 gap = A >> (j + 1), both = gap | (gap >> 1); \
        if (j % 2 == 0) { UNROLL for (u32 i = 0; i < A; i++) if ((i & both) == 0) TAME(x[i]); } \
        UNROLL for (u32 k = 0; k < A / 2; k++) if (k < (1u << j)) { \
            const twiddle w_ = W(j, k); \
            UNROLL for (u32 i = 0; i < A / 2; i++) if (i < gap) FORWARD(x[2 * gap * k + i], x[2 * gap * k + i + gap], w_) \
        } \
    }
// The same backwards. Words below bound*q are below A*bound*q after it, in integers; in doubles, the sums of every
// second layer are reduced.
#define INVERSE_LAYERS(x, W, bound) \
    UNROLL for (u32 l = 0; l < LOG_A; l++) { \
        const u32 j = LOG_A - 1 - l, gap = A >> (j + 1); \
        UNROLL for (u32 k = 0; k < A / 2; k++) if (k < (1u << j)) { \
            const twiddle w_ = W(j, k); \
            UNROLL for (u32 i = 0; i < A / 2; i++) \
                if (i < gap) INVERSE(x[2 * gap * k + i], x[2 * gap * k + i + gap], w_, (bound) << l) \
        } \
        if (l % 2 == 1 || j == 0) { UNROLL for (u32 i = 0; i < A; i++) if ((i & gap) == 0) TAME(x[i]); } \
    }
// End of the layers.

// Factors of all but the last log2(A) layers lie in the order of `hushed-math`, ψ^rev(i) at i; those of the last by
// thread, so that threads beside each other load words beside each other.
#define W_TOP(j, k) w[(1u << (j)) + (k)]
#define W_COLUMN(j, k) w[((A + s) << (j)) + (k)]
#define W_ROW(j, k) w[((R + row) << (j)) + (k)]
#define W_LAST(j, k) w[(R * A) * ((1u << (j)) + (k)) + A * row + s]

// Grid: R/COLUMNS tiles × limbs. For each limb `limbs` has its prime and its position in `in` and in `out`.
#define TRANSFORM(name, more) KERNEL(THREADS) name(GLOBAL u64 *out, GLOBAL const u64 *in, \
    GLOBAL const twiddle *RESTRICT tables, GLOBAL const u64 *RESTRICT constants, GLOBAL const u32 *RESTRICT limbs more)
#define BEGIN \
    SHARED u64 tile[TILE + TILE / 16]; \
    const u32 t = THREAD, id = limbs[3 * BLOCK_Y]; \
    GLOBAL const twiddle *w = tables + (u64)id * N; \
    GLOBAL const u64 *c = constants + id * CONSTANTS; \
    MODULUS(c); \
    in += (u64)limbs[3 * BLOCK_Y + 1] * N; \
    out += (u64)limbs[3 * BLOCK_Y + 2] * N; \
    num x[A]
#define EACH UNROLL for (u32 k = 0; k < A; k++)
#define NOTHING

TRANSFORM(forward_columns, NOTHING) {
    BEGIN;
    const u32 column = t % COLUMNS, s = t / COLUMNS, at = COLUMNS * BLOCK_X + column;
    EACH x[k] = LOAD(in[R * (s + A * k) + at]);
    FORWARD_LAYERS(x, W_TOP)
    EACH tile[PAD(COLUMNS * (s + A * k) + column)] = MID_OUT(x[k]);
    SYNC();
    EACH x[k] = MID_IN(tile[PAD(COLUMNS * (A * s + k) + column)]);
    FORWARD_LAYERS(x, W_COLUMN)
    EACH out[R * (A * s + k) + at] = MID_OUT(x[k]);
}

TRANSFORM(forward_rows, NOTHING) {
    BEGIN;
    const u32 r = t / A, s = t % A, row = COLUMNS * BLOCK_X + r;
    EACH x[k] = MID_IN(in[R * row + s + A * k]);
    FORWARD_LAYERS(x, W_ROW)
    EACH tile[PAD(R * r + s + A * k)] = MID_OUT(x[k]);
    SYNC();
    EACH x[k] = MID_IN(tile[PAD(R * r + A * s + k)]);
    FORWARD_LAYERS(x, W_LAST)
    // A thread's own words: no barrier before.
    EACH tile[PAD(R * r + A * s + k)] = STORE(x[k]);
    SYNC();
    EACH out[TILE * BLOCK_X + t + THREADS * k] = tile[PAD(t + THREADS * k)];
}

TRANSFORM(inverse_rows, NOTHING) {
    BEGIN;
    const u32 r = t / A, s = t % A, row = COLUMNS * BLOCK_X + r;
    EACH tile[PAD(t + THREADS * k)] = in[TILE * BLOCK_X + t + THREADS * k];
    SYNC();
    EACH x[k] = LOAD(tile[PAD(R * r + A * s + k)]);
    INVERSE_LAYERS(x, W_LAST, 1)
    EACH tile[PAD(R * r + A * s + k)] = MID_OUT(x[k]);
    SYNC();
    EACH x[k] = MID_IN(tile[PAD(R * r + s + A * k)]);
    INVERSE_LAYERS(x, W_ROW, A)
    EACH out[R * row + s + A * k] = MID_OUT_INVERSE(x[k]);
}

// The results are multiplied by a factor per limb: n^-1, or n^-1 times what a conversion begins with.
#define FACTORS_TOO , GLOBAL const u64 *RESTRICT factors
TRANSFORM(inverse_columns, FACTORS_TOO) {
    BEGIN;
    GLOBAL const u64 *f = factors + FACTOR * BLOCK_Y;
    const u32 column = t % COLUMNS, s = t / COLUMNS, at = COLUMNS * BLOCK_X + column;
    EACH x[k] = MID_IN(in[R * (A * s + k) + at]);
    INVERSE_LAYERS(x, W_COLUMN, 1)
    EACH tile[PAD(COLUMNS * (A * s + k) + column)] = MID_OUT(x[k]);
    SYNC();
    EACH x[k] = MID_IN(tile[PAD(COLUMNS * (s + A * k) + column)]);
    INVERSE_LAYERS(x, W_TOP, A)
    EACH out[R * (s + A * k) + at] = SCALE(x[k], f);
}
