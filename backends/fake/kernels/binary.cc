// binary: one function of each pair; broadcasts arrive as stride 0.
// SPDX-License-Identifier: Apache-2.0
#include "kernels.hh"

namespace hal::fake::kernels {
namespace {

double remainder_like_python(double a, double b) {
  double result = std::fmod(a, b);
  if (result != 0 && (result < 0) != (b < 0)) result += b;
  return result == 0 ? std::copysign(0.0, b) : result;
}

double floor_divide(double a, double b) {
  const double quotient = a / b;
  if (b == 0 || !std::isfinite(quotient)) return b == 0 ? quotient : std::floor(quotient);
  return std::nearbyint((a - remainder_like_python(a, b)) / b);
}

double logaddexp(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return a + b;
  if (a == b) return a + std::log(2.0);
  return std::fmax(a, b) + std::log1p(std::exp(-std::fabs(a - b)));
}

// The neighbour of the number at `a` towards the one at `b`: magnitudes are ordered as their bits.
void store_neighbour(uint32_t dtype, const uint8_t* a, const uint8_t* b, uint8_t* to) {
  const double x = load_float(dtype, a), y = load_float(dtype, b);
  const uint64_t bytes = unit_bytes(dtype);
  uint64_t bits = 0;
  std::memcpy(&bits, x == y || std::isnan(y) ? b : a, bytes);
  if (x == 0 && (y < 0 || y > 0)) {
    bits = (y < 0 ? uint64_t{1} << (8 * bytes - 1) : 0) | 1;
  } else if (x < y || x > y) {
    bits += (x < y) == (x > 0) ? uint64_t{1} : ~uint64_t{0};
  }
  std::memcpy(to, &bits, bytes);
}

double apply_float(int32_t fn, double a, double b) {
  switch (fn) {
    case ANYHAL_BINARY_FN_ADD:
      return a + b;
    case ANYHAL_BINARY_FN_SUBTRACT:
      return a - b;
    case ANYHAL_BINARY_FN_MULTIPLY:
      return a * b;
    case ANYHAL_BINARY_FN_DIVIDE:
      return a / b;
    case ANYHAL_BINARY_FN_FLOOR_DIVIDE:
      return floor_divide(a, b);
    case ANYHAL_BINARY_FN_REMAINDER:
      return remainder_like_python(a, b);
    case ANYHAL_BINARY_FN_POW:
      return std::pow(a, b);
    case ANYHAL_BINARY_FN_MAXIMUM:
      return std::isnan(a) || a > b ? a : b;
    case ANYHAL_BINARY_FN_MINIMUM:
      return std::isnan(a) || a < b ? a : b;
    case ANYHAL_BINARY_FN_LOGADDEXP:
      return logaddexp(a, b);
    case ANYHAL_BINARY_FN_COPYSIGN:
      return std::copysign(a, b);
    case ANYHAL_BINARY_FN_HYPOT:
      return std::hypot(a, b);
    default:
      return std::atan2(a, b);
  }
}

template <class T>
bool compare(int32_t fn, T a, T b) {
  switch (fn) {
    case ANYHAL_BINARY_FN_EQUAL:
      return a == b;
    case ANYHAL_BINARY_FN_NOT_EQUAL:
      return a != b;
    case ANYHAL_BINARY_FN_LESS:
      return a < b;
    case ANYHAL_BINARY_FN_LESS_EQUAL:
      return a <= b;
    case ANYHAL_BINARY_FN_GREATER:
      return a > b;
    default:
      return a >= b;
  }
}

uint64_t power(uint64_t base, uint64_t exponent) {
  uint64_t result = 1;
  for (; exponent != 0; exponent >>= 1, base *= base)
    if ((exponent & 1) != 0) result *= base;
  return result;
}

uint64_t signed_power(int64_t base, int64_t exponent) {
  if (exponent >= 0) return power(static_cast<uint64_t>(base), static_cast<uint64_t>(exponent));
  if (base == 1) return 1;
  return base == -1 ? (exponent % 2 == 0 ? 1 : ~0ull) : 0;
}

// A quotient rounded down and its remainder; x by 0 gives 0, and the smallest by -1 wraps.
int64_t divide(int32_t fn, int64_t a, int64_t b, bool is_unsigned) {
  const bool wants_quotient = fn == ANYHAL_BINARY_FN_FLOOR_DIVIDE;
  if (b == 0) return 0;
  if (is_unsigned) {
    const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    return static_cast<int64_t>(wants_quotient ? x / y : x % y);
  }
  if (b == -1) return wants_quotient ? static_cast<int64_t>(0 - static_cast<uint64_t>(a)) : 0;
  const int64_t quotient = a / b, rest = a % b;
  const bool down = rest != 0 && (rest < 0) != (b < 0);
  return wants_quotient ? quotient - down : rest + (down ? b : 0);
}

int64_t shift(int32_t fn, int64_t a, int64_t b, int bits, bool is_unsigned) {
  const bool far = b < 0 || b >= bits;
  if (fn == ANYHAL_BINARY_FN_SHIFT_LEFT)
    return far ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << b);
  if (is_unsigned) return far ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) >> b);
  return a >> (far ? bits - 1 : b);
}

