// What every kernel is written with. The same source is device code for a CUDA compiler and, for
// the test double of the driver, C++ that does block by block what a device does.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CUDA_KERNELS_DEVICE_CUH_
#define BACKENDS_CUDA_KERNELS_DEVICE_CUH_

#include "params.h"

#ifdef __CUDACC__
#define HAL_DEVICE __device__ __forceinline__
#define HAL_SHARED __shared__
#define HAL_KERNEL(name, Params) extern "C" __global__ void name(const Params p)
// Positions in steps of the whole grid.
#define HAL_EACH(i, total)                                                          \
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < (total); \
       i += (long long)gridDim.x * blockDim.x)
#define HAL_EACH_BLOCK(i, total) for (long long i = blockIdx.x; i < (total); i += gridDim.x)
// What all threads of a block do before any of them goes on.
#define HAL_PHASE(t) for (int t = threadIdx.x, once = 1; once; once = 0, __syncthreads())
// Ends the kernel where an earlier one of its queue met a bad index. The record is the host's memory,
// so one thread of a block asks for all.
#define HAL_STOP_AFTER_FAULT(fault) \
  if (__syncthreads_or(threadIdx.x == 0 && hal::cuda::has_fault(fault))) return
namespace hal::cuda {
template <class T>
HAL_DEVICE T* reach(T* pointer) {
  return pointer;
}
}  // namespace hal::cuda
#else
#include "cuda_double.h"  // of tests/doubles/cuda
#endif

