// Entry of the CUDA backend: agrees on a version and finds the driver, cuBLASLt and the kernels.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <fstream>

#include "device.h"

namespace hal::cuda {
namespace {

const char* setting(const anyhal_hello& hello, const char* name) {
  // Asking tells the core that the name is known.
  if (hello.services != nullptr && hello.services->setting != nullptr)
    return hello.services->setting(hello.services->context, name);
  for (uint32_t i = 0; i < hello.setting_count; ++i)
    if (std::strcmp(hello.settings[i].name, name) == 0 && hello.settings[i].value[0] != 0)
      return hello.settings[i].value;
  return nullptr;
}

// The core opens a copy of this library, and says where the file lies.
std::string own_folder(const anyhal_hello& hello) {
  if (const char* folder = setting(hello, "folder")) return folder;
  Dl_info about = {};
  dladdr(reinterpret_cast<void*>(&own_folder), &about);
  const std::string path = about.dli_fname != nullptr ? about.dli_fname : "";
  return path.substr(0, path.rfind('/'));
}

void find_driver(const anyhal_hello& hello, Self& self) {
  std::string why;
  void* library = open_library(setting(hello, "driver"), "libcuda.so.1", &why);
  if (library == nullptr)
    throw Fault(ANYHAL_STATUS_NOT_FOUND, ANYHAL_REASON_MISSING_LIBRARY, 0,
                "NVIDIA's driver is not there (" + why + "); install it to use its devices");
  const std::string missing = load_driver(library, &self.driver);
  if (self.driver.cuDriverGetVersion != nullptr)
    check(self.driver, self.driver.cuDriverGetVersion(&self.driver_version), "cuDriverGetVersion");
  if (self.driver_version >= kDriverFloor && missing.empty()) return;
  throw Fault(ANYHAL_STATUS_UNSUPPORTED, ANYHAL_REASON_DRIVER, 0,
              "the driver speaks CUDA " + std::to_string(self.driver_version / 1000) + "." +
                  std::to_string(self.driver_version % 1000 / 10) +
                  (missing.empty() ? "" : " and lacks " + missing) +
                  ", 12.1 is needed; install a newer NVIDIA driver");
}

// Beside the driver where that was named as a folder: a simulated one has its own. Else the
// wheel's, else the system's.
void find_cublaslt(const anyhal_hello& hello, Self& self) {
  std::string why;
  void* library = nullptr;
  const char* driver = setting(hello, "driver");
  const char* wheel = setting(hello, "cublaslt");
  const char* place = driver != nullptr && is_folder(driver) ? driver : wheel;
  for (const char* file : {"libcublasLt.so.13", "libcublasLt.so.12"})
    if (library == nullptr) library = open_library(place, file, &why);
  self.blas_missing = library == nullptr ? why : load_cublaslt(library, &self.blas);
}

// Beside a driver that was named as a folder, else beside this library.
void find_kernels(const anyhal_hello& hello, Self& self) {
  const char* driver = setting(hello, "driver");
  self.kernels = driver != nullptr ? driver + std::string("/kernels") : "";
  if (!is_folder(self.kernels.c_str())) self.kernels = own_folder(hello) + "/kernels";
  self.has_kernels = std::ifstream(self.kernels + "/copy.ptx").good();
  for (const char* file : {"libnvrtc.so.13", "libnvrtc.so.12"})
    if (self.nvrtc == nullptr)
      self.nvrtc = open_library(setting(hello, "nvrtc"), file, &self.nvrtc_missing);
}

}  // namespace
}  // namespace hal::cuda

extern "C" ANYHAL_EXPORT anyhal_status anyhal_backend_main(const anyhal_hello* hello,
                                                           anyhal_reply* reply,
                                                           anyhal_error* error) {
  using namespace hal::cuda;
  const anyhal_status agreed = sdk::agree(*hello, *reply, error);
  if (agreed != ANYHAL_STATUS_OK) return agreed;
  return guarded(error, [&] {
    auto self = std::make_unique<Self>();
    self->services = hello->services;
    find_driver(*hello, *self);
    find_cublaslt(*hello, *self);
    find_kernels(*hello, *self);
    reply->table = &the_table();
    reply->self = reinterpret_cast<anyhal_self*>(self.release());  // lives with the process
    reply->build_id = "cuda 0.1, " __VERSION__;
  });
}
