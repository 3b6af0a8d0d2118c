// The butterflies of transform.cl over bounds in place of numbers: |x| <= y·q for doubles, x < y·q for integers.
// Doubles: a product needs y <= 4 and leaves 1/2 + y/8, a reduction leaves 1/2. Integers: a product takes any word and
// leaves 2; sums must stay below 2^14·q, and a difference u + b·q - v needs v <= b.
#include <algorithm>
#include <cstdio>
typedef unsigned u32;
struct num { double y; };
struct twiddle {};
static bool broken = false;
static double into = 0;
static void need(bool ok) { broken = broken || !ok; }
#define UNROLL
#if ARITH == 1
static const int qf = 0, inv = 0;
static int FMUL(twiddle, int) { return 0; }
static num times(num v, twiddle, int, int) { into = std::max(into, v.y); need(v.y <= 4.000001); return {0.5 + v.y / 8}; }
static num FADD(num a, num b) { return {a.y + b.y}; }
static num FSUB(num a, num b) { return {a.y + b.y}; }
static num reduce_number(num, int, int) { return {0.5}; }
#define BITS(x) (x)
#else
struct Q {};
static const Q q;
static const num q2{2};
static const int ratio = 0;
static num shoup(num v) { into = std::max(into, v.y); need(v.y < 16384); return {2}; }
#undef TIMES
#define TIMES(value, w) shoup(value)
static num reduce_word(num, int, Q) { return {1}; }
struct Multiple { double b; };
struct Raised { double y, room; };
static Multiple operator*(double b, Q) { return {b}; }
static num operator+(num a, num b) { return {a.y + b.y}; }
static Raised operator+(num a, Multiple m) { return {a.y + m.b, m.b}; }
static num operator-(Raised a, num b) { need(b.y <= a.room + 1e-9); return {a.y}; }
static num operator-(num a, num b) { need(b.y <= 2); return {a.y}; }
#endif
#define W(j, k) twiddle{}
// The largest bound, for all words: any of them may come next to any other.
static void level(num *x) {
    double most = 0;
    for (u32 i = 0; i < A; i++) most = std::max(most, x[i].y);
    for (u32 i = 0; i < A; i++) x[i].y = most;
}
int main() {
    num x[A];
    for (u32 i = 0; i < A; i++) x[i].y = 1;
    for (int half = 0; half < 2; half++) {
        FORWARD_LAYERS(x, W)
        level(x);
        FORWARD_LAYERS(x, W)
        level(x);
    }
    printf("forward: %.3f into a product, %.3f at the end; ", into, x[0].y);
    into = 0;
    for (u32 i = 0; i < A; i++) x[i].y = 1;
    for (int half = 0; half < 2; half++) {
        INVERSE_LAYERS(x, W, 1)
        level(x);
        INVERSE_LAYERS(x, W, A)
        level(x);
        if (half == 0) for (u32 i = 0; i < A; i++) x[i] = MID_OUT_INVERSE(x[i]);
    }
    // The scaling at the end is a product too, of a number below q in doubles.
    need(ARITH == 0 || x[0].y <= 4.000001);
    printf("inverse: %.3f into a product, %.3f at the end\n", into, x[0].y);
    return broken;
}
