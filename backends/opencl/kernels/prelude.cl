// What every kernel begins with: elements by dtype, walks over strided operands, index checks.
// SPDX-License-Identifier: Apache-2.0
//
// Built with -D: X=F32 and the like name the dtypes of operands; DOUBLES says that f64 is there,
// EXACT_DIVIDE that f32 division and square root are correctly rounded, DENSE that every operand
// lies element after element.
#pragma OPENCL FP_CONTRACT OFF
#ifdef DOUBLES
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define VALUE(D) JOIN(value_, D)
#define LOAD(D) JOIN(load_, D)
#define STORE(D) JOIN(store_, D)

typedef __global const uchar* In;
typedef __global uchar* Out;

// What an element of a dtype is computed in.
typedef float value_F32;
typedef float value_F16;
typedef float value_BF16;
typedef long value_I64;
typedef int value_I32;
typedef short value_I16;
typedef char value_I8;
typedef ulong value_U64;
typedef uint value_U32;
typedef ushort value_U16;
typedef uchar value_U8;
typedef uchar value_BOOL;

#define PLAIN_ELEMENT(D, T)                                             \
  T load_##D(In p, long i) { return ((__global const T*)p)[i]; }        \
  void store_##D(Out p, long i, T v) { ((__global T*)p)[i] = v; }
PLAIN_ELEMENT(F32, float)
PLAIN_ELEMENT(I64, long)
PLAIN_ELEMENT(I32, int)
PLAIN_ELEMENT(I16, short)
PLAIN_ELEMENT(I8, char)
PLAIN_ELEMENT(U64, ulong)
PLAIN_ELEMENT(U32, uint)
PLAIN_ELEMENT(U16, ushort)
PLAIN_ELEMENT(U8, uchar)
#ifdef DOUBLES
typedef double value_F64;
PLAIN_ELEMENT(F64, double)
#endif
uchar load_BOOL(In p, long i) { return p[i] != 0; }
void store_BOOL(Out p, long i, uchar v) { p[i] = v != 0; }

float load_F16(In p, long i) { return vload_half(i, (__global const half*)p); }
void store_F16(Out p, long i, float v) { vstore_half_rte(v, i, (__global half*)p); }

float load_BF16(In p, long i) { return as_float((uint)((__global const ushort*)p)[i] << 16); }
void store_BF16(Out p, long i, float v) {
  uint bits = as_uint(v);
  bits = v != v ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1u);
  ((__global ushort*)p)[i] = (ushort)(bits >> 16);
}

// f32 division and square root may be off by 2.5 ulp unless the device says otherwise; through f64
// the second rounding is innocuous.
#if defined(EXACT_DIVIDE) || !defined(DOUBLES)
#define DIVIDE(a, b) ((a) / (b))
#define SQUARE_ROOT(a) sqrt(a)
#else
float __attribute__((overloadable)) divided(float a, float b) {
  return (float)((double)a / (double)b);
}
double __attribute__((overloadable)) divided(double a, double b) { return a / b; }
float __attribute__((overloadable)) rooted(float a) { return (float)sqrt((double)a); }
double __attribute__((overloadable)) rooted(double a) { return sqrt(a); }
#define DIVIDE(a, b) divided(a, b)
#define SQUARE_ROOT(a) rooted(a)
#endif

#ifdef FP_FAST_FMAF
#define MULTIPLY_ADD(a, b, c) fma(a, b, c)
#else
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#endif

// Operands with the same dims, neighbouring ones merged; twin of Walk in launch.h.
typedef struct {
  long dims[16];
  long strides[4][16];
  int rank;
  int padding;
} Walk;

// Offset of position i in operand k.
#ifdef DENSE
#define PLACE(walk, k, i) ((long)(i))
#else
#define PLACE(walk, k, i) place(&(walk), k, i)
#endif
long place(const Walk* walk, int k, ulong i) {
  long at = 0;
  for (int d = walk->rank - 1; d > 0; --d) {
    const ulong rest = i / (ulong)walk->dims[d];
    at += walk->strides[k][d] * (long)(i - rest * (ulong)walk->dims[d]);
    i = rest;
  }
  return walk->rank > 0 ? at + walk->strides[k][0] * (long)i : at;
}

// The queue's report of the first index outside its range; twin of Fault in objects.h.
typedef struct {
  int set, padding;
  ulong tag;
  long index, limit;
} Fault;

void report_index(__global Fault* fault, ulong tag, long index, long limit) {
  if (atomic_cmpxchg((volatile __global int*)&fault->set, 0, 1) != 0) return;
  fault->tag = tag;
  fault->index = index;
  fault->limit = limit;
}

#ifdef INDEX
// Runs before the kernel that uses the indices, which then does nothing after a report.
__kernel void check_indices(In indices, ulong indices_at, const Walk walk, ulong count, long limit,
                            __global Fault* fault, ulong tag) {
  const ulong i = get_global_id(0);
  if (i >= count) return;
  const long index = LOAD(INDEX)(indices + indices_at, place(&walk, 0, i));
  if (index < 0 || index >= limit) report_index(fault, tag, index, limit);
}
#endif
