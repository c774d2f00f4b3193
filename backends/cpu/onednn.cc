// oneDNN, opened at run time: one f32 contraction, called single-threaded with our partition.
// SPDX-License-Identifier: Apache-2.0
//
// The build needs no headers of the library: the few prototypes and numbers of its stable C API
// (3.x) that are used stand here. The library is an OpenMP build; its own threads are kept out by
// asking for one thread around each call, in the calling thread only, and the rows or columns of
// the product are divided among the core's threads instead.
#include "onednn.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <atomic>
#include <memory>
#include <new>
#include <utility>

#include "kernels/kernel.h"

namespace hal::cpu {
namespace {

// Numbers of dnnl_types.h, API 3.x.
constexpr int kSuccess = 0;
constexpr int kEngineCpu = 1;
constexpr int kF32 = 3;
constexpr unsigned kInOrder = 1;
constexpr int kFpmathStrict = 0;
constexpr int kScratchpadUser = 1;
constexpr int kQueryImplementation = 8;
constexpr int kQueryScratchpad = 136;
constexpr int kArgSource = 1;
constexpr int kArgDestination = 17;
constexpr int kArgWeights = 33;
constexpr int kArgScratchpad = 80;
constexpr int kDimsMax = 12;

struct Argument {
  int index;
  void* memory;
};
struct Version {
  int major, minor, patch;
};

struct Api {
  const Version* (*version)();
  int (*engine_create)(void** engine, int kind, size_t index);
  int (*stream_create)(void** stream, void* engine, unsigned flags);
  int (*stream_destroy)(void* stream);
  int (*attr_create)(void** attr);
  int (*attr_destroy)(void* attr);
  int (*attr_set_fpmath_mode)(void* attr, int mode);
  int (*attr_set_scratchpad_mode)(void* attr, int mode);
  int (*desc_create)(void** desc, int rank, const int64_t* dims, int type, const int64_t* strides);
  int (*desc_destroy)(void* desc);
  size_t (*desc_get_size)(const void* desc);
  int (*memory_create)(void** memory, const void* desc, void* engine, void* handle);
  int (*memory_set_data_handle)(void* memory, void* handle);
  int (*memory_destroy)(void* memory);
  int (*matmul_create)(void** pd, void* engine, const void* a, const void* b, const void* bias,
                       const void* c, const void* attr);
  int (*pd_next)(void* pd);
  int (*pd_query)(const void* pd, int what, int index, void* result);
  const void* (*pd_query_desc)(const void* pd, int what, int index);
  int (*pd_destroy)(void* pd);
  int (*primitive_create)(void** primitive, const void* pd);
  int (*primitive_execute)(const void* primitive, void* stream, int count, const Argument* args);
  int (*primitive_destroy)(void* primitive);
  int (*get_max_threads)();
  void (*set_num_threads)(int count);
};

template <class F>
bool find(void* library, const char* name, F* to) {
  void* symbol = dlsym(library, name);
  memcpy(to, &symbol, sizeof(symbol));
  return symbol != nullptr;
}

// The first symbol that is missing, or null.
const char* load(void* library, Api* api) {
#define HAL_CPU_FIND(member, name) \
  if (!find(library, name, &api->member)) return name
  HAL_CPU_FIND(version, "dnnl_version");
  HAL_CPU_FIND(engine_create, "dnnl_engine_create");
  HAL_CPU_FIND(stream_create, "dnnl_stream_create");
  HAL_CPU_FIND(stream_destroy, "dnnl_stream_destroy");
  HAL_CPU_FIND(attr_create, "dnnl_primitive_attr_create");
  HAL_CPU_FIND(attr_destroy, "dnnl_primitive_attr_destroy");
  HAL_CPU_FIND(attr_set_fpmath_mode, "dnnl_primitive_attr_set_fpmath_mode");
  HAL_CPU_FIND(attr_set_scratchpad_mode, "dnnl_primitive_attr_set_scratchpad_mode");
  HAL_CPU_FIND(desc_create, "dnnl_memory_desc_create_with_strides");
  HAL_CPU_FIND(desc_destroy, "dnnl_memory_desc_destroy");
  HAL_CPU_FIND(desc_get_size, "dnnl_memory_desc_get_size");
  HAL_CPU_FIND(memory_create, "dnnl_memory_create");
  HAL_CPU_FIND(memory_set_data_handle, "dnnl_memory_set_data_handle");
  HAL_CPU_FIND(memory_destroy, "dnnl_memory_destroy");
  HAL_CPU_FIND(matmul_create, "dnnl_matmul_primitive_desc_create");
  HAL_CPU_FIND(pd_next, "dnnl_primitive_desc_next_impl");
  HAL_CPU_FIND(pd_query, "dnnl_primitive_desc_query");
  HAL_CPU_FIND(pd_query_desc, "dnnl_primitive_desc_query_md");
  HAL_CPU_FIND(pd_destroy, "dnnl_primitive_desc_destroy");
  HAL_CPU_FIND(primitive_create, "dnnl_primitive_create");
  HAL_CPU_FIND(primitive_execute, "dnnl_primitive_execute");
  HAL_CPU_FIND(primitive_destroy, "dnnl_primitive_destroy");
  // Found through the library's own dependency, so it is the copy that the library uses.
  HAL_CPU_FIND(get_max_threads, "omp_get_max_threads");
  HAL_CPU_FIND(set_num_threads, "omp_set_num_threads");
#undef HAL_CPU_FIND
  return nullptr;
}

// One OpenMP thread for what this thread calls, while this lives.
class SingleThread {
 public:
  explicit SingleThread(const Api& api) : api_(api), before_(api.get_max_threads()) {
    if (before_ != 1) api_.set_num_threads(1);
  }
  ~SingleThread() {
    if (before_ != 1) api_.set_num_threads(before_);
  }
  SingleThread(const SingleThread&) = delete;
  SingleThread& operator=(const SingleThread&) = delete;

