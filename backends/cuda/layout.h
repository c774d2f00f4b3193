// From a description to the structures that kernels take: strides gathered, dims merged.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CUDA_LAYOUT_H_
#define BACKENDS_CUDA_LAYOUT_H_

#include <initializer_list>

#include "anyhal/backend.h"
#include "anyhal/sdk/view.hpp"
#include "kernels/params.h"

namespace hal::cuda {

using Desc = anyhal_op_desc;
using Tensor = anyhal_tensor_desc;

// Collects dims from the outermost in; what all sides cross in equal steps becomes one dim.
class WalkMaker {
 public:
  WalkMaker(Walk* walk, Side* sides, int count) : walk_(walk), sides_(sides) {
    *walk = {};
    walk->count = 1;
    walk->sides = count;
  }
  void add(int64_t dim, std::initializer_list<int64_t> strides) {
    walk_->count *= dim;
    if (dim == 1) return;
    const int last = walk_->rank - 1;
    const int64_t* stride = strides.begin();
    bool merges = last >= 0;
    for (int k = 0; merges && k < walk_->sides; ++k)
      merges = sides_[k].strides[last] == stride[k] * dim;
    if (merges) {
      walk_->dims[last] *= dim;
    } else {
      walk_->dims[walk_->rank++] = dim;
    }
    for (int k = 0; k < walk_->sides; ++k) sides_[k].strides[walk_->rank - 1] = stride[k];
  }

 private:
  Walk* walk_;
  Side* sides_;
};

}  // namespace hal::cuda

#endif  // BACKENDS_CUDA_LAYOUT_H_
