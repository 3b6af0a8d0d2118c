// One language for CUDA C++ and OpenCL C 1.2: kernels use these names only.
//
// Doubles are rounded as written: no contraction of a product and a sum, no fast mathematics. The compilers' options in
// `src/text.rs` see to it in CUDA, the pragma below in OpenCL.
#ifdef __OPENCL_VERSION__
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF
typedef ulong u64;
typedef long i64;
typedef uint u32;
typedef double f64;
typedef ulong2 pair64;
typedef uint2 pair32;
#define KERNEL(threads) __kernel __attribute__((reqd_work_group_size(threads, 1, 1))) void
#define GLOBAL __global
#define SHARED __local
#define DEVICE static inline
#define RESTRICT restrict
#define BLOCK_X ((u32)get_group_id(0))
#define BLOCK_Y ((u32)get_group_id(1))
#define THREAD ((u32)get_local_id(0))
#define SYNC() barrier(CLK_LOCAL_MEM_FENCE)
#define MUL_HIGH(a, b) mul_hi((u64)(a), (u64)(b))
#define FMA(a, b, c) fma(a, b, c)
#define FMUL(a, b) ((a) * (b))
#define FADD(a, b) ((a) + (b))
#define FSUB(a, b) ((a) - (b))
#define BITS(x) as_ulong(x)
#define NUMBER(x) as_double(x)
DEVICE u32 reverse32(u32 x) {
    x = (x >> 16) | (x << 16);
    x = ((x >> 8) & 0x00ff00ffu) | ((x & 0x00ff00ffu) << 8);
    x = ((x >> 4) & 0x0f0f0f0fu) | ((x & 0x0f0f0f0fu) << 4);
    x = ((x >> 2) & 0x33333333u) | ((x & 0x33333333u) << 2);
    return ((x >> 1) & 0x55555555u) | ((x & 0x55555555u) << 1);
}
#else
typedef unsigned long long u64;
typedef long long i64;
typedef unsigned int u32;
typedef double f64;
typedef ulonglong2 pair64;
typedef uint2 pair32;
// In integers the assembler would rather spill than take more than 96 registers a thread: up to 128 are allowed it,
// which leaves room for 512 threads.
#if ARITH == 0
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads, 512 / (threads))
#else
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#endif
#define GLOBAL
#define SHARED __shared__
#define DEVICE static __device__ __forceinline__
#define RESTRICT __restrict__
#define BLOCK_X blockIdx.x
#define BLOCK_Y blockIdx.y
#define THREAD threadIdx.x
#define SYNC() __syncthreads()
#define MUL_HIGH(a, b) __umul64hi(a, b)
#define FMA(a, b, c) __fma_rn(a, b, c)
#define FMUL(a, b) __dmul_rn(a, b)
#define FADD(a, b) __dadd_rn(a, b)
#define FSUB(a, b) __dsub_rn(a, b)
#define BITS(x) ((u64)__double_as_longlong(x))
#define NUMBER(x) __longlong_as_double((long long)(x))
#define reverse32(x) __brev(x)
#endif
#define UNROLL _Pragma("unroll")
