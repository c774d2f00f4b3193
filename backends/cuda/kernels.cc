// Where an op's kernel comes from: the bundle beside this library, else NVRTC and the source in it.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <fstream>
#include <sstream>

#include "device.h"
#include "sources.h"

namespace hal::cuda {
namespace {

constexpr int kFloor = 80;  // of the PTX in the bundle

// NVRTC's C interface (user guide 12.1, chapter 3).
struct Nvrtc {
  using Program = struct _nvrtcProgram*;
  int (*nvrtcCreateProgram)(Program*, const char* source, const char* name, int headers,
                            const char* const* texts, const char* const* names);
  int (*nvrtcCompileProgram)(Program, int count, const char* const* options);
  int (*nvrtcGetPTXSize)(Program, size_t*);
  int (*nvrtcGetPTX)(Program, char*);
  int (*nvrtcGetProgramLogSize)(Program, size_t*);
  int (*nvrtcGetProgramLog)(Program, char*);
  int (*nvrtcDestroyProgram)(Program*);
};

bool load(void* library, Nvrtc* nvrtc) {
#define HAL_CUDA_NVRTC(name)                                   \
  if (void* symbol = dlsym(library, #name); symbol != nullptr) \
    std::memcpy(&nvrtc->name, &symbol, sizeof symbol);         \
  else                                                         \
    return false;
  HAL_CUDA_NVRTC(nvrtcCreateProgram)
  HAL_CUDA_NVRTC(nvrtcCompileProgram)
  HAL_CUDA_NVRTC(nvrtcGetPTXSize)
  HAL_CUDA_NVRTC(nvrtcGetPTX)
  HAL_CUDA_NVRTC(nvrtcGetProgramLogSize)
  HAL_CUDA_NVRTC(nvrtcGetProgramLog)
  HAL_CUDA_NVRTC(nvrtcDestroyProgram)
#undef HAL_CUDA_NVRTC
  return true;
}

const char* source_of(const std::string& name) {
  for (int i = 0; i < kSourceCount; ++i)
    if (name == kSources[i].name) return kSources[i].text;
  return nullptr;
}

std::string compile(const Self& self, const std::string& op) {
  Nvrtc nvrtc;
  if (!load(self.nvrtc, &nvrtc))
    throw Fault(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_MISSING_LIBRARY, 0,
                "the NVRTC library lacks a function; install nvidia-cuda-nvrtc-cu12");
  std::vector<const char*> names, texts;
  for (int i = 0; i < kSourceCount; ++i)
    names.push_back(kSources[i].name), texts.push_back(kSources[i].text);
  Nvrtc::Program program = nullptr;
  const std::string file = op + ".cu";
  int code = nvrtc.nvrtcCreateProgram(&program, source_of(file), file.c_str(), kSourceCount,
                                      texts.data(), names.data());
  const char* options[] = {"--gpu-architecture=compute_80", "--std=c++17", "--fmad=false",
                           "--device-as-default-execution-space"};
  if (code == 0) code = nvrtc.nvrtcCompileProgram(program, 4, options);
  const auto read = [&](auto size_of, auto text_of) {
    size_t bytes = 0;
    size_of(program, &bytes);
    std::string text(bytes, 0);
    if (bytes != 0) text_of(program, text.data());
    return text;
  };
  std::string made = code == 0 ? read(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
                               : read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog);
  nvrtc.nvrtcDestroyProgram(&program);
  if (code != 0)
    throw Fault(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_MISSING_ARTEFACT, code,
                "NVRTC refused the kernel: " + made.substr(0, 120) + "; report this defect");
  return made;
}

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return file ? text.str() : "";
}

// Machine code for this very architecture, else the PTX that every later one reads.
std::string image_of(const Device& device, const std::string& op) {
  const std::string stem = device.self->kernels + "/" + op;
  std::string image = file_text(stem + ".sm_" + std::to_string(device.architecture) + ".cubin");
  if (image.empty()) image = file_text(stem + ".ptx");
  return image.empty() ? compile(*device.self, op) : image;
}

CUmodule module_of(Device& device, const std::string& op) {
  std::unique_lock lock(device.mutex);
  if (auto found = device.modules.find(op); found != device.modules.end()) return found->second;
  lock.unlock();
  const std::string image = image_of(device, op);
  CUmodule module = load_module(device, image);
  lock.lock();
  auto [at, added] = device.modules.emplace(op, module);
  if (!added) device.driver().cuModuleUnload(module);  // another thread was faster
  return at->second;
}

}  // namespace

CUmodule load_module(Device& device, const std::string& image) {
  char log[100] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  CUmodule module = nullptr;
  const CUresult code =
      device.driver().cuModuleLoadDataEx(&module, image.c_str(), 2, options, values);
  const std::string what = "cuModuleLoadDataEx" + (log[0] != 0 ? ": " + std::string(log) : "");
  check(device, code, what.c_str());
  return module;
}

std::string kernels_missing(const Device& device) {
  if (device.architecture < kFloor)
    return "its kernels need compute capability 8.0 and it has " +
           std::to_string(device.architecture / 10) + "." +
           std::to_string(device.architecture % 10);
  if (device.self->nvrtc != nullptr || device.self->has_kernels) return "";
  return "its kernels are missing: " + device.self->kernels +
         " holds no bundle, and NVRTC, which would compile them, is not there (" +
         device.self->nvrtc_missing + "); pip install nvidia-cuda-nvrtc-cu12";
}

CUfunction kernel_of(Device& device, const char* op, const char* entry) {
  CUfunction function = nullptr;
  HAL_CUDA(device, cuModuleGetFunction, &function, module_of(device, op), entry);
  return function;
}

}  // namespace hal::cuda
