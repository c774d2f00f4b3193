// Building a plan: walks over operands, options of a program, arguments of its kernels.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_OPENCL_LAUNCH_H_
#define BACKENDS_OPENCL_LAUNCH_H_

#include <cstring>
#include <initializer_list>

#include "objects.h"

namespace hal::opencl {

constexpr uint32_t kRankMax = 15;  // room for one more dim where elements are split into units

// As kernels take it; twin of Walk in kernels/prelude.cl.
struct Walk {
  int64_t dims[16] = {}, strides[4][16] = {};
  int32_t rank = 0, padding = 0;

  // Adds a dim inside the ones before it; neighbours that are contiguous in every operand merge.
  void add(int64_t dim, std::initializer_list<int64_t> steps) {
    count_ *= dim;
    if (dim == 1) return;
    bool merges = rank > 0;
    uint32_t k = 0;
    for (int64_t step : steps) merges = merges && strides[k++][rank - 1] == step * dim;
    if (!merges) dims[rank++] = 1;
    dims[rank - 1] *= dim;
    k = 0;
    for (int64_t step : steps) strides[k++][rank - 1] = step;
    operands_ = k;
  }
  int64_t count() const { return count_; }
  // Whether every operand lies element after element.
  bool dense() const {
    for (uint32_t k = 0; rank == 1 && k < operands_; ++k)
      if (strides[k][0] != 1) return false;
    return rank <= 1;
  }

