// The one structure that each kernel takes, as host and device see it.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CUDA_KERNELS_PARAMS_H_
#define BACKENDS_CUDA_KERNELS_PARAMS_H_

#include "anyhal/ops.h"

namespace hal::cuda {

enum { kDims = 8, kSides = 5, kBlock = 256 };

// The numbers of anyhal_dtype; params.cc's static_asserts hold them to it.
enum Dtype : int {
  kF32 = 1,
  kF16 = 2,
  kBF16 = 3,
  kF64 = 4,
  kI64 = 5,
  kI32 = 6,
  kI16 = 7,
  kI8 = 8,
  kU64 = 9,
  kU32 = 10,
  kU16 = 11,
  kU8 = 12,
  kBool = 13,
  kE4M3FN = 14,
  kE5M2 = 15,
  kE4M3FNUZ = 16,
  kE5M2FNUZ = 17,
  kQ4_1 = 64,
  kQ8_0 = 65,
  kI4 = 66,
  kU4 = 67,
  kQ4_0 = 68,
  kQ4_K = 69,
  kQ6_K = 70,
};

// Written by a kernel that met a value it cannot serve; read by whoever waits for the queue.
struct KernelFault {
  long long raised;
  long long index;
  long long limit;
  unsigned long long tag;  // of the call
};

// An operand: where it is and how far one step of each dim goes, in its own units.
struct Side {
  unsigned char* data;
  long long strides[kDims];
};

// A walk over `count` positions; dims that every operand crosses alike were merged beforehand.
struct Walk {
  long long count;
  long long dims[kDims];
  int rank;
  int sides;
};

// copy, fill, cast, unary, binary, where, gather: one position, one element of the last side; and
// the look at indices, one position each.
struct Map {
  Walk walk;
  Side side[kSides];
  int fn;                // of the op's enumeration
  int dtype;             // of the inputs
  int out_dtype;         // of the output
  int bytes;             // of one unit, where a kernel moves bytes and does not read them
  unsigned inline_mask;  // bit i: side i is value[i], not memory
  int index_dtype;       // gather, indices
  unsigned char value[kSides][8];
  long long axis_stride;  // gather: of the operand, in units
  long long limit;        // indices: of the axis
  long long pair[2];      // cast of packed integers: how far the second of a pair is
  KernelFault* fault;
  unsigned long long tag;
};

// reduce: `kept` walks the outputs, `folded` what falls into one of them. Side 0 is x, 1 is out;
// side 2 has x's strides over `folded`.
struct Reduce {
  Walk kept, folded;
  Side side[3];
  int fn, dtype, out_dtype, pad;
};

// scatter_add: `walk` goes over the output, `list` over the indices. Sides of `walk`: target,
// updates, out, and a counter that stands at the coordinate along the axis; of `list`: indices,
// updates.
struct Scatter {
  Walk walk, list;
  Side side[4], list_side[2];
  int dtype, index_dtype;
  KernelFault* fault;
};

// matmul: `batch` walks the matrices; sides are a, b, out.
struct Product {
  Walk batch;
  Side side[3];
  long long rows, columns, inner;
  long long a_row, a_inner, b_inner, b_column, out_row, out_column;
  int dtype, out_dtype;
};

}  // namespace hal::cuda

#endif  // BACKENDS_CUDA_KERNELS_PARAMS_H_
