// The edge of a backend: C++ exceptions become statuses, and messages are made without allocating.
// SPDX-License-Identifier: Apache-2.0
#ifndef ANYHAL_SDK_GUARD_HPP_
#define ANYHAL_SDK_GUARD_HPP_

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include "anyhal/backend.h"
#include "anyhal/fingerprints.h"
#include "anyhal/ops.h"

namespace hal::sdk {

// Fills an error record as far as its writer knows it, and returns `status`.
inline anyhal_status fail_v(anyhal_error* error, anyhal_status status, int32_t reason,
                            const char* format, va_list arguments) {
  if (error == nullptr || !ANYHAL_HAS(error, anyhal_error, text)) return status;
  error->reason = reason;
  error->vendor_code = 0;
  std::vsnprintf(error->text, sizeof(error->text), format, arguments);
  return status;
}

__attribute__((format(printf, 4, 5))) inline anyhal_status fail(anyhal_error* error,
                                                                anyhal_status status,
                                                                int32_t reason, const char* format,
                                                                ...) {
  va_list arguments;
  va_start(arguments, format);
  fail_v(error, status, reason, format, arguments);
  va_end(arguments);
  return status;
}

// A failure with its text, thrown inside a backend and converted by guard().
class Failure : public std::exception {
 public:
  __attribute__((format(printf, 4, 5))) Failure(anyhal_status status, int32_t reason,
                                                const char* format, ...)
      : status_(status), reason_(reason) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text_, sizeof(text_), format, arguments);
    va_end(arguments);
  }
  const char* what() const noexcept override { return text_; }
  anyhal_status status() const { return status_; }
  int32_t reason() const { return reason_; }

 private:
  anyhal_status status_;
  int32_t reason_;
  char text_[sizeof(anyhal_error::text)];
};

// Runs fn, which returns a status or throws; nothing leaves but a status.
template <class Fn>
anyhal_status guard(anyhal_error* error, Fn&& fn) noexcept {
  try {
    return fn();
  } catch (const Failure& failure) {
    return fail(error, failure.status(), failure.reason(), "%s", failure.what());
  } catch (const std::bad_alloc&) {
    return fail(error, ANYHAL_STATUS_OUT_OF_MEMORY, 0,
                "the host is out of memory; free arrays and try again");
  } catch (const std::exception& other) {
    return fail(error, ANYHAL_STATUS_INTERNAL, 0, "%s; please report this defect", other.what());
  } catch (...) {
    return fail(error, ANYHAL_STATUS_INTERNAL, 0,
                "an unknown exception was thrown; please report this defect");
  }
}

// Writes as much of a sized record as its reader knows; its `size` stays the reader's.
template <class T>
void write_record(T* to, const T& record) {
  uint32_t size = to->size < sizeof(T) ? to->size : static_cast<uint32_t>(sizeof(T));
  if (size <= sizeof(to->size)) return;
  std::memcpy(reinterpret_cast<char*>(to) + sizeof(to->size),
              reinterpret_cast<const char*>(&record) + sizeof(to->size), size - sizeof(to->size));
}

// The value of a device_query, when the reader's room holds it.
template <class T>
anyhal_status answer(void* value, uint64_t* bytes, const T& found, anyhal_error* error) {
  uint64_t room = *bytes;
  *bytes = sizeof(found);
  if (value == nullptr || room < sizeof(found)) {
    return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                "the answer has %u bytes and the room %u; ask again with more",
                static_cast<unsigned>(sizeof(found)), static_cast<unsigned>(room));
  }
  std::memcpy(value, &found, sizeof(found));
  return ANYHAL_STATUS_OK;
}

// The handshake: fills the versions and fingerprints of a reply, or says which side is too old.
inline anyhal_status agree(const anyhal_hello& hello, anyhal_reply& reply, anyhal_error* error) {
  constexpr uint32_t kFloor = ANYHAL_ABI_FLOOR, kOurs = ANYHAL_ABI_VERSION;
  const bool frozen = hello.size >= sizeof(anyhal_hello) && reply.size >= sizeof(anyhal_reply);
  if (frozen) {
    reply.abi_min = kFloor;
    reply.abi_max = kOurs;
    reply.chosen = ANYHAL_CHOOSE(&hello);
  }
  if (!frozen || reply.chosen == 0) {
    return fail(error, ANYHAL_STATUS_ABI_MISMATCH, 0,
                "it is built for contract %u.%u, runs from %u.%u on, and the core loads %u.%u to "
                "%u.%u; upgrade %s",
                kOurs >> 16, kOurs & 0xffff, kFloor >> 16, kFloor & 0xffff, hello.abi_min >> 16,
                hello.abi_min & 0xffff, hello.abi_max >> 16, hello.abi_max & 0xffff,
                kOurs < hello.abi_min ? "the backend" : "the core");
  }
  if (hello.flags != 0 || hello.reserved != 0) {
    return fail(error, ANYHAL_STATUS_INVALID_ARGUMENT, 0,
                "the core greets with a flag or word that is unknown here; upgrade the backend");
  }
  reply.flags = 0;
  reply.registry_version = ANYHAL_REGISTRY_VERSION;
  reply.fingerprints = anyhal_fingerprints;
  reply.fingerprint_count = ANYHAL_FINGERPRINT_COUNT;
  reply.reserved = 0;
  return ANYHAL_STATUS_OK;
}

}  // namespace hal::sdk

#endif  // ANYHAL_SDK_GUARD_HPP_