int64_t apply_int(int32_t fn, int64_t a, int64_t b, int bits, bool is_unsigned) {
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  const bool less = is_unsigned ? x < y : a < b;
  switch (fn) {
    case ANYHAL_BINARY_FN_ADD:
      return static_cast<int64_t>(x + y);
    case ANYHAL_BINARY_FN_SUBTRACT:
      return static_cast<int64_t>(x - y);
    case ANYHAL_BINARY_FN_MULTIPLY:
      return static_cast<int64_t>(x * y);
    case ANYHAL_BINARY_FN_FLOOR_DIVIDE:
    case ANYHAL_BINARY_FN_REMAINDER:
      return divide(fn, a, b, is_unsigned);
    case ANYHAL_BINARY_FN_POW:
      return static_cast<int64_t>(is_unsigned ? power(x, y) : signed_power(a, b));
    case ANYHAL_BINARY_FN_MAXIMUM:
      return less ? b : a;
    case ANYHAL_BINARY_FN_MINIMUM:
      return less ? a : b;
    case ANYHAL_BINARY_FN_LOGICAL_AND:
    case ANYHAL_BINARY_FN_BITWISE_AND:
      return a & b;
    case ANYHAL_BINARY_FN_LOGICAL_OR:
    case ANYHAL_BINARY_FN_BITWISE_OR:
      return a | b;
    case ANYHAL_BINARY_FN_LOGICAL_XOR:
    case ANYHAL_BINARY_FN_BITWISE_XOR:
      return a ^ b;
    default:
      return shift(fn, a, b, bits, is_unsigned);
  }
}

bool compare_any(int32_t fn, uint32_t dtype, const uint8_t* a, const uint8_t* b) {
  if (family(dtype) == Family::kFloat)
    return compare(fn, load_float(dtype, a), load_float(dtype, b));
  if (family(dtype) == Family::kSigned) return compare(fn, load_int(dtype, a), load_int(dtype, b));
  return compare(fn, static_cast<uint64_t>(load_int(dtype, a)),
                 static_cast<uint64_t>(load_int(dtype, b)));
}

}  // namespace

void binary(const Description& d, const Pointers& p) {
  const Tensor &a = d.tensors[0], &b = d.tensors[1], &out = d.tensors[2];
  const int32_t fn = d.attrs<anyhal_attrs_binary>().fn;
  const bool compares = fn >= ANYHAL_BINARY_FN_EQUAL && fn <= ANYHAL_BINARY_FN_GREATER_EQUAL;
  const uint64_t unit = unit_bytes(a.dtype);
  const int bits = static_cast<int>(unit) * 8;
  const bool is_unsigned = family(a.dtype) != Family::kSigned;
  for_each<3>(out.dims, {&a.strides, &b.strides, &out.strides}, [&](const auto& at) {
    const uint8_t *x = p[0] + at[0] * unit, *y = p[1] + at[1] * unit;
    uint8_t* to = p[2] + at[2] * unit_bytes(out.dtype);
    if (compares) {
      store_int(out.dtype, to, compare_any(fn, a.dtype, x, y));
    } else if (fn == ANYHAL_BINARY_FN_NEXTAFTER) {
      store_neighbour(a.dtype, x, y, to);
    } else if (family(a.dtype) == Family::kFloat) {
      store_float(out.dtype, to, apply_float(fn, load_float(a.dtype, x), load_float(b.dtype, y)));
    } else {
      store_int(out.dtype, to,
                apply_int(fn, load_int(a.dtype, x), load_int(b.dtype, y), bits, is_unsigned));
    }
  });
}

}  // namespace hal::fake::kernels
