// The part of the PJRT C interface that is used here: slot numbers, records, enumerations.
// SPDX-License-Identifier: Apache-2.0
//
// Written from the documentation of the interface: openxla.org/xla/pjrt (integration guide and C
// API overview) and the field lists in xla/pjrt/c/README.md and CHANGELOG.md of github.com/openxla/
// xla, versions 0.54 to 0.115, as measured on plugins of 0.81, 0.106 and 0.115. Slots and fields
// are only ever appended there, so a slot's number and a record's prefix are stable; whether a
// plugin has a slot is read from the size of its table.
#ifndef ANYHAL_BACKENDS_PJRT_API_H_
#define ANYHAL_BACKENDS_PJRT_API_H_

#include <cstddef>
#include <cstdint>

namespace hal::pjrt::api {

// Opaque objects of a plugin.
struct Error;
struct Event;
struct Client;
struct Device;
struct DeviceDescription;
struct Memory;
struct Buffer;
struct Executable;        // what was compiled
struct LoadedExecutable;  // the same, ready to run on a client's devices
struct SerializedExecutable;

// How every record begins: its size as the caller knows it, and a list of extensions.
struct Header {
  size_t struct_size;
  void* extensions;
};

struct Version {
  Header header;
  int major, minor;
};

// The table that GetPjrtApi answers. As many slots follow as fit into struct_size.
using AnySlot = Error* (*)(void* record);
struct Table {
  Header header;
  Version version;
  AnySlot slots[1];
};
using GetPjrtApi = const Table* (*)();

// Position of a function in the table.
enum Slot : size_t {
  kErrorDestroy = 0,
  kErrorMessage = 1,
  kErrorGetCode = 2,
  kPluginInitialize = 3,
  kEventDestroy = 5,
  kEventIsReady = 6,
  kEventAwait = 8,
  kClientCreate = 10,
  kClientPlatformName = 12,
  kClientPlatformVersion = 14,
  kClientAddressableDevices = 16,
  kClientCompile = 20,
  kClientBufferFromHostBuffer = 22,
  kDeviceDescriptionKind = 26,
  kDeviceGetDescription = 29,
  kExecutableDestroy = 40,
  kExecutableNumOutputs = 44,
  kExecutableSerialize = 49,
  kLoadedExecutableDestroy = 50,
  kLoadedExecutableGetExecutable = 51,
  kLoadedExecutableExecute = 55,
  kExecutableDeserializeAndLoad = 56,
  kBufferDestroy = 58,
  kBufferIsDeleted = 68,
  kBufferToHostBuffer = 70,
  kBufferReadyEvent = 72,
  kBufferOpaquePointer = 76,
  kExecutableGetCompiledMemoryStats = 96,
};

// Codes are those of absl::Status.
enum Code : int {
  kUnknown = 2,
  kInvalidArgument = 3,
  kNotFound = 5,
  kResourceExhausted = 8,
  kUnimplemented = 12,
};

enum BufferType : int { kU8 = 6 };

// Who may touch the host's bytes, and until when.
enum HostBuffer : int {
  kImmutableOnlyDuringCall = 0,
  kImmutableUntilTransferCompletes = 1,
};

enum ValueKind : int { kValueString = 0, kValueInt64 = 1 };

struct NamedValue {
  Header header;
  const char* name;
  size_t name_size;
  ValueKind kind;
  union {
    const char* text;
    int64_t integer;
  };
  size_t value_size;  // characters of a text; 1 otherwise
};

// Records, named after their slots. `out` marks what the plugin writes.

struct ErrorDestroy {
  Header header;
  Error* error;
};
struct ErrorMessage {
  Header header;
  const Error* error;
  const char* message;  // out
  size_t message_size;  // out
};
struct ErrorGetCode {
  Header header;
  const Error* error;
  int code;  // out
};
struct PluginInitialize {
  Header header;
};
struct EventArgs {  // destroy, error, await
  Header header;
  Event* event;
};
struct EventIsReady {
  Header header;
  Event* event;
  bool is_ready;  // out
};
struct ClientCreate {
  Header header;
  const NamedValue* options;
  size_t option_count;
  void* key_value_get;
  void* key_value_get_argument;
  void* key_value_put;
  void* key_value_put_argument;
  Client* client;  // out
  void* key_value_try_get;
  void* key_value_try_get_argument;
};
struct ClientText {  // platform name, platform version
  Header header;
  Client* client;
  const char* text;  // out
  size_t text_size;  // out
};
struct ClientAddressableDevices {
  Header header;
  Client* client;
  Device* const* devices;  // out
  size_t device_count;     // out
};
struct DeviceGetDescription {
  Header header;
  Device* device;
  DeviceDescription* description;  // out
};
struct DeviceDescriptionKind {
  Header header;
  DeviceDescription* description;
  const char* kind;  // out
  size_t kind_size;  // out
};
struct Program {
  Header header;
  char* code;
  size_t code_size;
  const char* format;  // "mlir": StableHLO as text or bytecode
  size_t format_size;
};
struct ClientCompile {
  Header header;
  Client* client;
  const Program* program;
  const char* options;  // xla.CompileOptionsProto
  size_t options_size;
  LoadedExecutable* executable;  // out
};
struct ClientBufferFromHostBuffer {
  Header header;
  Client* client;
  const void* data;
  BufferType type;
  const int64_t* dims;
  size_t dim_count;
  const int64_t* byte_strides;  // null: dense
  size_t byte_stride_count;
  HostBuffer semantics;
  Device* device;
  Memory* memory;
  void* layout;
  Event* done_with_host_buffer;  // out
  Buffer* buffer;                // out
};
struct ExecutableArgs {  // destroy
  Header header;
  Executable* executable;
};
struct ExecutableNumOutputs {
  Header header;
  Executable* executable;
  size_t output_count;  // out
};
struct ExecutableSerialize {
  Header header;
  const Executable* executable;
  const char* bytes;                       // out
  size_t byte_count;                       // out
  SerializedExecutable* serialized;        // out
  void (*destroy)(SerializedExecutable*);  // out
};
struct ExecutableDeserializeAndLoad {
  Header header;
  Client* client;
  const char* bytes;
  size_t byte_count;
  LoadedExecutable* executable;  // out
  const char* options;
  size_t options_size;
};
struct ExecutableGetCompiledMemoryStats {
  Header header;
  Executable* executable;
  int64_t code_bytes, argument_bytes, output_bytes, alias_bytes, temp_bytes;  // out
  int64_t host[5];                                                            // out
};
struct LoadedExecutableArgs {  // destroy
  Header header;
  LoadedExecutable* executable;
};
struct LoadedExecutableGetExecutable {
  Header header;
  LoadedExecutable* loaded;
  Executable* executable;  // out
};
struct ExecuteOptions {
  Header header;
  void** send_callbacks;
  void** receive_callbacks;
  size_t send_count, receive_count;
  int launch_id;
  const int64_t* non_donatable;  // argument numbers that stay whole although declared as donated
  size_t non_donatable_count;
};
struct LoadedExecutableExecute {
  Header header;
  LoadedExecutable* executable;
  ExecuteOptions* options;
  Buffer* const* const* arguments;  // for each device
  size_t device_count;
  size_t argument_count;
  Buffer** const* outputs;  // for each device; filled
  Event** complete;         // for each device; filled
  Device* device;
};
struct BufferArgs {  // destroy
  Header header;
  Buffer* buffer;
};
struct BufferIsDeleted {
  Header header;
  Buffer* buffer;
  bool is_deleted;  // out
};
struct BufferToHostBuffer {
  Header header;
  Buffer* source;
  void* layout;  // null: dense
  void* destination;
  size_t destination_bytes;
  Event* event;  // out
};
struct BufferReadyEvent {
  Header header;
  Buffer* buffer;
  Event* event;  // out
};
struct BufferOpaquePointer {
  Header header;
  Buffer* buffer;
  void* pointer;  // out
};

// A record as it is passed: zeroed, and with room behind it that it claims for its own, so that a
// plugin which has grown since reads zeros where it expects newer fields.
template <class Record>
struct Args {
  Record record = {};
  char newer[256] = {};
  Args() { record.header.struct_size = sizeof(Args); }
  Record* operator->() { return &record; }
};

}  // namespace hal::pjrt::api

#endif  // ANYHAL_BACKENDS_PJRT_API_H_