 private:
  const Api& api_;
  int before_;
};

}  // namespace

class OneDnn {
 public:
  Api api;
  void* engine = nullptr;
  char name[32];
};

namespace {

enum Slot { kA, kB, kOut, kScratch, kSlots };
constexpr int kArgumentOf[kSlots] = {kArgSource, kArgWeights, kArgDestination, kArgScratchpad};

// One shape of piece: all pieces but the last have the first, the last may be smaller.
struct Shape {
  void* primitive = nullptr;
  void* descs[kSlots] = {};  // the scratchpad's belongs to `pd`
  void* pd = nullptr;
  size_t scratch_bytes = 0;
};

// What one execution needs for itself.
struct Context {
  void* stream = nullptr;
  void* memory[2][kSlots] = {};
};

constexpr int kFreeMax = 32;

class Contractor {
 public:
  explicit Contractor(OneDnn* library) : library_(library) {}
  ~Contractor();
  Contractor(const Contractor&) = delete;
  Contractor& operator=(const Contractor&) = delete;

  bool prepare(Plan& plan, const Contraction& c);
  anyhal_status run(const Plan& plan, const char* a, const char* b, char* out, char* workspace,
                    anyhal_error* error) const;

 private:
  bool make_shape(Shape* shape, const Contraction& c, int64_t m, int64_t n);
  Context* make_context() const;
  void end_context(Context* context) const;
  Context* take_context() const;
  void give_back(Context* context) const;
  int run_piece(int64_t piece, const char* a, const char* b, char* out, char* workspace) const;

