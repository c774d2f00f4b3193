// The escape hatch: vendor work among a queue's calls, and the vendor's handles.
// SPDX-License-Identifier: Apache-2.0
#include "core/api/call.hpp"
#include "core/api/names.hpp"
#include "core/api/order.hpp"
#include "core/kernel.hpp"

namespace hal {
namespace {

// The caller's callback behind the contract's.
struct Callback {
  hal_native_fn fn;
  void* argument;

  static anyhal_status call(void* self, const anyhal_native_queue* native) {
    const auto& c = *static_cast<const Callback*>(self);
    const hal_native shown = {sizeof(shown),    native->type,          native->handle,
                              native->operands, native->operand_count, 0};
    const int32_t answer = c.fn(c.argument, &shown);
    const bool known = answer >= HAL_STATUS_OK && answer <= HAL_STATUS_INTERNAL;
    return known ? anyhal_status(answer) : ANYHAL_STATUS_EXECUTION_FAILED;
  }
};

}  // namespace
}  // namespace hal

using namespace hal;

extern "C" {

hal_status hal_queue_native(hal_queue* queue, hal_native_fn callback, void* argument,
                            hal_buffer* const* buffers, const uint32_t* access, uint32_t count,
                            hal_error* error) {
  return at_edge(error, [&] {
    const Held<ApiQueue> q = queue_of(queue);
    if (!callback) invalid("the argument callback is NULL; pass a function");
    if (count > HAL_OPERANDS_MAX)
      invalid("native work on " + q->device->name + ": " + std::to_string(count) +
              " buffers; at most " + std::to_string(HAL_OPERANDS_MAX) + " are possible");
    if (count) need(buffers, "buffers"), need(access, "access");
    Held<Buffer> held[HAL_OPERANDS_MAX];
    Operand operands[HAL_OPERANDS_MAX];
    uint32_t reads = 0, writes = 0;
    for (uint32_t i = 0; i < count; ++i) {
      const std::string argument_name = "buffers[" + std::to_string(i) + "]";
      bool frozen = false;
      held[i] = hold_of<Buffer>(buffers[i], Kind::kBuffer, argument_name.c_str(),
                                [&](Slot& slot) { frozen = slot.flags & OperandWord::kFrozen; });
      const std::string where = "native work on " + q->device->name + ": " + argument_name;
      if (held[i]->device != q->core->device) invalid(where + " is on " + held[i]->device->name);
      if (access[i] == 0 || access[i] > (HAL_ACCESS_READ | HAL_ACCESS_WRITE))
        invalid(where + " has an access of " + std::to_string(access[i]) +
                "; say HAL_ACCESS_READ, HAL_ACCESS_WRITE or both");
      reads |= uint32_t((access[i] & HAL_ACCESS_READ) != 0) << i;
      writes |= uint32_t((access[i] & HAL_ACCESS_WRITE) != 0) << i;
      if (writes >> i & 1 && frozen) invalid(where + " is frozen, so its bytes never change");
      operands[i] = {data_of(*held[i]), held[i].get()};
    }
    const auto lock = q->enter();
    require_no_capture(*q, "native work");
    Callback given{callback, argument};
    run_native(*q->core, Callback::call, &given, operands, reads, writes, count);
  });
}

hal_status hal_native_handle_of(const void* object, hal_native_handle* out_handle,
                                hal_error* error) {
  return at_edge(error, [&] {
    need(out_handle, "out_handle");
    if (out_handle->size < sizeof(*out_handle))
      invalid("asking for the vendor's handle: out_handle->size is " +
              std::to_string(out_handle->size) + "; set it to sizeof(hal_native_handle)");
    NativeHandle found;
    if (const Held<ApiQueue> q = handles(Kind::kQueue).hold<ApiQueue>(object)) {
      const auto lock = q->enter();
      found = native_handle(*q->core);
    } else if (const Held<Buffer> b = handles(Kind::kBuffer).hold<Buffer>(object)) {
      found = native_handle(Operand{data_of(*b), b.get()});
    } else {
      found = native_handle(api_of(object).opened());
    }
    *out_handle = {sizeof(*out_handle), found.type, found.handle, found.offset, found.owned, 0};
  });
}

}  // extern "C"
