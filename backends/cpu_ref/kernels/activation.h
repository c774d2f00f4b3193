// Activations, on doubles: of unary, and of the products with an epilogue.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CPU_REF_KERNELS_ACTIVATION_H_
#define BACKENDS_CPU_REF_KERNELS_ACTIVATION_H_

#include <cmath>

#include "anyhal/ops.h"

namespace hal::cpu_ref {

// Neither branch overflows.
inline double sigmoid(double x) {
  double e = std::exp(-std::fabs(x));
  return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

inline double relu(double x) { return x < 0 ? 0.0 : x; }  // NaN stays

// x * gate, with the limit -0 at -infinity instead of NaN.
inline double gated(double x, double gate) { return x == -HUGE_VAL ? -0.0 : x * gate; }

inline double silu(double x) { return gated(x, sigmoid(x)); }

// erfc keeps the digits of the negative tail, which 1 + erf would cancel.
inline double gelu(double x) { return gated(x, std::erfc(-x * M_SQRT1_2) / 2); }

// x/2 (1 + tanh(u)) equals x sigmoid(2u), again without cancellation.
inline double gelu_tanh(double x) {
  return gated(x, sigmoid(2 * std::sqrt(M_2_PI) * (x + 0.044715 * x * x * x)));
}

inline double activate(int32_t activation, double x) {
  switch (activation) {
    case ANYHAL_ACTIVATION_RELU:
      return relu(x);
    case ANYHAL_ACTIVATION_GELU:
      return gelu(x);
    case ANYHAL_ACTIVATION_GELU_TANH:
      return gelu_tanh(x);
    case ANYHAL_ACTIVATION_SILU:
      return silu(x);
    case ANYHAL_ACTIVATION_SIGMOID:
      return sigmoid(x);
    case ANYHAL_ACTIVATION_TANH:
      return std::tanh(x);
    default:
      return x;
  }
}

}  // namespace hal::cpu_ref

#endif  // BACKENDS_CPU_REF_KERNELS_ACTIVATION_H_
