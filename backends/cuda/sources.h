// The kernels' own source, which the build puts into the library (sources.cmake): for NVRTC.
// SPDX-License-Identifier: Apache-2.0
#ifndef BACKENDS_CUDA_SOURCES_H_
#define BACKENDS_CUDA_SOURCES_H_

namespace hal::cuda {

struct Source {
  const char* name;  // as an #include or NVRTC names it
  const char* text;
};
extern const Source kSources[];
extern const int kSourceCount;

}  // namespace hal::cuda

#endif  // BACKENDS_CUDA_SOURCES_H_