namespace hal::cuda {

// ------------------------------------------------------------------------------------- places

struct Place {
  long long at[kSides];
};

// Where position `i` of a walk lies in each side.
HAL_DEVICE Place locate(const Walk& walk, const Side* side, long long i) {
  Place place = {};
  if (walk.count <= 0x7fffffff) {  // 32-bit division is several times cheaper
    unsigned left = (unsigned)i;
    for (int d = walk.rank - 1; d >= 0; --d) {
      const unsigned size = (unsigned)walk.dims[d], rest = left / size;
      const long long digit = left - rest * size;
      for (int k = 0; k < walk.sides; ++k) place.at[k] += digit * side[k].strides[d];
      left = rest;
    }
    return place;
  }
  for (int d = walk.rank - 1; d >= 0; --d) {
    const long long rest = i / walk.dims[d], digit = i - rest * walk.dims[d];
    for (int k = 0; k < walk.sides; ++k) place.at[k] += digit * side[k].strides[d];
    i = rest;
  }
  return place;
}

HAL_DEVICE const unsigned char* data_of(const Map& p, int k) {
  return p.inline_mask >> k & 1 ? p.value[k] : p.side[k].data;
}

// ----------------------------------------------------------------------------------- elements

union Bits32 {
  float f;
  unsigned u;
};

HAL_DEVICE float float_of(unsigned bits) {
  Bits32 b;
  b.u = bits;
  return b.f;
}
HAL_DEVICE unsigned bits_of(float value) {
  Bits32 b;
  b.f = value;
  return b.u;
}

HAL_DEVICE float half_to_float(unsigned h) {
  const unsigned magnitude = (h & 0x7fff) << 13;
  // The biases differ by 112; the product also normalises what is subnormal as a half.
  unsigned bits = bits_of(float_of(magnitude) * 5192296858534827628530496329220096.0f);
  if (magnitude >= 0x0f800000u) bits |= 0x7f800000u;  // infinity and NaN
  return float_of(bits | (h & 0x8000) << 16);
}
HAL_DEVICE unsigned float_to_half(float value) {
  const unsigned bits = bits_of(value), sign = bits >> 16 & 0x8000, x = bits & 0x7fffffff;
  if (x > 0x7f800000u) return sign | 0x7e00;
  if (x < 0x38800000u)  // at 1/2 a float's last place is that of a subnormal half
    return sign | (bits_of(float_of(x) + 0.5f) - 0x3f000000u);
  const unsigned h = (x + 0xfff + (x >> 13 & 1) - (112u << 23)) >> 13;
  return sign | (h > 0x7c00 ? 0x7c00 : h);
}
HAL_DEVICE unsigned float_to_bfloat(float value) {
  const unsigned x = bits_of(value);
  if ((x & 0x7fffffff) > 0x7f800000u) return x >> 16 | 0x40;
  return (x + 0x7fff + (x >> 16 & 1)) >> 16;
}
// For a value that is rounded again: an inexact one gets an odd last bit, so that rounding twice
// gives what rounding once would.
HAL_DEVICE float to_odd(double value) {
  const float f = (float)value;
  if (value != value || (double)f == value) return f;
  unsigned bits = bits_of(f);
  if ((f < 0 ? -(double)f : (double)f) > (value < 0 ? -value : value)) --bits;
  return float_of(bits | 1);
}

HAL_DEVICE bool is_float(int dtype) { return dtype >= kF32 && dtype <= kF64; }
HAL_DEVICE bool is_unsigned(int dtype) { return dtype >= kU64 && dtype <= kU8; }
HAL_DEVICE int bits_in(int dtype) {
  switch (dtype) {
    case kI64:
    case kU64:
    case kF64:
      return 64;
    case kI32:
    case kU32:
    case kF32:
      return 32;
    case kI16:
    case kU16:
    case kF16:
    case kBF16:
      return 16;
    default:
      return 8;
  }
}

// Arithmetic has two types: double for floats, which rounds once at the end, and 64-bit integers,
// whose low bits are those of every narrower type.
HAL_DEVICE double load_float(int dtype, const unsigned char* from, long long i) {
  switch (dtype) {
    case kF32:
      return *reach((const float*)from + i);
    case kF64:
      return *reach((const double*)from + i);
    case kF16:
      return half_to_float(*reach((const unsigned short*)from + i));
    default:
      return float_of((unsigned)*reach((const unsigned short*)from + i) << 16);
  }
}
HAL_DEVICE long long load_int(int dtype, const unsigned char* from, long long i) {
  switch (dtype) {
    case kI64:
    case kU64:
      return *reach((const long long*)from + i);
    case kI32:
      return *reach((const int*)from + i);
    case kU32:
      return *reach((const unsigned*)from + i);
    case kI16:
      return *reach((const short*)from + i);
    case kU16:
      return *reach((const unsigned short*)from + i);
    case kI8:
      return *reach((const signed char*)from + i);
    case kU8:
      return *reach(from + i);
    default:
      return *reach(from + i) != 0;  // bool
  }
}
HAL_DEVICE void store_float(int dtype, unsigned char* to, long long i, double value) {
  switch (dtype) {
    case kF32:
      *reach((float*)to + i) = (float)value;
      return;
    case kF64:
      *reach((double*)to + i) = value;
      return;
    case kF16:
      *reach((unsigned short*)to + i) = (unsigned short)float_to_half(to_odd(value));
      return;
    default:
      *reach((unsigned short*)to + i) = (unsigned short)float_to_bfloat(to_odd(value));
      return;
  }
}
HAL_DEVICE void store_int(int dtype, unsigned char* to, long long i, long long value) {
  switch (dtype) {
    case kI64:
    case kU64:
      *reach((long long*)to + i) = value;
      return;
    case kI32:
    case kU32:
      *reach((int*)to + i) = (int)value;
      return;
    case kI16:
    case kU16:
      *reach((short*)to + i) = (short)value;
      return;
    case kBool:
      *reach(to + i) = value != 0;
      return;
    default:
      *reach(to + i) = (unsigned char)value;
      return;
  }
}

// Moves one unit without reading it as a number.
HAL_DEVICE void move(int bytes, const unsigned char* from, long long i, unsigned char* to,
                     long long j) {
  switch (bytes) {
    case 1:
      *reach(to + j) = *reach(from + i);
      return;
    case 2:
      *reach((short*)to + j) = *reach((const short*)from + i);
      return;
    case 4:
      *reach((int*)to + j) = *reach((const int*)from + i);
      return;
    case 8:
      *reach((long long*)to + j) = *reach((const long long*)from + i);
      return;
    default:  // blocks of even size
      for (int k = 0; k < bytes / 2; ++k)
        *reach((short*)to + j * (bytes / 2) + k) = *reach((const short*)from + i * (bytes / 2) + k);
      return;
  }
}

HAL_DEVICE bool has_fault(const KernelFault* fault) {
  return ((const volatile KernelFault*)reach(fault))->raised != 0;
}
// Of several threads that meet a bad index any may be the one that is told.
HAL_DEVICE void raise_fault(KernelFault* fault, long long index, long long limit,
                            unsigned long long tag) {
  volatile KernelFault* word = reach(fault);
  word->index = index;
  word->limit = limit;
  word->tag = tag;
  word->raised = 1;
}

}  // namespace hal::cuda

#endif  // BACKENDS_CUDA_KERNELS_DEVICE_CUH_