  OneDnn* library_;
  Shape shapes_[2];
  int64_t pieces_ = 1;
  int64_t last_shape_ = 0;
  int64_t a_step_ = 0, b_step_ = 0, out_step_ = 0;  // bytes from piece to piece
  size_t scratch_step_ = 0;
  mutable std::atomic<Context*> free_[kFreeMax] = {};
};

Contractor::~Contractor() {
  const Api& api = library_->api;
  for (auto& slot : free_)
    if (Context* context = slot.load()) end_context(context);
  for (Shape& shape : shapes_) {
    if (shape.primitive != nullptr) api.primitive_destroy(shape.primitive);
    if (shape.pd != nullptr) api.pd_destroy(shape.pd);
    for (int i = 0; i < kScratch; ++i)
      if (shape.descs[i] != nullptr) api.desc_destroy(shape.descs[i]);
  }
}

// The library's first choice of kernel reads b in place. Its older one packs both operands, which
// is as fast or faster (up to twice, for few rows) unless the product is this narrow.
constexpr int64_t kNarrow = 64;
constexpr char kPackingKernel[] = "gemm:jit";

bool is_packing(const Api& api, const void* pd) {
  const char* name = nullptr;
  return api.pd_query(pd, kQueryImplementation, 0, &name) == kSuccess && name != nullptr &&
         strncmp(name, kPackingKernel, sizeof(kPackingKernel) - 1) == 0;
}

bool Contractor::make_shape(Shape* shape, const Contraction& c, int64_t m, int64_t n) {
  const Api& api = library_->api;
  const int64_t dims[3][kDimsMax] = {{m, c.k}, {c.k, n}, {m, n}};
  const int64_t strides[3][kDimsMax] = {
      {c.a_row, c.a_column}, {c.b_row, c.b_column}, {c.out_row, c.out_column}};
  for (int i = 0; i < kScratch; ++i)
    if (api.desc_create(&shape->descs[i], 2, dims[i], kF32, strides[i]) != kSuccess) return false;
  void* attr = nullptr;
  if (api.attr_create(&attr) != kSuccess) return false;
  // Strict f32 whatever ONEDNN_DEFAULT_FPMATH_MODE says; scratch memory is ours.
  bool made = api.attr_set_fpmath_mode(attr, kFpmathStrict) == kSuccess &&
              api.attr_set_scratchpad_mode(attr, kScratchpadUser) == kSuccess &&
              api.matmul_create(&shape->pd, library_->engine, shape->descs[kA], shape->descs[kB],
                                nullptr, shape->descs[kOut], attr) == kSuccess;
  void* other = nullptr;
  if (made && n > kNarrow &&
      api.matmul_create(&other, library_->engine, shape->descs[kA], shape->descs[kB], nullptr,
                        shape->descs[kOut], attr) == kSuccess) {
    while (!is_packing(api, other) && api.pd_next(other) == kSuccess) {
    }
    if (is_packing(api, other)) std::swap(shape->pd, other);
    api.pd_destroy(other);
  }
  made = made && api.primitive_create(&shape->primitive, shape->pd) == kSuccess;
  api.attr_destroy(attr);
  if (!made) return false;
  const void* scratch = api.pd_query_desc(shape->pd, kQueryScratchpad, 0);
  shape->descs[kScratch] = const_cast<void*>(scratch);
  shape->scratch_bytes = scratch != nullptr ? api.desc_get_size(scratch) : 0;
  const char* implementation = nullptr;
  api.pd_query(shape->pd, kQueryImplementation, 0, &implementation);
  // The reference implementation is far slower than our own panels.
  return implementation == nullptr || strncmp(implementation, "ref", 3) != 0;
}

Context* Contractor::make_context() const {
  const Api& api = library_->api;
  Context* context = new (std::nothrow) Context;
  if (context == nullptr) return nullptr;
  bool made = api.stream_create(&context->stream, library_->engine, kInOrder) == kSuccess;
  for (int s = 0; s < 2 && made; ++s) {
    for (int i = 0; i < kSlots && made && shapes_[s].primitive != nullptr; ++i) {
      if (i == kScratch && shapes_[s].scratch_bytes == 0) continue;
      made = api.memory_create(&context->memory[s][i], shapes_[s].descs[i], library_->engine,
                               nullptr) == kSuccess;
    }
  }
  if (made) return context;
  end_context(context);
  return nullptr;
}

void Contractor::end_context(Context* context) const {
  const Api& api = library_->api;
  for (auto& memories : context->memory)
    for (void* memory : memories)
      if (memory != nullptr) api.memory_destroy(memory);
  if (context->stream != nullptr) api.stream_destroy(context->stream);
  delete context;
}

Context* Contractor::take_context() const {
  for (auto& slot : free_) {
    if (slot.load(std::memory_order_relaxed) == nullptr) continue;
    if (Context* context = slot.exchange(nullptr, std::memory_order_acquire)) return context;
  }
  return make_context();  // more calls at once than ever before
}

void Contractor::give_back(Context* context) const {
  for (auto& slot : free_) {
    Context* empty = nullptr;
    if (slot.load(std::memory_order_relaxed) == nullptr &&
        slot.compare_exchange_strong(empty, context, std::memory_order_release))
      return;
  }
  end_context(context);
}

bool Contractor::prepare(Plan& plan, const Contraction& c) {
  constexpr int64_t kUnit = 16;
  constexpr int64_t kNearCache = 1 << 20;  // bytes next to one core on today's server chips
  SingleThread single(library_->api);
  int64_t threads = plan.team.threads;
  // Cut along the longer side. Each piece packs the other operand whole, so of two equal sides the
  // rows are cut while b stays near the core, and the columns beyond (benchmarks/gemm.py).
  bool small_b = c.k * c.n * static_cast<int64_t>(sizeof(float)) <= kNearCache;
  bool by_rows = c.m != c.n ? c.m > c.n : small_b;
  int64_t extent = by_rows ? c.m : c.n;
  int64_t step = (extent + threads - 1) / threads;
  step = (step + kUnit - 1) / kUnit * kUnit;
  pieces_ = (extent + step - 1) / step;
  int64_t last = extent - (pieces_ - 1) * step;
  if (pieces_ == 1) step = last;
  last_shape_ = last == step ? 0 : 1;
  if (!make_shape(&shapes_[0], c, by_rows ? step : c.m, by_rows ? c.n : step)) return false;
  if (last_shape_ == 1 && !make_shape(&shapes_[1], c, by_rows ? last : c.m, by_rows ? c.n : last))
    return false;
  constexpr int64_t kBytes = sizeof(float);
  a_step_ = by_rows ? step * c.a_row * kBytes : 0;
  b_step_ = by_rows ? 0 : step * c.b_column * kBytes;
  out_step_ = step * (by_rows ? c.out_row : c.out_column) * kBytes;
  for (const Shape& shape : shapes_)
    if (shape.scratch_bytes > scratch_step_) scratch_step_ = shape.scratch_bytes;
  scratch_step_ = (scratch_step_ + 63) / 64 * 64;
  for (int64_t i = 0; i < pieces_; ++i) {
    Context* context = make_context();
    if (context == nullptr) return false;
    give_back(context);
  }
  const char* implementation = "onednn matmul";
  library_->api.pd_query(shapes_[0].pd, kQueryImplementation, 0, &implementation);
  plan.kernel = implementation;
  plan.library = library_->name;
  plan.workspace_bytes = scratch_step_ * static_cast<uint64_t>(pieces_);
  // That kernel takes its packing buffers from the heap for the time of a call: never more than
  // copies of both operands for each piece.
  for (int64_t i = 0; i < pieces_ && is_packing(library_->api, shapes_[0].pd); ++i)
    plan.hidden_bytes += static_cast<uint64_t>((c.m + c.n) * c.k * kBytes);
  return true;
}

int Contractor::run_piece(int64_t piece, const char* a, const char* b, char* out,
                          char* workspace) const {
  const Api& api = library_->api;
  int64_t s = piece == pieces_ - 1 ? last_shape_ : 0;
  Context* context = take_context();
  if (context == nullptr) return -1;
  void* const handles[kSlots] = {const_cast<char*>(a + piece * a_step_),
                                 const_cast<char*>(b + piece * b_step_), out + piece * out_step_,
                                 workspace + static_cast<size_t>(piece) * scratch_step_};
  Argument arguments[kSlots];
  int count = 0;
  int status = kSuccess;
  for (int i = 0; i < kSlots && status == kSuccess; ++i) {
    void* memory = context->memory[s][i];
    if (memory == nullptr) continue;
    status = api.memory_set_data_handle(memory, handles[i]);
    arguments[count++] = {kArgumentOf[i], memory};
  }
  if (status == kSuccess) {
    SingleThread single(api);
    status = api.primitive_execute(shapes_[s].primitive, context->stream, count, arguments);
  }
  give_back(context);
  return status;
}

anyhal_status Contractor::run(const Plan& plan, const char* a, const char* b, char* out,
                              char* workspace, anyhal_error* error) const {
  struct Job {
    const Contractor* self;
    const char *a, *b;
    char *out, *workspace;
    std::atomic<int> status;
  };
  Job job = {this, a, b, out, workspace, {kSuccess}};
  plan.team.run(
      static_cast<uint32_t>(pieces_),
      [](void* argument, uint32_t index) {
        Job& j = *static_cast<Job*>(argument);
        int status = j.self->run_piece(index, j.a, j.b, j.out, j.workspace);
        if (status != kSuccess) j.status = status;
      },
      &job);
  if (job.status == kSuccess) return ANYHAL_STATUS_OK;
  return fail(error, ANYHAL_STATUS_EXECUTION_FAILED, ANYHAL_REASON_NONE,
              "%s answered status %d while executing %s; run again with the setting "
              "onednn_library empty to use the backend's own kernels",
              library_->name, job.status.load(), plan.kernel);
}

OneDnn* open(const char* path, char* note, size_t note_bytes) {
  if (path[0] == '\0') {
    snprintf(note, note_bytes,
             "oneDNN is not used: the setting onednn_library is empty; the backend's own kernels "
             "run instead; install onednn-cpu-gomp to use the library");
    return nullptr;
  }
  void* library = path[0] == '/' ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (library == nullptr) {
    const char* why = path[0] == '/' ? dlerror() : "the path is not absolute";
    snprintf(note, note_bytes,
             "oneDNN is not used: %s cannot be opened (%s); the backend's own kernels run instead; "
             "install the missing library (Debian: libgomp1)",
             path, why);
    return nullptr;
  }
  std::unique_ptr<OneDnn> self(new (std::nothrow) OneDnn);
  const char* missing = self ? load(library, &self->api) : "memory";
  if (missing == nullptr && self->api.version()->major != 3) missing = "the C API of version 3";
  if (missing == nullptr && self->api.engine_create(&self->engine, kEngineCpu, 0) != kSuccess)
    missing = "a CPU engine";
  if (missing != nullptr) {
    snprintf(note, note_bytes,
             "oneDNN is not used: %s lacks %s; the backend's own kernels run instead; install "
             "onednn-cpu-gomp 2023.2.0",
             path, missing);
    return nullptr;
  }
  const Version* v = self->api.version();
  snprintf(self->name, sizeof(self->name), "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
  snprintf(note, note_bytes, "%s runs large f32 products, one thread at a time", self->name);
  return self.release();
}

}  // namespace

OneDnn* OneDnnLibrary::get() {
  std::call_once(once_, [this] {
    opened_ = open(path_.c_str(), note_, sizeof(note_));
    if (opened_ == nullptr && given()) services_->log(services_->context, 2, note_);
  });
  return opened_;
}

const char* OneDnnLibrary::note() {
  get();
  return note_;
}

bool onednn_prepare(Plan& plan, const Contraction& contraction) {
  OneDnn* library = plan.onednn->get();
  if (library == nullptr) return false;
  std::unique_ptr<Contractor> contractor(new (std::nothrow) Contractor(library));
  if (!contractor || !contractor->prepare(plan, contraction)) {
    plan.workspace_bytes = 0;
    return false;
  }
  plan.end_library_state = [](void* state) { delete static_cast<Contractor*>(state); };
  plan.library_state = contractor.release();
  return true;
}

anyhal_status onednn_run(const Plan& plan, const char* a, const char* b, char* out, char* workspace,
                         anyhal_error* error) {
  return static_cast<const Contractor*>(plan.library_state)->run(plan, a, b, out, workspace, error);
}

}  // namespace hal::cpu
