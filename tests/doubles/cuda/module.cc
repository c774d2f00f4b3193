// Modules and launches of the double: entries by name, parameters by the kernel's own structure.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>

#include "double.h"

namespace cuda_double {

thread_local Launch launch = {};

namespace {

Kernel* all_kernels = nullptr;

bool is_machine_code(const std::string& image) {
  return image.compare(0, 4,
                       "\x7f"
                       "ELF") == 0;
}

// Where the image ends: PTX at its NUL, an ELF file with its section headers (as ptxas writes them
// last but for program headers).
std::string image_of(const void* image) {
  const char* text = static_cast<const char*>(image);
  if (std::memcmp(text,
                  "\x7f"
                  "ELF",
                  4) != 0)
    return text;
  uint64_t sections, programs;
  uint16_t section_bytes, section_count, program_bytes, program_count;
  std::memcpy(&programs, text + 32, 8);
  std::memcpy(&sections, text + 40, 8);
  std::memcpy(&program_bytes, text + 54, 2);
  std::memcpy(&program_count, text + 56, 2);
  std::memcpy(&section_bytes, text + 58, 2);
  std::memcpy(&section_count, text + 60, 2);
  return std::string(text, std::max(sections + uint64_t(section_bytes) * section_count,
                                    programs + uint64_t(program_bytes) * program_count));
}

int number_after(const std::string& image, const char* key) {
  const size_t at = image.find(key);
  return at == std::string::npos ? 0 : std::atoi(image.c_str() + at + std::strlen(key));
}

std::set<std::string> entries_of(const std::string& image) {
  const std::string key = is_machine_code(image) ? ".text." : ".entry ";
  std::set<std::string> names;
  for (size_t at = image.find(key); at != std::string::npos; at = image.find(key, at + 1)) {
    const size_t first = at + key.size();
    size_t end = first;
    while (end < image.size() && (std::isalnum(image[end]) || image[end] == '_')) ++end;
    if (end > first) names.insert(image.substr(first, end - first));
  }
  return names;
}

// PTX runs on its target and later; machine code on the same major number and not before its own.
CUresult fits(const std::string& image, const Device& device) {
  const int here = device.major * 10 + device.minor;
  if (is_machine_code(image)) {
    const int built = static_cast<unsigned char>(image[48]);  // e_flags, lowest byte
    return built / 10 == device.major && built <= here ? CUDA_SUCCESS
                                                       : CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  const int built = number_after(image, ".target sm_");
  if (built == 0) return CUDA_ERROR_INVALID_PTX;
  return built <= here ? CUDA_SUCCESS : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

void run_kernel(const Kernel& kernel, const std::vector<uint8_t>& parameters, unsigned grid,
                unsigned block, int failure) {
  fail_run(failure);
  for (unsigned index = 0; index < grid; ++index) {
    launch = {grid, block, index};
    kernel.run(parameters.data());
  }
}

// The packed buffer of `extra`, or the one structure that kernels here take.
bool parameters_of(const Kernel& kernel, void** parameters, void** extra,
                   std::vector<uint8_t>* out) {
  out->assign(kernel.parameter_bytes, 0);
  if (parameters != nullptr) {
    std::memcpy(out->data(), parameters[0], kernel.parameter_bytes);
    return true;
  }
  const void* buffer = nullptr;
  size_t bytes = 0;
  for (; extra != nullptr && reinterpret_cast<uintptr_t>(*extra) != CU_LAUNCH_PARAM_END_AS_INT;
       extra += 2) {
    if (reinterpret_cast<uintptr_t>(*extra) == CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT)
      buffer = extra[1];
    if (reinterpret_cast<uintptr_t>(*extra) == CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT)
      bytes = *static_cast<size_t*>(extra[1]);
  }
  if (buffer == nullptr || bytes != kernel.parameter_bytes) return false;
  std::memcpy(out->data(), buffer, bytes);
  return true;
}

}  // namespace

Kernel::Kernel(const char* kernel_name, size_t bytes, void (*code)(const void*))
    : name(kernel_name), parameter_bytes(bytes), run(code), next(all_kernels) {
  all_kernels = this;
}

const Kernel* kernel_named(const std::string& name) {
  for (const Kernel* kernel = all_kernels; kernel != nullptr; kernel = kernel->next)
    if (name == kernel->name) return kernel;
  return nullptr;
}

}  // namespace cuda_double

using namespace cuda_double;

DOUBLE_EXPORT CUresult cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned count,
                                          CUjit_option* options, void** values) {
  DOUBLE_ENTER(cuModuleLoadDataEx, true);
  if (CUresult no = unsafe("cuModuleLoadDataEx"); no != CUDA_SUCCESS) return no;
  const std::string text = image_of(image);
  if (CUresult no = fits(text, *world().devices[current->device]); no != CUDA_SUCCESS) {
    for (unsigned i = 0; i < count; ++i)
      if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
        std::strcpy(static_cast<char*>(values[i]), "ptxas fatal: simulated");
    return no;
  }
  auto* module = new CUmod_st{current, entries_of(text), {}};
  world().modules.insert(module);
  *out = module;
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuModuleUnload(CUmodule module) {
  DOUBLE_ENTER(cuModuleUnload, true);
  if (world().modules.erase(module) == 0) return violation("cuModuleUnload of no module, or twice");
  for (const auto& [name, function] : module->functions) delete function;
  delete module;
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuModuleGetFunction(CUfunction* out, CUmodule module, const char* name) {
  DOUBLE_ENTER(cuModuleGetFunction, true);
  if (!world().modules.contains(module)) return violation("cuModuleGetFunction of no module");
  if (!module->entries.contains(name)) return CUDA_ERROR_NOT_FOUND;
  const Kernel* kernel = kernel_named(name);
  if (kernel == nullptr)
    return violation(std::string("the double has no code for the kernel ") + name,
                     CUDA_ERROR_NOT_FOUND);
  CUfunction& function = module->functions[name];
  if (function == nullptr) function = new CUfunc_st{module, kernel};
  *out = function;
  return CUDA_SUCCESS;
}

DOUBLE_EXPORT CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int value) {
  DOUBLE_ENTER(cuFuncSetAttribute, true);
  return value <= 227 * 1024 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

DOUBLE_EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                      unsigned grid_z, unsigned block_x, unsigned block_y,
                                      unsigned block_z, unsigned, CUstream stream,
                                      void** parameters, void** extra) {
  DOUBLE_ENTER(cuLaunchKernel, true);
  if (function == nullptr || !world().modules.contains(function->module))
    return violation("cuLaunchKernel of a function whose module is gone");
  if (function->module->context != current)
    return violation("cuLaunchKernel of another context's function", CUDA_ERROR_INVALID_HANDLE);
  const uint64_t grid = uint64_t{grid_x} * grid_y * grid_z;
  const uint64_t block = uint64_t{block_x} * block_y * block_z;
  if (grid == 0 || block == 0 || block > 1024 || grid_y > 65535 || grid_z > 65535)
    return violation("cuLaunchKernel with a grid or block that no device has");
  std::vector<uint8_t> bytes;
  if (!parameters_of(*function->kernel, parameters, extra, &bytes))
    return violation("cuLaunchKernel with parameters of another size");
  const Kernel* kernel = function->kernel;
  const int failure = failing_run(kernel->name);
  return put(stream, {kernel->name, [kernel, bytes, grid, block, failure] {
                        run_kernel(*kernel, bytes, unsigned(grid), unsigned(block), failure);
                      }});
}
