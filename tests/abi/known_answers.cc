// Known answers and refusals of any synchronous backend with host memory, through its table alone.
// SPDX-License-Identifier: Apache-2.0
// Usage: known_answers LIBRARY OPS, where OPS is how many ops it is to have; 0 = the core ones or
// more.
#include "known_answers.h"

#include <cmath>

namespace {

constexpr float kNan = NAN;
constexpr float kInf = INFINITY;

template <class T>
void expect(const char* what, const Result& result, const std::vector<T>& got,
            const std::vector<T>& want, double tolerance = 0) {
  CHECK(result.ran(), "%s was refused: %s", what, result.text.c_str());
  if (!result.ran()) return;
  for (size_t i = 0; i < want.size(); ++i) {
    double g = static_cast<double>(got[i]), w = static_cast<double>(want[i]);
    bool same = g == w || (g != g && w != w) || std::fabs(g - w) <= tolerance;
    CHECK(same, "%s[%zu] is %g, not %g", what, i, g, w);
  }
}

void expect_refusal(const char* what, const Result& result, int32_t reason) {
  CHECK(result.status == ANYHAL_STATUS_OK && result.verdict.support == ANYHAL_SUPPORT_NO &&
            result.verdict.reason == reason,
        "%s: status %d, support %u, reason %d, wanted a no with reason %d (%s)", what,
        result.status, result.verdict.support, result.verdict.reason, reason, result.text.c_str());
  CHECK(!result.text.empty(), "%s: a refusal says why", what);
}

void expect_invalid(const char* what, const Result& result) {
  CHECK(result.status == ANYHAL_STATUS_INVALID_ARGUMENT && !result.text.empty(),
        "%s: status %d (%s)", what, result.status, result.text.c_str());
}

void test_handshake(Host& host) {
  const uint32_t next = ANYHAL_ABI_VERSION + 1;
  CHECK(host.hello(next, next) == ANYHAL_STATUS_ABI_MISMATCH, "a newer core is refused");
  CHECK(std::strstr(host.error.text, "0.3") != nullptr, "both versions are said: %s",
        host.error.text);
  CHECK(host.hello(0, next) == ANYHAL_STATUS_OK && host.reply.chosen == ANYHAL_ABI_VERSION,
        "a core that loads more versions is fine");
  anyhal_device* device = nullptr;
  uint64_t block = 0;
  CHECK(host.table->device_open(host.reply.self, 99, nullptr, 0, &device, &block, &host.error) ==
            ANYHAL_STATUS_NOT_FOUND,
        "there is no device 99");
  anyhal_device_info info = {};
  info.size = sizeof(info);
  uint32_t total = 0;
  host.table->device_list(host.reply.self, &info, 1, &total, &host.error);
  CHECK(total == 1 && info.kind_count >= 1 && info.name[0] != 0 && info.arch[0] != 0, "device 0");
}

void test_memory(Host& host) {
  anyhal_memory_request request = {};
  request.size = sizeof(request);
  request.bytes = 1000;
  request.alignment = 256;
  anyhal_memory_block block = {};
  block.size = sizeof(block);
  CHECK(host.table->memory_alloc(host.device, &request, &block, &host.error) == ANYHAL_STATUS_OK,
        "%s", host.error.text);
  CHECK(block.memory != 0 && block.host_address % 256 == 0 && block.bytes >= 1000, "a block");
  std::memset(reinterpret_cast<void*>(block.host_address), 1, 1000);
  host.table->release(host.reply.self, ANYHAL_OBJECT_MEMORY, block.memory, 0, &host.error);
  request.bytes = UINT64_MAX - 10;
  CHECK(host.table->memory_alloc(host.device, &request, &block, &host.error) ==
            ANYHAL_STATUS_OUT_OF_MEMORY,
        "no host has 2^64 bytes");
}

void test_refusals(Host& host) {
  auto x = Array<float>::full({4}, 1), out = Array<float>::full({4}, 7);
  expect_refusal("unknown op", host.run(9999, {x, out}), ANYHAL_REASON_OP);
  Operand odd = x.op();
  odd.dtype = 120;
  expect_refusal("unknown dtype", host.run(ANYHAL_OP_COPY, {odd, out}), ANYHAL_REASON_DTYPE);
  anyhal_attrs_unary unary = {sizeof(unary), 0, ANYHAL_UNARY_FN_BITWISE_NOT, 0};
  expect_refusal("bits of a float", host.run(ANYHAL_OP_UNARY, {x, out}, unary),
                 ANYHAL_REASON_DTYPE);
  unary.fn = 9999;
  Result unknown = host.run(ANYHAL_OP_UNARY, {x, out}, unary);
  CHECK(!unknown.ran() && unknown.verdict.reason != ANYHAL_REASON_NONE, "an unknown function ran");
  unary = {sizeof(unary), 1, ANYHAL_UNARY_FN_NEG, 0};
  expect_refusal("attribute flag", host.run(ANYHAL_OP_UNARY, {x, out}, unary),
                 ANYHAL_REASON_ATTRIBUTE);
  struct {
    anyhal_attrs_unary known;
    uint32_t newer[2];
  } longer = {{sizeof(longer), 0, ANYHAL_UNARY_FN_NEG, 0}, {0, 0}};
  CHECK(host.run(ANYHAL_OP_UNARY, {x, out}, &longer, sizeof(longer)).ran(), "zero is the old way");
  longer.newer[1] = 5;
  expect_refusal("newer attribute", host.run(ANYHAL_OP_UNARY, {x, out}, &longer, sizeof(longer)),
                 ANYHAL_REASON_ATTRIBUTE);
  host.describe(ANYHAL_OP_COPY, {x, out}, nullptr, 0, [&](anyhal_op_desc& desc, auto& tensors) {
    for (uint32_t word = 0; word < 6; ++word) {
      for (uint32_t value : {9u, 40u, UINT32_MAX}) {
        desc.numerics[word] = value;
        expect_refusal("numerics", host.query(desc), ANYHAL_REASON_NUMERICS);
      }
      desc.numerics[word] = 0;
    }
    tensors[0].flags = 1u << 30;
    expect_refusal("operand flag", host.query(desc), ANYHAL_REASON_ATTRIBUTE);
  });
  Operand deep = x.op();
  deep.dims.assign(40, 1);
  deep.strides.assign(40, 1);
  expect_refusal("rank 40", host.run(ANYHAL_OP_COPY, {deep, deep}), ANYHAL_REASON_RANK);
  expect_invalid("other dims", host.run(ANYHAL_OP_COPY, {Array<float>::full({3}, 0), out}));
  // The one call that ran wrote -1; the refused ones wrote nothing.
  CHECK(out.values == std::vector<float>(4, -1), "a refused call wrote %g", out.values[0]);
}

void test_elementwise(Host& host) {
  Array<float> x({2, 3}, {1, -2, 3, -4, kNan, kInf});
  auto t = Array<float>::full({3, 2}, 0);
  Operand xt = x.op();
  xt.dims = {3, 2};
  xt.strides = {1, 3};
  Result copied = host.run(ANYHAL_OP_COPY, {xt, t});
  expect("copy of a transpose", copied, t.values, {1, -4, -2, kNan, 3, kInf});
  Operand row = x.op();  // the first row, four times
  row.dims = {4, 3};
  row.strides = {0, 1};
  auto rows = Array<float>::full({4, 3}, 0);
  Result broadcast = host.run(ANYHAL_OP_COPY, {row, rows});
  expect("copy of a broadcast", broadcast, rows.values, {1, -2, 3, 1, -2, 3, 1, -2, 3, 1, -2, 3});
  float value = 2.5f;
  Operand scalar = Array<float>({}, {0}).op();
  scalar.data = &value;
  scalar.flags = ANYHAL_TENSOR_INLINE;
  auto filled = Array<float>::full({3}, 0);
  Result fill = host.run(ANYHAL_OP_FILL, {scalar, filled});
  expect("fill inline", fill, filled.values, {2.5f, 2.5f, 2.5f});
  auto bytes = Array<int8_t>::full({2, 3}, 0);
  Array<float> wide({2, 3}, {1.9f, -1.9f, 300, -300, kNan, kInf});
  Result cast = host.run(ANYHAL_OP_CAST, {wide, bytes});
  expect<int8_t>("cast saturates", cast, bytes.values, {1, -1, 127, -128, 0, 127});
  auto halves = Array<uint16_t>::full({3}, 0);
  Array<double> tie({3}, {1 + 0x1p-11 + 0x1p-40, 65519.99, 65520});
  Result half = host.run(ANYHAL_OP_CAST, {tie, halves});
  expect<uint16_t>("cast rounds once", half, halves.values, {0x3c01, 0x7bff, 0x7c00});
  anyhal_attrs_unary neg = {0, 0, ANYHAL_UNARY_FN_NEG, 0};
  Array<int8_t> least({2}, {-128, 5});
  Result negated = host.run(ANYHAL_OP_UNARY, {least, least.op().alias(0)}, neg);
  expect<int8_t>("negative in place", negated, least.values, {-128, -5});
  anyhal_attrs_binary fn = {0, 0, ANYHAL_BINARY_FN_FLOOR_DIVIDE, 0};
  Array<int32_t> a({5}, {7, -7, 7, -7, INT32_MIN}), b({5}, {2, 2, 0, -2, -1});
  auto q = Array<int32_t>::full({5}, 0);
  Result divided = host.run(ANYHAL_OP_BINARY, {a, b, q}, fn);
  expect<int32_t>("floor_divide", divided, q.values, {3, -4, 0, 3, INT32_MIN});
  fn.fn = ANYHAL_BINARY_FN_MAXIMUM;
  Array<float> m({3}, {1, kNan, 3}), n({3}, {kNan, 2, 2});
  Result top = host.run(ANYHAL_OP_BINARY, {m, n, m.op().alias(0)}, fn);
  expect("maximum keeps NaN", top, m.values, {kNan, kNan, 3});
  Array<float> one({}, {3}), other({}, {4}), sum({}, {0});
  fn.fn = ANYHAL_BINARY_FN_ADD;
  Result scalars = host.run(ANYHAL_OP_BINARY, {one, other, sum}, fn);
  expect("0-d sum", scalars, sum.values, {7});
  Array<float> none({0, 3}, {});
  CHECK(host.run(ANYHAL_OP_BINARY, {none, none, none}, fn).ran(), "nothing plus nothing");
  unsigned char flags[3] = {0, 1, 200};
  Operand cond = Array<float>::full({3}, 0).op();
  cond.dtype = ANYHAL_DTYPE_BOOL;
  cond.data = flags;
  Array<float> yes({3}, {1, 2, 3}), no({3}, {-1, kNan, -3});
  auto chosen = Array<float>::full({3}, 0);
  Result where = host.run(ANYHAL_OP_WHERE, {cond, yes, no, chosen});
  expect("where", where, chosen.values, {-1, 2, 3});
}

void test_blocks(Host& host) {
  unsigned char block[20] = {0x00, 0x38, 0x00, 0xbc};  // d = 0.5, m = -1
  for (int i = 0; i < 16; ++i) block[4 + i] = static_cast<unsigned char>(i | (15 - i) << 4);
  Operand q = Array<float>::full({1, 32}, 0).op();
  q.dtype = ANYHAL_DTYPE_Q4_1;
  q.strides = {1, 1};
  q.data = block;
  auto out = Array<float>::full({1, 32}, kNan);
  Result cast = host.run(ANYHAL_OP_CAST, {q, out});
  std::vector<float> want;
  for (int i = 0; i < 16; ++i) want.push_back(0.5f * static_cast<float>(i) - 1);
  for (int i = 0; i < 16; ++i) want.push_back(0.5f * static_cast<float>(15 - i) - 1);
  expect("decoding q4_1", cast, out.values, want);
  CHECK(!host.run(ANYHAL_OP_CAST, {out, q}).ran(), "nothing is encoded into blocks");
}

// 8-bit floats and packed integers: e4m3fn rounds half to even, and its overflow is the caller's
// say.
void test_small(Host& host) {
  unsigned char codes[6] = {0x7e, 0xff, 0x01, 0x80, 0x38, 0xfe};
  Operand small = Array<float>::full({6}, 0).op();
  small.dtype = ANYHAL_DTYPE_F8_E4M3FN;
  small.data = codes;
  auto wide = Array<float>::full({6}, 0);
  Result decoded = host.run(ANYHAL_OP_CAST, {small, wide});
  expect("decoding e4m3fn", decoded, wide.values, {448, kNan, 0x1p-9f, -0.0f, 1, -448});
  CHECK(std::signbit(wide.values[3]), "e4m3fn has a negative zero");
  Array<float> x({6}, {464, 465, -1000, kNan, 17, 0x1p-10f});
  anyhal_attrs_cast overflow = {sizeof(overflow), 0, ANYHAL_OVERFLOW_SATURATE, 0};
  Result kept = host.run(ANYHAL_OP_CAST, {x, small}, overflow);
  const unsigned char want[6] = {0x7e, 0x7e, 0xfe, 0x7f, 0x58, 0x00};
  CHECK(kept.ran() && std::memcmp(codes, want, 3) == 0 && (codes[3] & 0x7f) == 0x7f &&
            std::memcmp(codes + 4, want + 4, 2) == 0,
        "saturating to e4m3fn");
  overflow.overflow = ANYHAL_OVERFLOW_NONFINITE;
  host.run(ANYHAL_OP_CAST, {x, small}, overflow);
  CHECK(codes[0] == 0x7e && (codes[1] & 0x7f) == 0x7f && (codes[2] & 0x7f) == 0x7f,
        "past the largest of e4m3fn is NaN when asked for");
  CHECK(!host.run(ANYHAL_OP_CAST, {x, small}).ran(), "overflow must be stated");
  Operand pairs = Array<float>::full({6}, 0).op();
  pairs.dtype = ANYHAL_DTYPE_I4;
  pairs.data = codes;
  Array<float> numbers({6}, {1, -2, 9, -9, 0, 7});
  Result packed = host.run(ANYHAL_OP_CAST, {numbers, pairs});
  CHECK(packed.ran() && codes[0] == 0xe1 && codes[1] == 0x87 && codes[2] == 0x70,
        "i4 saturates, the first of a pair is the low nibble");
}

void test_reduce(Host& host) {
  Array<float> x({2, 2}, {1, kNan, 3, 4});
  auto rows = Array<float>::full({2, 1}, 0);
  anyhal_attrs_reduce fn = {0, 0, ANYHAL_REDUCE_FN_MAX, 0, 2};
  Result largest = host.run(ANYHAL_OP_REDUCE, {x, rows}, fn);
  expect("max keeps NaN", largest, rows.values, {kNan, 4});
  Array<float> nothing({2, 0}, {});
  fn.fn = ANYHAL_REDUCE_FN_PROD;
  Result product = host.run(ANYHAL_OP_REDUCE, {nothing, rows}, fn);
  expect("prod of nothing", product, rows.values, {1, 1});
  fn.fn = ANYHAL_REDUCE_FN_MEAN;
  Result mean = host.run(ANYHAL_OP_REDUCE, {nothing, rows}, fn);
  expect("mean of nothing", mean, rows.values, {kNan, kNan});
  auto many = Array<uint8_t>::full({300}, 255);
  auto total = Array<int64_t>::full({1}, 0);
  fn = {0, 0, ANYHAL_REDUCE_FN_SUM, 0, 1};
  Result sum = host.run(ANYHAL_OP_REDUCE, {many, total}, fn);
  expect<int64_t>("sum of bytes", sum, total.values, {76500});
}

void test_matmul(Host& host) {
  Array<float> a({2, 3}, {1, 2, 3, 4, 5, 6}), b({3, 2}, {1, 0, 0, 1, 1, 1});
  auto out = Array<float>::full({2, 2}, kNan);
  Result plain = host.run(ANYHAL_OP_MATMUL, {a, b, out});
  expect("matmul", plain, out.values, {4, 5, 10, 11});
  Operand at = a.op();  // transposed: [3,2]
  at.dims = {3, 2};
  at.strides = {1, 3};
  auto square = Array<float>::full({3, 3}, kNan);
  Result gram = host.run(ANYHAL_OP_MATMUL, {at, a, square});
  expect("a^T a", gram, square.values, {17, 22, 27, 22, 29, 36, 27, 36, 45});
  Array<float> left({2, 0}, {}), right({0, 2}, {});
  out = Array<float>::full({2, 2}, kNan);
  Result zeros = host.run(ANYHAL_OP_MATMUL, {left, right, out});
  expect("K = 0", zeros, out.values, {0, 0, 0, 0});
  auto i = Array<int8_t>::full({1, 1000}, -128), j = Array<int8_t>::full({1000, 1}, -128);
  auto exact = Array<int32_t>::full({1, 1}, 0);
  Result bytes = host.run(ANYHAL_OP_MATMUL, {i, j, exact});
  expect<int32_t>("i8 products", bytes, exact.values, {16384000});
}

void test_indices(Host& host) {
  Array<float> x({3, 2}, {1, 2, 3, 4, 5, 6});
  Array<int32_t> good({2}, {2, 0}), bad({2}, {0, 3}), negative({2}, {0, -1});
  auto out = Array<float>::full({2, 2}, 9);
  anyhal_attrs_gather axis = {0, 0, 0, 0};
  for (auto* indices : {&bad, &negative}) {
    Result result = host.run(ANYHAL_OP_GATHER, {x, *indices, out}, axis);
    expect_invalid("gather out of range", result);
    CHECK(std::strstr(result.text.c_str(), "[0, 3)") != nullptr, "%s", result.text.c_str());
    CHECK(out.values == std::vector<float>(4, 9), "gather wrote before it looked");
  }
  Result gathered = host.run(ANYHAL_OP_GATHER, {x, good, out}, axis);
  expect("gather", gathered, out.values, {5, 6, 1, 2});
  anyhal_attrs_scatter_add scatter = {0, 0, 0, 0};
  Array<float> updates({2, 2}, {10, 20, 30, 40});
  Result refused = host.run(ANYHAL_OP_SCATTER_ADD, {x, bad, updates, x.op().alias(0)}, scatter);
  expect_invalid("scatter_add out of range", refused);
  CHECK(x.values[0] == 1, "scatter_add wrote before it looked");
  Array<int32_t> twice({2}, {1, 1});
  Result added = host.run(ANYHAL_OP_SCATTER_ADD, {x, twice, updates, x.op().alias(0)}, scatter);
  expect("scatter_add in place", added, x.values, {1, 2, 43, 64, 5, 6});
}

void test_fused(Host& host) {
  Array<float> x({1, 2}, {3, 4}), weight({2}, {1, 2});
  auto out = Array<float>::full({1, 2}, 0);
  anyhal_attrs_rms_norm eps = {0, 0, 0, 0};
  Result norm = host.run(ANYHAL_OP_RMS_NORM, {x, weight, out}, eps);
  float r = std::sqrt(12.5f);
  expect("rms_norm", norm, out.values, {3 / r, 8 / r}, 1e-6);
  Array<float> rows({3, 2}, {-kInf, -kInf, kInf, 1, -5e4f, -5e4f});
  anyhal_attrs_softmax axis = {0, 0, 1, 0};
  Result soft = host.run(ANYHAL_OP_SOFTMAX, {rows, rows.op().alias(0)}, axis);
  expect("softmax", soft, rows.values, {kNan, kNan, kNan, kNan, 0.5f, 0.5f});
  Array<float> pair({1, 2}, {1, 0});
  Array<int64_t> position({1}, {2});
  anyhal_attrs_rope rope = {0, 0, ANYHAL_PAIRING_HALF_SPLIT, 0, 10000, 1};
  Result turned = host.run(ANYHAL_OP_ROPE, {pair, position, absent(), out}, rope);
  expect("rope", turned, out.values, {std::cos(2.f), std::sin(2.f)}, 1e-6);
  auto cache = Array<float>::full({1, 1, 3, 1}, 0), row = Array<float>::full({1, 1, 1, 1}, 5);
  Array<int64_t> at({}, {1}), past({}, {3});
  Result kept = host.run(ANYHAL_OP_CACHE_APPEND, {cache, row, past, cache.op().alias(0)});
  expect_invalid("cache_append out of range", kept);
  Result appended = host.run(ANYHAL_OP_CACHE_APPEND, {cache, row, at, cache.op().alias(0)});
  expect("cache_append", appended, cache.values, {0, 5, 0});
  Array<float> ties({1, 4}, {1, kNan, 3, kNan});
  Array<int64_t> index({1, 1}, {-1});
  anyhal_attrs_argmax last = {0, 0, 1, 0};
  Result found = host.run(ANYHAL_OP_ARGMAX, {ties, index}, last);
  expect<int64_t>("argmax", found, index.values, {1});
  anyhal_attrs_concat first = {0, 0, 0, 0};
  Array<float> a({1}, {1}), b({2}, {2, 3});
  auto joined = Array<float>::full({3}, 0);
  Result concat = host.run(ANYHAL_OP_CONCAT, {a, b, joined}, first);
  expect("concat", concat, joined.values, {1, 2, 3});
  Array<float> table({2, 2}, {1, 2, 3, 4});
  Array<int64_t> id({}, {1});
  auto embedded = Array<float>::full({2}, 0);
  Result row_of = host.run(ANYHAL_OP_EMBEDDING, {table, id, embedded});
  expect("embedding", row_of, embedded.values, {3, 4});
  anyhal_attrs_matmul_epilogue relu = {0, 0, ANYHAL_ACTIVATION_RELU, 2};
  Array<float> p({1, 1}, {3}), q({1, 1}, {-1}), bias({1}, {7}), residual({1, 1}, {0.5f});
  auto y = Array<float>::full({1, 1}, kNan);
  Result epilogue = host.run(ANYHAL_OP_MATMUL_EPILOGUE, {p, q, bias, absent(), residual, y}, relu);
  expect("matmul_epilogue", epilogue, y.values, {1.5f});
}

void test_attention(Host& host) {
  // Two queries, four cached keys of which three count; the fourth and masked ones hold NaN.
  auto q = Array<float>::full({1, 2, 2, 1}, 1), k = Array<float>::full({1, 1, 4, 1}, 1);
  Array<float> v({1, 1, 4, 1}, {1, 2, 6, kNan});
  k.values[3] = kNan;
  Array<int32_t> length({1}, {3});
  auto out = Array<float>::full({1, 2, 2, 1}, kNan);
  anyhal_attrs_attention last = {0, 0, 1, ANYHAL_CAUSAL_LAST_KEY, 0, 0, 0};
  Result causal =
      host.run(ANYHAL_OP_ATTENTION, {q, k, v, length, absent(), absent(), out, absent()}, last);
  expect("attention, last key", causal, out.values, {1.5f, 3, 1.5f, 3}, 1e-6);
  last.causal = ANYHAL_CAUSAL_FIRST_KEY;
  Result first =
      host.run(ANYHAL_OP_ATTENTION, {q, k, v, length, absent(), absent(), out, absent()}, last);
  expect("attention, first key", first, out.values, {1, 1.5f, 1, 1.5f}, 1e-6);
  unsigned char allowed[8] = {0, 1, 0, 0, 0, 0, 0, 0};  // the second query sees nothing
  Operand mask = Array<float>::full({1, 2, 2, 4}, 0).op().step({0, 0, 4, 1});
  mask.dtype = ANYHAL_DTYPE_BOOL;
  mask.data = allowed;
  last.causal = ANYHAL_CAUSAL_NONE;
  Result masked =
      host.run(ANYHAL_OP_ATTENTION, {q, k, v, absent(), mask, absent(), out, absent()}, last);
  expect("attention, masked", masked, out.values, {2, 0, 2, 0}, 1e-6);
}

void test_quant_matmul(Host& host) {
  unsigned char blocks[2][34] = {{0x00, 0x3c}, {0x00, 0x40}};  // scales 1 and 2
  for (int i = 0; i < 32; ++i)
    blocks[0][2 + i] = blocks[1][2 + i] = static_cast<unsigned char>(i - 16);
  Operand w = Array<float>::full({2, 32}, 0).op();
  w.dtype = ANYHAL_DTYPE_Q8_0;
  w.strides = {1, 1};
  w.data = blocks;
  auto x = Array<float>::full({3, 32}, 1), out = Array<float>::full({3, 2}, kNan);
  anyhal_attrs_quant_matmul plain = {0, 0, ANYHAL_ACTIVATION_NONE, 1};
  Result result =
      host.run(ANYHAL_OP_QUANT_MATMUL, {x, w, absent(), absent(), absent(), out}, plain);
  expect("quant_matmul", result, out.values, {-16, -32, -16, -32, -16, -32}, 1e-5);
}

bool has_op(Host& host, uint32_t op) {
  auto x = Array<float>::full({1}, 0);
  Result answer = host.run(op, {x, x});
  return answer.verdict.reason != ANYHAL_REASON_OP;
}

}  // namespace

int main(int argument_count, char** arguments) {
  if (argument_count != 3) return 2;
  Host host(arguments[1]);
  test_handshake(host);
  test_memory(host);
  test_refusals(host);
  test_elementwise(host);
  test_blocks(host);
  test_small(host);
  test_reduce(host);
  test_matmul(host);
  test_indices(host);
  int ops = 0;
  for (uint32_t op = 1; op < 1024; ++op) ops += has_op(host, op);
  const int wanted = std::atoi(arguments[2]);
  CHECK(wanted == 0 ? ops >= ANYHAL_OP_SCATTER_ADD : ops == wanted, "%d ops", ops);
  if (ops >= ANYHAL_OP_CONCAT) {  // of the first ones every one
    test_fused(host);
    test_attention(host);
    test_quant_matmul(host);
  }
  host.table->release(host.reply.self, ANYHAL_OBJECT_DEVICE,
                      reinterpret_cast<uintptr_t>(host.device), 0, &host.error);
  std::printf("%d checks, %d failures\n", checks, failures);
  return failures != 0;
}
