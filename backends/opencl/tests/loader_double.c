/* An OpenCL loader that lies on demand: the real one lies behind it and answers all the rest.
 * SPDX-License-Identifier: Apache-2.0
 *
 * OPENCL_DOUBLE names one lie: "no platform", "no device", "old", "no memory" (kernels are refused
 * for want of it) or "fail N CODE" (the N-th kernel from here on ends with CODE). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void* handle;

static int left = -1, bad_code; /* kernels until one fails; -1: count anew */
static handle bad;
static char told[64];

static const char* lie(void) {
  const char* text = getenv("OPENCL_DOUBLE");
  if (!text) text = "";
  if (strcmp(told, text) != 0) {
    snprintf(told, sizeof(told), "%s", text);
    left = -1;
  }
  return text;
}

int32_t clGetPlatformIDs(uint32_t count, handle* platforms, uint32_t* total) {
  int32_t (*real)(uint32_t, handle*, uint32_t*) = dlsym(RTLD_NEXT, "clGetPlatformIDs");
  if (strcmp(lie(), "no platform") == 0) {
    if (total) *total = 0;
    return -1001;
  }
  return real(count, platforms, total);
}

int32_t clGetDeviceIDs(handle platform, uint64_t type, uint32_t count, handle* devices,
                       uint32_t* total) {
  int32_t (*real)(handle, uint64_t, uint32_t, handle*, uint32_t*) =
      dlsym(RTLD_NEXT, "clGetDeviceIDs");
  if (strcmp(lie(), "no device") == 0) {
    if (total) *total = 0;
    return -1;
  }
  return real(platform, type, count, devices, total);
}

int32_t clGetDeviceInfo(handle device, uint32_t what, size_t bytes, void* value, size_t* total) {
  int32_t (*real)(handle, uint32_t, size_t, void*, size_t*) = dlsym(RTLD_NEXT, "clGetDeviceInfo");
  static const char kOld[] = "OpenCL 1.1 double";
  if (strcmp(lie(), "old") != 0 || what != 0x102f) return real(device, what, bytes, value, total);
  if (total) *total = sizeof(kOld);
  if (value && bytes >= sizeof(kOld)) memcpy(value, kOld, sizeof(kOld));
  return 0;
}

/* A failed kernel does not run, and its event ends with the code; what follows it goes on, as with
 * the drivers that this was seen on. */
int32_t clEnqueueNDRangeKernel(handle queue, handle kernel, uint32_t rank, const size_t* offset,
                               const size_t* global, const size_t* local, uint32_t count,
                               const handle* wait, handle* event) {
  int32_t (*real)(handle, handle, uint32_t, const size_t*, const size_t*, const size_t*, uint32_t,
                  const handle*, handle*) = dlsym(RTLD_NEXT, "clEnqueueNDRangeKernel");
  int32_t (*marker)(handle, uint32_t, const handle*, handle*) =
      dlsym(RTLD_NEXT, "clEnqueueMarkerWithWaitList");
  int number = 0, code = 0;
  if (strcmp(lie(), "no memory") == 0) return -4;
  if (sscanf(lie(), "fail %d %d", &number, &code) == 2 && left < 0) left = number;
  if (left <= 0 || --left != 0)
    return real(queue, kernel, rank, offset, global, local, count, wait, event);
  const int32_t error = marker(queue, 0, NULL, event);
  bad = event ? *event : NULL;
  bad_code = code;
  return error;
}

int32_t clGetEventInfo(handle event, uint32_t what, size_t bytes, void* value, size_t* total) {
  int32_t (*real)(handle, uint32_t, size_t, void*, size_t*) = dlsym(RTLD_NEXT, "clGetEventInfo");
  const int32_t error = real(event, what, bytes, value, total);
  if (error == 0 && event == bad && what == 0x11d3 && value && *(int32_t*)value == 0)
    *(int32_t*)value = bad_code;
  return error;
}

int32_t clReleaseEvent(handle event) {
  lie();
  int32_t (*real)(handle) = dlsym(RTLD_NEXT, "clReleaseEvent");
  if (event == bad) bad = NULL;
  return real(event);
}
