// The part of XLA's foreign-function interface that is used here: registering a custom call, and
// the frame that it is called with.
// SPDX-License-Identifier: Apache-2.0
//
// Written from the comments and field lists of xla/ffi/api/c_api.h (0.3, as jaxlib 0.10 carries it)
// and xla/pjrt/c/pjrt_c_api_ffi_extension.h of github.com/openxla/xla, as measured on plugins of
// PJRT 0.81, 0.106 and 0.115, whose frames say 0.2, 0.3 and 0.4. Fields are only ever appended, but
// for the record that registers, which carries no version and has another form in one copy of its
// header: it is passed only to versions that lie between measured ones.
#ifndef ANYHAL_BACKENDS_PJRT_FFI_API_H_
#define ANYHAL_BACKENDS_PJRT_FFI_API_H_

#include "api.h"

namespace hal::pjrt::ffi {

constexpr int kMinorLeast = 81, kMinorMost = 115;  // of PJRT 0.x

// ------------------------------------------------------------------- extension of the PJRT table

enum ExtensionType : int { kFfiExtension = 5 };

struct Extension {
  size_t struct_size;
  int type;
  const Extension* next;
};

struct Registration {
  size_t struct_size;
  const char* name;
  size_t name_size;
  void* handler;
  const char* platform;
  size_t platform_size;
  int traits;
};

struct FfiExtension {
  Extension base;
  void* register_type;
  void* add_user_data;
  api::Error* (*register_handler)(Registration*);
};

// -------------------------------------------------------------------------------------- a call

struct Error;    // opaque: what a handler answers, null for success
struct Context;  // opaque

struct Header {
  size_t struct_size;
  const Extension* extensions;
};

struct Version {
  Header header;
  int major, minor;
};

enum Code : int { kInvalidArgument = 3 };

struct ErrorCreate {
  Header header;
  const char* message;
  int code;
};

// What a handler is asked first, as an extension of a frame without arguments.
enum FrameExtension : int { kMetadataExtension = 1 };
struct Metadata {
  size_t struct_size;
  Version version;  // out
  uint32_t traits;  // out
};
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

enum DataType : int { kF32 = 11, kS64 = 5, kU8 = 6 };
enum Kind : int { kBuffer = 1 };  // of arguments and results
enum AttributeKind : int { kArray = 1 };

struct Buffer {
  Header header;
  int dtype;
  void* data;
  int64_t rank;
  const int64_t* dims;
};

struct Array {
  int dtype;
  size_t size;
  const void* data;
};

// Arguments, and results alike.
struct List {
  Header header;
  int64_t size;
  const int* kinds;
  void* const* items;
};

struct Attributes {
  Header header;
  int64_t size;
  const int* kinds;
  const void* const* names;
  void* const* items;
};

struct Api {
  Header header;
  Version version;
  const void* internal;
  Error* (*create_error)(ErrorCreate*);
};

enum Stage : int { kExecute = 3 };

struct Frame {
  Header header;
  const Api* api;
  Context* context;
  int stage;
  List arguments, results;
  Attributes attributes;
};

}  // namespace hal::pjrt::ffi

#endif  // ANYHAL_BACKENDS_PJRT_FFI_API_H_
