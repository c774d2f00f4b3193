// The handler of our custom call under frames that are damaged in one place each, and under a
// plugin's own. Prints what went wrong; silent and 0 when all was refused that had to be.
// SPDX-License-Identifier: Apache-2.0
//
//     custom_call_driver PLUGIN
//
// The kernel is a plain one of this file, which notes that it ran.
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>

#include "../custom_call.h"
#include "../kernels/block_product.h"
#include "../program.h"
#include "anyhal/sdk/blocks.hpp"

namespace hal::pjrt {
namespace {

int g_kernel_runs = 0;

void plain(const BlockProduct& p, int64_t begin, int64_t end) {
  ++g_kernel_runs;
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = begin; j < end; ++j) {
      float sum = 0;
      for (int64_t b = 0; b < p.k / 32; ++b) {
        sdk::q8_0 block;
        std::memcpy(&block, p.weights + j * p.row_bytes + b * sizeof block, sizeof block);
        float w[32];
        block.decode(w);
        for (int e = 0; e < 32; ++e) sum += w[e] * p.x[i * p.k + b * 32 + e];
      }
      p.out[i * p.n + j] = sum;
    }
}

}  // namespace

BlockKernel block_kernel() { return plain; }

namespace {

int g_failures = 0;

void expect(bool held, const std::string& what) {
  if (held) return;
  std::printf("%s\n", what.c_str());
  ++g_failures;
}

// A frame of a call with two rows of x, three columns and K = 64, as a plugin makes it.
struct Call {
  static constexpr int64_t kRow = 68;
  float x[2 * 64] = {}, out[2 * 3] = {};
  uint8_t bytes[5 + 3 * kRow] = {};
  int64_t x_dims[1] = {2 * 64}, bytes_dims[1] = {sizeof bytes}, out_dims[1] = {2 * 3};
  int64_t numbers[6] = {ANYHAL_DTYPE_Q8_0, 2, 3, 64, 5, kRow};
  ffi::Buffer buffers[3] = {{{sizeof(ffi::Buffer), nullptr}, ffi::kF32, x, 1, x_dims},
                            {{sizeof(ffi::Buffer), nullptr}, ffi::kU8, bytes, 1, bytes_dims},
                            {{sizeof(ffi::Buffer), nullptr}, ffi::kF32, out, 1, out_dims}};
  int kinds[2] = {ffi::kBuffer, ffi::kBuffer};
  int attribute_kinds[1] = {ffi::kArray};
  void* inputs[2] = {&buffers[0], &buffers[1]};
  void* outputs[1] = {&buffers[2]};
  ffi::Array array = {ffi::kS64, 6, numbers};
  void* attributes[1] = {&array};
  ffi::Api api = {};
  ffi::Frame frame = {};

