// The ten ops: rows that answer queries, and plans that fill one structure and launch one kernel.
// SPDX-License-Identifier: Apache-2.0
#include "conditions.h"
#include "device.h"
#include "launch.h"
#include "layout.h"

namespace hal::cuda {
namespace {

// ------------------------------------------------------------------------------------- rows

template <class T>
constexpr sdk::Condition kHas = sdk::known_attributes<T>;
constexpr sdk::Condition kNone = sdk::no_attributes;
constexpr sdk::Dtypes kFactors =
    sdk::kFloats | sdk::kIndices | sdk::dtypes(ANYHAL_DTYPE_I8, ANYHAL_DTYPE_U8);
constexpr sdk::Promise kRelaxed = {1u << ANYHAL_ACCUMULATE_TF32 | 1u << ANYHAL_ACCUMULATE_BF16,
                                   1u << ANYHAL_DETERMINISM_BATCH_INVARIANT};

#define HAL_CUDA_ROWS(matmul_promise)                                                                \
  {ANYHAL_OP_COPY, "copy", 0, sdk::kAny, kNone, copy_fits, nullptr, nullptr, sdk::kExact},           \
      {ANYHAL_OP_FILL, "fill", 1, sdk::kStored, kNone, fill_fits, nullptr, nullptr, sdk::kExact},    \
      {ANYHAL_OP_CAST, "cast",  0,       sdk::kAny,  sdk::later_attributes<anyhal_attrs_cast>,       \
       cast_fits,      nullptr, nullptr, sdk::kExact},                                               \
      {ANYHAL_OP_UNARY, "unary", 0, sdk::kPlain, kHas<anyhal_attrs_unary>, unary_fits, nullptr},     \
      {ANYHAL_OP_BINARY, "binary", 0, sdk::kPlain, kHas<anyhal_attrs_binary>, binary_fits, nullptr}, \
      {ANYHAL_OP_WHERE, "where", 1, sdk::kStored, kNone, where_fits, nullptr, nullptr, sdk::kExact}, \
      {ANYHAL_OP_REDUCE, "reduce", 0, sdk::kPlain, kHas<anyhal_attrs_reduce>, reduce_fits, nullptr}, \
      {ANYHAL_OP_MATMUL, "matmul", 0,       kFactors,      kNone,                                    \
       matmul_fits,      nullptr,  nullptr, matmul_promise},                                         \
      {ANYHAL_OP_GATHER, "gather", 0,       sdk::kAny,  kHas<anyhal_attrs_gather>,                   \
       gather_fits,      nullptr,  nullptr, sdk::kExact},                                            \
  {                                                                                                  \
    ANYHAL_OP_SCATTER_ADD, "scatter_add", 0, sdk::kNumbers, kHas<anyhal_attrs_scatter_add>,          \
        scatter_add_fits, nullptr                                                                    \
  }
const sdk::Row kWithLibrary[] = {HAL_CUDA_ROWS(kRelaxed)};
const sdk::Row kWithoutLibrary[] = {HAL_CUDA_ROWS({})};
#undef HAL_CUDA_ROWS
const sdk::OpTable kLibraryOps(kWithLibrary, sdk::kBatchInvariant);
const sdk::OpTable kPlainOps(kWithoutLibrary, sdk::kBatchInvariant);

const sdk::OpTable& table_of(const Self& self) {
  return self.blas_missing.empty() ? kLibraryOps : kPlainOps;
}

// ------------------------------------------------------------------------------------ plans

// One structure, one kernel. `Params` has side[k].data for each of `count` operands from `first`
// on.
template <class Params>
class KernelPlan final : public Plan {
 public:
  KernelPlan(Device& device, const Desc& desc, const char* op, const char* entry,
             uint32_t first = 0, uint32_t count = 0)
      : Plan(device), function_(kernel_of(device, op, entry)) {
    operand_count = count != 0 ? count : desc.operand_count;
    prepared.flags = ANYHAL_PREPARED_CAPTURE_SAFE;
    prepared.kernel = entry;
    for (uint32_t i = 0; i < operand_count; ++i)
      if ((sdk::operand(desc, first + i).flags & ANYHAL_TENSOR_INLINE) != 0) inline_ |= 1u << i;
  }

