// The backend's kernels as the double runs them: their own source, compiled as C++.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/binary.cu"
#include "kernels/cast.cu"
#include "kernels/copy.cu"
#include "kernels/fill.cu"
#include "kernels/gather.cu"
#include "kernels/indices.cu"
#include "kernels/matmul.cu"
#include "kernels/reduce.cu"
#include "kernels/scatter_add.cu"
#include "kernels/unary.cu"
#include "kernels/where.cu"
#include "scale.cu"