  Call() {
    api.version.major = 0, api.version.minor = 3;
    api.create_error = [](ffi::ErrorCreate* record) {
      return reinterpret_cast<ffi::Error*>(const_cast<char*>(record->message));
    };
    frame.header.struct_size = sizeof frame;
    frame.api = &api;
    frame.stage = ffi::kExecute;
    frame.arguments = {{sizeof(ffi::List), nullptr}, 2, kinds, inputs};
    frame.results = {{sizeof(ffi::List), nullptr}, 1, kinds, outputs};
    frame.attributes = {
        {sizeof(ffi::Attributes), nullptr}, 1, attribute_kinds, nullptr, attributes};
  }
};

void damaged_frames() {
  const int64_t most = INT64_MAX;
  const struct {
    const char* what;
    std::function<void(Call&)> damage;
  } cases[] = {
      {"x of f64", [](Call& c) { c.buffers[0].dtype = 12; }},
      {"x of rank 2", [](Call& c) { c.buffers[0].rank = 2; }},
      {"x too short", [](Call& c) { c.x_dims[0] = 127; }},
      {"weights of f32", [](Call& c) { c.buffers[1].dtype = ffi::kF32; }},
      {"weights a byte short", [](Call& c) { c.bytes_dims[0] -= 1; }},
      {"result too short", [](Call& c) { c.out_dims[0] = 5; }},
      {"result of bytes", [](Call& c) { c.buffers[2].dtype = ffi::kU8; }},
      {"no result", [](Call& c) { c.frame.results.size = 0; }},
      {"one argument", [](Call& c) { c.frame.arguments.size = 1; }},
      {"three arguments", [](Call& c) { c.frame.arguments.size = 3; }},
      {"an argument of another kind", [](Call& c) { c.kinds[1] = 2; }},
      {"no numbers", [](Call& c) { c.frame.attributes.size = 0; }},
      {"a scalar", [](Call& c) { c.attribute_kinds[0] = 3; }},
      {"five numbers", [](Call& c) { c.array.size = 5; }},
      {"numbers of 32 bits", [](Call& c) { c.array.dtype = 4; }},
      {"another format", [](Call& c) { c.numbers[0] = ANYHAL_DTYPE_F32; }},
      {"a format past 32 bits", [](Call& c) { c.numbers[0] |= int64_t{1} << 32; }},
      {"no rows", [](Call& c) { c.numbers[1] = 0; }},
      {"other rows", [](Call& c) { c.numbers[1] = 3; }},
      {"negative rows", [](Call& c) { c.numbers[1] = -2; }},
      {"a column more", [](Call& c) { c.numbers[2] = 4; }},
      {"columns that overflow", [=](Call& c) { c.numbers[2] = most; }},
      {"half a block", [](Call& c) { c.numbers[3] = 48; }},
      {"K that overflows", [=](Call& c) { c.numbers[3] = most / 32 * 32; }},
      {"before the buffer", [](Call& c) { c.numbers[4] = -1; }},
      {"behind the buffer", [](Call& c) { c.numbers[4] = 6; }},
      {"an offset that overflows", [=](Call& c) { c.numbers[4] = most; }},
      {"rows that overlap", [](Call& c) { c.numbers[5] = 67; }},
      {"rows too far apart", [](Call& c) { c.numbers[5] = 69; }},
      {"rows that overflow", [=](Call& c) { c.numbers[5] = most; }},
      {"rows that go back", [](Call& c) { c.numbers[5] = -68; }},
      {"another stage", [](Call& c) { c.frame.stage = 0; }},
  };
  for (const auto& one : cases) {
    Call call;
    one.damage(call);
    g_kernel_runs = 0;
    expect(run_block_product(&call.frame) != nullptr, std::string(one.what) + " was accepted");
    expect(g_kernel_runs == 0, std::string(one.what) + " was read");
  }
  Call whole;
  g_kernel_runs = 0;
  expect(run_block_product(&whole.frame) == nullptr && g_kernel_runs == 1,
         "a good call is refused");
}

void metadata() {
  Call call;
  ffi::Metadata asked = {};
  ffi::MetadataExtension extension = {{sizeof extension, ffi::kMetadataExtension, nullptr}, &asked};
  call.frame.header.extensions = &extension.base;
  expect(run_block_product(&call.frame) == nullptr && asked.version.minor == 3,
         "the version of the frame is not answered");
}

// The plugin hands our refusal on, and goes on.
void by_plugin(const char* path) {
  Plugin plugin(path);
  plugin.start();
  expect(has_block_product(plugin, nullptr), "the plugin was not won over");
  uint8_t weights[2 * 34] = {};
  float x[32], out[2] = {};
  for (float& number : x) number = 1;
  for (int i = 0; i < 2; ++i) {
    weights[34 * i + 1] = 0x3c;  // a scale of 1
    std::memset(weights + 34 * i + 2, i + 1, 32);
  }
  for (const int64_t first : {int64_t{1}, int64_t{0}}) {
    Text text;
    const Value a = text.parameter(ANYHAL_DTYPE_F32, {32});
    const Value b = text.parameter(ANYHAL_DTYPE_U8, {sizeof weights});
    text.result(block_product(text, a, b, {ANYHAL_DTYPE_Q8_0, 2, 32, first, 34}));
    const Executable program = compile(plugin, text.str());
    api::Buffer* in[2] = {plugin.buffer_of(x, sizeof x), plugin.buffer_of(weights, sizeof weights)};
    api::Buffer* made = nullptr;
    api::Error* error = program.run(plugin, in, 2, &made, nullptr, {});
    bool good = error == nullptr && plugin.await(made).code == 0;
    if (error != nullptr) plugin.take(error);
    if (good) std::memcpy(out, plugin.pointer(made), sizeof out);
    if (first == 1) expect(!good, "a call that leaves its weights ran");
    if (first == 0) expect(good && out[0] == 32 && out[1] == 64, "the next call is wrong");
    for (api::Buffer* buffer : in) plugin.destroy(buffer);
    if (made != nullptr) plugin.destroy(made);
    program.destroy(plugin);
  }
}

}  // namespace
}  // namespace hal::pjrt

int main(int, char** given) {
  hal::pjrt::damaged_frames();
  hal::pjrt::metadata();
  hal::pjrt::by_plugin(given[1]);
  return hal::pjrt::g_failures != 0;
}