 private:
  int64_t count_ = 1;
  uint32_t operands_ = 0;
};
constexpr size_t kWalkBytes = 16 * 8 + 4 * 16 * 8 + 8;  // what of it is a kernel's argument

inline const char* token(uint32_t dtype) {
  switch (dtype) {
    case ANYHAL_DTYPE_F32:
      return "F32";
    case ANYHAL_DTYPE_F16:
      return "F16";
    case ANYHAL_DTYPE_BF16:
      return "BF16";
    case ANYHAL_DTYPE_F64:
      return "F64";
    case ANYHAL_DTYPE_I64:
      return "I64";
    case ANYHAL_DTYPE_I32:
      return "I32";
    case ANYHAL_DTYPE_I16:
      return "I16";
    case ANYHAL_DTYPE_I8:
      return "I8";
    case ANYHAL_DTYPE_U64:
      return "U64";
    case ANYHAL_DTYPE_U32:
      return "U32";
    case ANYHAL_DTYPE_U16:
      return "U16";
    case ANYHAL_DTYPE_U8:
      return "U8";
    case ANYHAL_DTYPE_BOOL:
      return "BOOL";
    case ANYHAL_DTYPE_F8_E4M3FN:
      return "F8_E4M3FN";
    case ANYHAL_DTYPE_F8_E5M2:
      return "F8_E5M2";
    case ANYHAL_DTYPE_F8_E4M3FNUZ:
      return "F8_E4M3FNUZ";
    case ANYHAL_DTYPE_F8_E5M2FNUZ:
      return "F8_E5M2FNUZ";
    case ANYHAL_DTYPE_Q4_0:
      return "Q4_0";
    case ANYHAL_DTYPE_Q4_1:
      return "Q4_1";
    case ANYHAL_DTYPE_Q8_0:
      return "Q8_0";
    case ANYHAL_DTYPE_Q4_K:
      return "Q4_K";
    case ANYHAL_DTYPE_Q6_K:
      return "Q6_K";
    default:
      return "";
  }
}

// The unsigned type of OpenCL C with that many bytes.
inline const char* unsigned_type(uint32_t bytes) {
  return bytes == 1 ? "uchar" : bytes == 2 ? "ushort" : bytes == 4 ? "uint" : "ulong";
}

// -D options of a program.
class Options {
 public:
  Options& set(const char* name) {
    text_ += std::string(" -D") + name;
    return *this;
  }
  Options& set(const char* name, const std::string& value) {
    text_ += std::string(" -D") + name + "=" + value;
    return *this;
  }
  Options& set(const char* name, int64_t value) { return set(name, std::to_string(value)); }
  Options& dtype(const char* name, const Tensor& t) { return set(name, token(t.dtype)); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// One kernel's launch, argument by argument.
class LaunchBuilder {
 public:
  explicit LaunchBuilder(Launch& launch) : launch_(launch) {}
  LaunchBuilder& operand(uint32_t i) {
    Argument a;
    a.kind = Argument::kOperand;
    a.operand = i;
    return add(std::move(a));
  }
  LaunchBuilder& workspace() { return special(Argument::kWorkspace); }
  LaunchBuilder& fault() { return special(Argument::kFault); }
  LaunchBuilder& tag() { return special(Argument::kTag); }
  LaunchBuilder& walk(const Walk& w) { return bytes(&w, kWalkBytes); }
  template <class T>
  LaunchBuilder& value(const T& v) {
    return bytes(&v, sizeof(v));
  }
  // Items: rounded up to whole groups.
  void run(size_t items, size_t group) {
    launch_.rank = 1;
    launch_.local[0] = group;
    launch_.global[0] = (items + group - 1) / group * group;
  }
  void run(std::initializer_list<size_t> groups, std::initializer_list<size_t> group) {
    launch_.rank = static_cast<cl_uint>(groups.size());
    for (size_t d = 0; d < groups.size(); ++d) {
      launch_.local[d] = group.begin()[d];
      launch_.global[d] = groups.begin()[d] * launch_.local[d];
    }
  }

 private:
  LaunchBuilder& bytes(const void* data, size_t size) {
    Argument a;
    a.bytes.assign(static_cast<const unsigned char*>(data),
                   static_cast<const unsigned char*>(data) + size);
    return add(std::move(a));
  }
  LaunchBuilder& special(Argument::Kind kind) {
    Argument a;
    a.kind = kind;
    return add(std::move(a));
  }
  LaunchBuilder& add(Argument a) {
    launch_.arguments.push_back(std::move(a));
    return *this;
  }
  Launch& launch_;
};

// What the ops write their plans with.
class Builder {
 public:
  Builder(Device& device, const Desc& desc, Plan& plan)
      : device_(device), desc_(desc), plan_(plan) {}
  const Desc& desc() const { return desc_; }
  const Found& facts() const { return *device_.facts; }
  const Tensor& operand(uint32_t i) const { return sdk::operand(desc_, i); }
  bool present(uint32_t i) const {
    return i < desc_.operand_count && !absent(sdk::operand(desc_, i));
  }
  // At most `wanted` items, and no more than the device takes in a group; a power of two.
  size_t group(size_t wanted) const {
    while (wanted > 1 && wanted > facts().group_size) wanted /= 2;
    return wanted;
  }
  LaunchBuilder launch(const std::string& source, const char* kernel, const Options& options) {
    Launch launch;
    launch.program = program_for(device_, source, options.text());
    launch.kernel = kernel;
    plan_.launches.push_back(std::move(launch));
    return LaunchBuilder(plan_.launches.back());
  }
  // Launches what reports an index of operand i outside [0, limit) before anything is written.
  void check_indices(uint32_t i, int64_t limit) {
    const Tensor& t = operand(i);
    Walk walk;
    for (uint32_t d = 0; d < t.rank; ++d) walk.add(t.dims[d], {t.strides[d]});
    if (walk.count() == 0) return;
    plan_.checks = true;
    launch("", "check_indices", Options().dtype("INDEX", t))
        .operand(i)
        .walk(walk)
        .value(static_cast<uint64_t>(walk.count()))
        .value(limit)
        .fault()
        .tag()
        .run(static_cast<size_t>(walk.count()), group(64));
  }

 private:
  Device& device_;
  const Desc& desc_;
  Plan& plan_;
};

}  // namespace hal::opencl

#endif  // BACKENDS_OPENCL_LAUNCH_H_