  void run(const Site& site) override {
    if (threads_ == 0) return;
    Params p = params;
    for (uint32_t i = 0; i < operand_count; ++i) place(p, i, site.operands[i]);
    if constexpr (requires { p.fault; }) p.fault = site.fault;
    if constexpr (requires { p.tag; }) p.tag = site.tag;
    launch(device_, function_, threads_, kBlock, site.stream, &p);
  }

  // A thread for each of `count` positions.
  void threads(int64_t count) { threads_ = count; }
  void blocks(int64_t count) { threads_ = count * kBlock; }

  Params params = {};

 private:
  void place(Params& p, uint32_t i, const anyhal_ref& ref) const {
    if constexpr (requires { p.inline_mask; }) {
      if (inline_ >> i & 1) {
        p.inline_mask |= 1u << i;
        std::memcpy(p.value[i], &ref, sizeof p.value[i]);
        return;
      }
    }
    auto* data = reinterpret_cast<unsigned char*>(address_of(ref));
    if constexpr (std::is_same_v<Params, Scatter>) return place_scatter(p, i, data);
    if constexpr (!std::is_same_v<Params, Scatter>) p.side[i].data = data;
  }
  // Operands are target, indices, updates, out.
  static void place_scatter(Scatter& p, uint32_t i, unsigned char* data) {
    if (i == 1) {
      p.list_side[0].data = data;
    } else {
      p.side[i == 0 ? 0 : i - 1].data = data;
    }
  }

  CUfunction function_;
  uint32_t inline_ = 0;
  int64_t threads_ = 0;
};

int32_t number(uint32_t dtype) { return static_cast<int32_t>(dtype); }

// A kernel that uses the positions in operand 1, behind one that looks whether all are inside: when
// one is not, the second writes nothing.
class IndexedPlan final : public Plan {
 public:
  IndexedPlan(Device& device, const Desc& desc, int64_t limit, std::unique_ptr<Plan> use)
      : Plan(device), look_(device, desc, "indices", "anyhal_indices", 1, 1), use_(std::move(use)) {
    operand_count = desc.operand_count;
    prepared = use_->prepared;
    Map& p = look_.params;
    const Tensor& indices = sdk::operand(desc, 1);
    p.index_dtype = number(indices.dtype);
    p.limit = limit;
    WalkMaker walk(&p.walk, p.side, 1);
    for (uint32_t d = 0; d < indices.rank; ++d) walk.add(indices.dims[d], {indices.strides[d]});
    look_.threads(p.walk.count);
  }

  void run(const Site& site) override {
    Site look = site;
    look.operands = site.operands + 1;
    look_.run(look);
    use_->run(site);
  }

