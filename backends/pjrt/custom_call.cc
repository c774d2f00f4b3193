// Registering the custom call, trying it, writing it into programs, and serving it.
// SPDX-License-Identifier: Apache-2.0
#include "custom_call.h"

#include <dlfcn.h>
#include <link.h>

#include <cstring>
#include <map>
#include <mutex>

#include "anyhal/sdk/dtypes.hpp"
#include "kernels/block_product.h"
#include "program.h"

namespace hal::pjrt {
namespace {

// Part of every program that calls it, and of what is kept on disk: another meaning, another name.
constexpr char kName[] = "anyhal_block_product_1";

// The numbers that a call carries beside its buffers.
enum Number { kDtype, kM, kN, kK, kFirst, kRowBytes, kNumbers };

ffi::Error* refuse(const ffi::Frame& frame, const char* why) {
  ffi::ErrorCreate record = {};
  record.header.struct_size = sizeof record;
  record.message = why;
  record.code = ffi::kInvalidArgument;
  return frame.api->create_error(&record);
}

// Item i of a list as a flat buffer of this type, or null.
const ffi::Buffer* flat(const ffi::List& list, int64_t i, int dtype) {
  if (i >= list.size || list.kinds[i] != ffi::kBuffer) return nullptr;
  const auto* buffer = static_cast<const ffi::Buffer*>(list.items[i]);
  return buffer->dtype == dtype && buffer->rank == 1 ? buffer : nullptr;
}

bool multiplied(int64_t a, int64_t b, int64_t expected) {
  int64_t product;
  return !__builtin_mul_overflow(a, b, &product) && product == expected;
}

// Whether rows of weights lie inside so many bytes.
bool inside(const int64_t* number, int64_t bytes) {
  const auto dtype = static_cast<uint32_t>(number[kDtype]);
  if (number[kDtype] != dtype || !sdk::kBlocks.has(dtype)) return false;
  const sdk::DtypeFacts facts = sdk::dtype_facts(dtype);
  const int64_t elements = facts.block_elements, n = number[kN], k = number[kK];
  if (n < 1 || k < 1 || k % elements != 0 || number[kFirst] < 0) return false;
  int64_t row, end;
  return !__builtin_mul_overflow(k / elements, int64_t{facts.block_bytes}, &row) &&
         number[kRowBytes] >= row && !__builtin_mul_overflow(n - 1, number[kRowBytes], &end) &&
         !__builtin_add_overflow(end, row, &end) &&
         !__builtin_add_overflow(end, number[kFirst], &end) && end <= bytes;
}

// The plugin's extension for custom calls, where its form is known.
const ffi::FfiExtension* extension_of(const Plugin& plugin) {
  if (plugin.major() != 0 || plugin.minor() < ffi::kMinorLeast || plugin.minor() > ffi::kMinorMost)
    return nullptr;
  const auto* at = static_cast<const ffi::Extension*>(plugin.table()->header.extensions);
  while (at != nullptr && at->type != ffi::kFfiExtension) at = at->next;
  if (at == nullptr || at->struct_size < sizeof(ffi::FfiExtension)) return nullptr;
  const auto* found = reinterpret_cast<const ffi::FfiExtension*>(at);
  return found->register_handler != nullptr ? found : nullptr;
}

// The handler stays registered for the life of the process, so this library has to stay as well.
bool stay() {
  Dl_info self = {};
  link_map* image = nullptr;
  if (dladdr1(reinterpret_cast<void*>(&run_block_product), &self, reinterpret_cast<void**>(&image),
              RTLD_DL_LINKMAP) == 0)
    return false;
  const bool program = image->l_name[0] == '\0';
  return program || dlopen(image->l_name, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE) != nullptr;
}

bool registered(const Plugin& plugin) {
  const ffi::FfiExtension* extension = extension_of(plugin);
  if (extension == nullptr || !stay()) return false;
  ffi::Registration record = {};
  record.struct_size = sizeof record;
  record.name = kName;
  record.name_size = sizeof kName - 1;
  record.handler = reinterpret_cast<void*>(&run_block_product);
  record.platform = "Host";
  record.platform_size = 4;
  // A name that is taken is one that another copy of this library has registered.
  if (api::Error* error = extension->register_handler(&record)) plugin.take(error);
  return true;
}

// Two columns of 32 weights: 0.5 * (i - 16), then 1 each; the first byte is none of theirs.
bool tried(const Plugin& plugin) {
  constexpr int kInner = 32;
  constexpr uint8_t kScales[2][2] = {{0x00, 0x38}, {0x00, 0x3c}};  // 0.5 and 1 in f16
  uint8_t weights[1 + 2 * 34] = {};
  float x[kInner], want[2] = {};
  for (int i = 0; i < kInner; ++i) {
    x[i] = static_cast<float>(i % 5 - 1);
    want[0] += x[i] * 0.5F * static_cast<float>(i - 16);
    want[1] += x[i];
    weights[1 + 2 + i] = static_cast<uint8_t>(i - 16);
    weights[1 + 34 + 2 + i] = 1;
  }
  std::memcpy(weights + 1, kScales[0], 2);
  std::memcpy(weights + 1 + 34, kScales[1], 2);
  Text text;
  const Value in = text.parameter(ANYHAL_DTYPE_F32, {kInner});
  const Value bytes = text.parameter(ANYHAL_DTYPE_U8, {sizeof weights});
  const PackedWeights packed = {ANYHAL_DTYPE_Q8_0, 2, kInner, 1, 34};
  text.result(block_product(text, text.reshape(in, {1, kInner}), bytes, packed));
  const Owned program{plugin, compile(plugin, text.str())};
  api::Buffer* arguments[2] = {plugin.buffer_of(x, sizeof x),
                               plugin.buffer_of(weights, sizeof weights)};
  api::Buffer* out = nullptr;
  api::Error* error = program->run(plugin, arguments, 2, &out, nullptr, {});
  bool right = error == nullptr;
  if (error != nullptr) {
    plugin.take(error);
  } else {
    count(kLiveBuffers);
    right = plugin.await(out).code == 0 && std::memcmp(plugin.pointer(out), want, sizeof want) == 0;
    plugin.destroy(out);
  }
  for (api::Buffer* argument : arguments) plugin.destroy(argument);
  return right;
}

}  // namespace

ffi::Error* run_block_product(ffi::Frame* frame) {
  const auto* extension = frame->header.extensions;
  if (extension != nullptr && extension->type == ffi::kMetadataExtension) {
    ffi::Metadata* asked = reinterpret_cast<const ffi::MetadataExtension*>(extension)->metadata;
    asked->version.major = frame->api->version.major;
    asked->version.minor = frame->api->version.minor;
    return nullptr;
  }
  if (frame->stage != ffi::kExecute) return refuse(*frame, "block product: not an execution");
  const ffi::Buffer *x = flat(frame->arguments, 0, ffi::kF32),
                    *weights = flat(frame->arguments, 1, ffi::kU8),
                    *out = flat(frame->results, 0, ffi::kF32);
  if (x == nullptr || weights == nullptr || out == nullptr || frame->arguments.size != 2 ||
      frame->results.size != 1)
    return refuse(*frame, "block product: it takes flat f32 and bytes, and makes flat f32");
  if (frame->attributes.size != 1 || frame->attributes.kinds[0] != ffi::kArray)
    return refuse(*frame, "block product: its numbers are missing");
  const auto* numbers = static_cast<const ffi::Array*>(frame->attributes.items[0]);
  if (numbers->dtype != ffi::kS64 || numbers->size != kNumbers)
    return refuse(*frame, "block product: its numbers are not six of 64 bits");
  const auto* number = static_cast<const int64_t*>(numbers->data);
  if (!inside(number, weights->dims[0]))
    return refuse(*frame, "block product: the weights leave their buffer");
  if (number[kM] < 1 || !multiplied(number[kM], number[kK], x->dims[0]) ||
      !multiplied(number[kM], number[kN], out->dims[0]))
    return refuse(*frame, "block product: the rows are not those of its buffers");
  const BlockProduct product = {static_cast<const float*>(x->data),
                                static_cast<const uint8_t*>(weights->data) + number[kFirst],
                                static_cast<float*>(out->data),
                                number[kM],
                                number[kN],
                                number[kK],
                                number[kRowBytes],
                                static_cast<uint32_t>(number[kDtype])};
  static const BlockKernel kernel = block_kernel();
  kernel(product, 0, product.n);
  count(kBlockProducts);
  return nullptr;
}

bool has_block_product(const Plugin& plugin, const anyhal_services* services) {
  static std::mutex* mutex = new std::mutex;
  static auto* known = new std::map<const api::Table*, bool>;
  std::lock_guard lock(*mutex);
  const auto found = known->find(plugin.table());
  if (found != known->end()) return found->second;
  int32_t level = 1;  // of the log: information, a warning where it was tried
  std::string why = "no interface for them that is known here";
  bool works = false;
  try {
    if (plugin.host_memory() && registered(plugin)) {
      level = 2, why = "a wrong result";
      works = tried(plugin);
    }
  } catch (const sdk::Failure& failure) {
    why = failure.what();
  }
  if (!works && services != nullptr) {
    const std::string text = "pjrt: " + plugin.file() + " runs no custom calls (" + why +
                             "); constant weights are decoded once and kept as f32";
    services->log(services->context, level, text.c_str());
  }
  return (*known)[plugin.table()] = works;
}

Value block_product(Text& text, const Value& x, const Value& bytes, const PackedWeights& weights) {
  const int64_t rows = x.count() / weights.inner;
  const std::string numbers = std::to_string(weights.dtype) + ", " + std::to_string(rows) + ", " +
                              std::to_string(weights.columns) + ", " +
                              std::to_string(weights.inner) + ", " + std::to_string(weights.first) +
                              ", " + std::to_string(weights.row_bytes);
  const Value out = text.custom_call(kName, {text.reshape(x, {x.count()}), bytes}, numbers,
                                     ANYHAL_DTYPE_F32, {rows * weights.columns});
  return text.reshape(out, {rows, weights.columns});
}

}  // namespace hal::pjrt