 private:
  KernelPlan<Map> look_;
  std::unique_ptr<Plan> use_;
};

// Elementwise ops, copies among them: all operands walk the output's dims.
std::unique_ptr<Plan> map_plan(Device& device, const Desc& desc, const char* op, const char* entry,
                               int32_t fn) {
  auto plan = std::make_unique<KernelPlan<Map>>(device, desc, op, entry);
  Map& p = plan->params;
  const Tensor& out = sdk::output(desc);
  const uint32_t main = desc.op == ANYHAL_OP_WHERE ? 1 : 0;
  p.fn = fn;
  p.dtype = number(sdk::operand(desc, main).dtype);
  p.out_dtype = number(out.dtype);
  p.bytes = static_cast<int>(sdk::dtype_facts(out.dtype).block_bytes);
  WalkMaker walk(&p.walk, p.side, static_cast<int>(desc.operand_count));
  for (uint32_t d = 0; d < out.rank; ++d) {
    int64_t s[4] = {};
    for (uint32_t i = 0; i < desc.operand_count; ++i) {
      const Tensor& t = sdk::operand(desc, i);
      s[i] = t.rank == 0 ? 0 : t.strides[d];  // of fill
    }
    walk.add(sdk::steps(out, d), {s[0], s[1], s[2], s[3]});
  }
  plan->threads(p.walk.count);
  return plan;
}

// Side 2 counts the elements of a block.
std::unique_ptr<Plan> blocks_plan(Device& device, const Desc& desc) {
  auto plan = std::make_unique<KernelPlan<Map>>(device, desc, "cast", "anyhal_cast_blocks");
  Map& p = plan->params;
  const Tensor &x = sdk::operand(desc, 0), &out = sdk::output(desc);
  const auto facts = sdk::dtype_facts(x.dtype);
  const int64_t size = facts.block_elements;
  p.dtype = number(x.dtype);
  p.out_dtype = number(out.dtype);
  p.bytes = static_cast<int>(facts.block_bytes);
  WalkMaker walk(&p.walk, p.side, 3);
  const uint32_t last = out.rank - 1;
  for (uint32_t d = 0; d < last; ++d) walk.add(out.dims[d], {x.strides[d], out.strides[d], 0});
  walk.add(out.dims[last] / size, {x.strides[last], size * out.strides[last], 0});
  walk.add(size, {0, out.strides[last], 1});
  plan->threads(p.walk.count);
  return plan;
}

// Pairs along the last dim: packed sides step by bytes there, the others by two elements.
std::unique_ptr<Plan> pairs_plan(Device& device, const Desc& desc) {
  auto plan = std::make_unique<KernelPlan<Map>>(device, desc, "cast", "anyhal_cast_pairs");
  Map& p = plan->params;
  const Tensor &x = sdk::operand(desc, 0), &out = sdk::output(desc);
  p.fn = sdk::attributes<anyhal_attrs_cast>(desc).overflow;
  p.dtype = number(x.dtype);
  p.out_dtype = number(out.dtype);
  const uint32_t last = out.rank - 1;
  WalkMaker walk(&p.walk, p.side, 2);
  for (uint32_t d = 0; d < last; ++d) walk.add(out.dims[d], {x.strides[d], out.strides[d]});
  const int64_t from = sdk::kPacked.has(x.dtype) ? 1 : 2 * x.strides[last];
  const int64_t to = sdk::kPacked.has(out.dtype) ? 1 : 2 * out.strides[last];
  walk.add(out.dims[last] / 2, {from, to});
  p.pair[0] = x.strides[last], p.pair[1] = out.strides[last];
  plan->threads(p.walk.count);
  return plan;
}

std::unique_ptr<Plan> cast_plan(Device& device, const Desc& desc) {
  const uint32_t x = sdk::operand(desc, 0).dtype, out = sdk::output(desc).dtype;
  if (sdk::kBlocks.has(x)) return blocks_plan(device, desc);
  if (sdk::kPacked.has(x) || sdk::kPacked.has(out)) return pairs_plan(device, desc);
  return map_plan(device, desc, "cast", "anyhal_cast",
                  sdk::attributes<anyhal_attrs_cast>(desc).overflow);
}

std::unique_ptr<Plan> reduce_plan(Device& device, const Desc& desc) {
  const Tensor &x = sdk::operand(desc, 0), &out = sdk::output(desc);
  const auto attributes = sdk::attributes<anyhal_attrs_reduce>(desc);
  int64_t folded = 1;
  for (uint32_t d = 0; d < x.rank; ++d) folded *= attributes.axes >> d & 1 ? x.dims[d] : 1;
  const bool is_long = folded >= 64;
  auto plan = std::make_unique<KernelPlan<Reduce>>(
      device, desc, "reduce", is_long ? "anyhal_reduce_long" : "anyhal_reduce_short");
  Reduce& p = plan->params;
  p.fn = attributes.fn;
  p.dtype = number(x.dtype);
  p.out_dtype = number(out.dtype);
  WalkMaker kept(&p.kept, p.side, 2), inner(&p.folded, p.side + 2, 1);
  for (uint32_t d = 0; d < x.rank; ++d) {
    if (attributes.axes >> d & 1) {
      inner.add(x.dims[d], {x.strides[d]});
    } else {
      kept.add(x.dims[d], {x.strides[d], out.strides[d]});
    }
  }
  is_long ? plan->blocks(p.kept.count) : plan->threads(p.kept.count);
  return plan;
}

std::unique_ptr<Plan> gather_plan(Device& device, const Desc& desc) {
  auto plan = std::make_unique<KernelPlan<Map>>(device, desc, "gather", "anyhal_gather");
  Map& p = plan->params;
  const Tensor &x = sdk::operand(desc, 0), &indices = sdk::operand(desc, 1);
  const Tensor& out = sdk::output(desc);
  const auto axis = static_cast<uint32_t>(sdk::attributes<anyhal_attrs_gather>(desc).axis);
  p.bytes = static_cast<int>(sdk::dtype_facts(x.dtype).block_bytes);
  p.index_dtype = number(indices.dtype);
  p.axis_stride = x.strides[axis];
  WalkMaker walk(&p.walk, p.side, 3);
  for (uint32_t d = 0; d < out.rank; ++d) {
    const bool indexed = d >= axis && d < axis + indices.rank;
    const uint32_t from = d < axis ? d : d + 1 - indices.rank;
    walk.add(sdk::steps(out, d), {indexed ? 0 : x.strides[from],
                                  indexed ? indices.strides[d - axis] : 0, out.strides[d]});
  }
  plan->threads(p.walk.count);
  return std::make_unique<IndexedPlan>(device, desc, x.dims[axis], std::move(plan));
}

std::unique_ptr<Plan> scatter_plan(Device& device, const Desc& desc) {
  auto plan =
      std::make_unique<KernelPlan<Scatter>>(device, desc, "scatter_add", "anyhal_scatter_add");
  Scatter& p = plan->params;
  const Tensor &target = sdk::operand(desc, 0), &indices = sdk::operand(desc, 1);
  const Tensor &updates = sdk::operand(desc, 2), &out = sdk::output(desc);
  const auto axis = static_cast<uint32_t>(sdk::attributes<anyhal_attrs_scatter_add>(desc).axis);
  p.dtype = number(target.dtype);
  p.index_dtype = number(indices.dtype);
  WalkMaker walk(&p.walk, p.side, 4), list(&p.list, p.list_side, 2);
  for (uint32_t d = 0; d < out.rank; ++d) {
    const uint32_t from = d < axis ? d : d + indices.rank - 1;
    walk.add(out.dims[d], {target.strides[d], d == axis ? 0 : updates.strides[from], out.strides[d],
                           d == axis ? 1 : 0});
  }
  for (uint32_t d = 0; d < indices.rank; ++d)
    list.add(indices.dims[d], {indices.strides[d], updates.strides[axis + d]});
  plan->threads(p.walk.count);
  return std::make_unique<IndexedPlan>(device, desc, target.dims[axis], std::move(plan));
}

std::unique_ptr<Plan> kernel_product(Device& device, const Desc& desc) {
  auto plan = std::make_unique<KernelPlan<Product>>(device, desc, "matmul", "anyhal_matmul");
  Product& p = plan->params;
  const Tensor &a = sdk::operand(desc, 0), &b = sdk::operand(desc, 1), &out = sdk::output(desc);
  const uint32_t m = out.rank - 2, n = out.rank - 1;
  p.rows = out.dims[m], p.columns = out.dims[n], p.inner = a.dims[n];
  p.a_row = a.strides[m], p.a_inner = a.strides[n];
  p.b_inner = b.strides[m], p.b_column = b.strides[n];
  p.out_row = out.strides[m], p.out_column = out.strides[n];
  p.dtype = number(a.dtype);
  p.out_dtype = number(out.dtype);
  WalkMaker batch(&p.batch, p.side, 3);
  for (uint32_t d = 0; d < m; ++d)
    batch.add(out.dims[d], {a.strides[d], b.strides[d], out.strides[d]});
  plan->threads(p.batch.count * p.rows * p.columns);
  return plan;
}

// The vendor library's product where it takes the shape and finds an algorithm; else the kernel,
// which knows strict numbers only.
std::unique_ptr<Plan> matmul_plan(Device& device, const Desc& desc) {
  std::unique_ptr<Plan> plan;
  if (device.self->blas_missing.empty() && library_takes(desc))
    plan = prepare_product(device, desc);
  if (plan != nullptr) return plan;
  if (desc.numerics[ANYHAL_NUMERICS_ACCUMULATE] != 0)
    throw Fault(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_NUMERICS, 0,
                "the library has no algorithm for this product at these numerics; ask for strict");
  return kernel_product(device, desc);
}

std::unique_ptr<Plan> plan_of(Device& device, const Desc& desc) {
  switch (desc.op) {
    case ANYHAL_OP_COPY:
      return map_plan(device, desc, "copy", "anyhal_copy", 0);
    case ANYHAL_OP_FILL:
      return map_plan(device, desc, "fill", "anyhal_fill", 0);
    case ANYHAL_OP_CAST:
      return cast_plan(device, desc);
    case ANYHAL_OP_UNARY:
      return map_plan(device, desc, "unary", "anyhal_unary",
                      sdk::attributes<anyhal_attrs_unary>(desc).fn);
    case ANYHAL_OP_BINARY:
      return map_plan(device, desc, "binary", "anyhal_binary",
                      sdk::attributes<anyhal_attrs_binary>(desc).fn);
    case ANYHAL_OP_WHERE:
      return map_plan(device, desc, "where", "anyhal_where", 0);
    case ANYHAL_OP_REDUCE:
      return reduce_plan(device, desc);
    case ANYHAL_OP_MATMUL:
      return matmul_plan(device, desc);
    case ANYHAL_OP_GATHER:
      return gather_plan(device, desc);
    default:
      return scatter_plan(device, desc);
  }
}

}  // namespace

const char* op_name(uint32_t op) {
  for (const sdk::Row& row : kWithoutLibrary)
    if (row.op == op) return row.name;
  return "an op";
}

anyhal_status query_op(Device& device, const Desc* desc, anyhal_verdict* verdict,
                       anyhal_error* error) {
  const anyhal_status status = table_of(*device.self).query(desc, verdict, error);
  if (status != ANYHAL_STATUS_OK || verdict->support != ANYHAL_SUPPORT_YES) return status;
  const std::string missing = kernels_missing(device);
  if (missing.empty()) return status;
  verdict->support = ANYHAL_SUPPORT_NO;
  verdict->reason = ANYHAL_REASON_MISSING_ARTEFACT;
  verdict->reason_operand = -1;
  sdk::fail(error, status, verdict->reason, "%s", missing.c_str());
  return status;
}

std::unique_ptr<Plan> prepare_op(Device& device, const Desc* desc) {
  anyhal_verdict verdict = {};
  verdict.size = sizeof verdict;
  anyhal_error said = {};
  said.size = sizeof said;
  const anyhal_status status = query_op(device, desc, &verdict, &said);
  if (status != ANYHAL_STATUS_OK || verdict.support != ANYHAL_SUPPORT_YES)
    throw Fault(status != ANYHAL_STATUS_OK ? status : ANYHAL_STATUS_UNSUPPORTED, said.reason, 0,
                said.text);
  auto plan = plan_of(device, *desc);
  plan->op = desc->op;
  if (desc->workspace_limit != 0 && plan->prepared.workspace_bytes > desc->workspace_limit) {
    plan->end();
    throw Fault(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_WORKSPACE, 0,
                "this needs more workspace than the call allows; raise the limit");
  }
  return plan;
}

anyhal_status capabilities(const Self& self, void* value, uint64_t* bytes, anyhal_error* error) {
  const anyhal_status status = table_of(self).capabilities(value, bytes, error);
  auto* rows = static_cast<anyhal_capability*>(value);
  for (uint64_t i = 0; status == ANYHAL_STATUS_OK && i < *bytes / sizeof *rows; ++i)
    rows[i].rank_max = kDims;
  return status;
}

}  // namespace hal::cuda
