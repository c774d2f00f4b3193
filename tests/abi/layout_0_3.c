/* The layout of contract 0.3 as a checked table: compiling this file is the test.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Sizes, offsets and numbers are what backends in the field were built with.
 * A line that no longer compiles means a new contract version, not a new line here: see
 * tools/abi_layout.py. */
#include "anyhal/backend.h"

#ifdef __cplusplus
#define CHECK(...) static_assert(__VA_ARGS__, "layout")
#else
#define CHECK(...) _Static_assert(__VA_ARGS__, "layout")
#endif
#define SIZE(record, bytes) CHECK(sizeof(struct record) == (bytes))
#define FIELD(record, field, at, bytes) \
  CHECK(offsetof(struct record, field) == (at) && sizeof(((struct record*)NULL)->field) == (bytes))
#define VALUE(name, number) CHECK((name) == (number))

SIZE(anyhal_error, 256);
FIELD(anyhal_error, size, 0, 4);
FIELD(anyhal_error, reason, 4, 4);
FIELD(anyhal_error, vendor_code, 8, 8);
FIELD(anyhal_error, text, 16, 240);

SIZE(anyhal_ref, 16);
FIELD(anyhal_ref, memory, 0, 8);
FIELD(anyhal_ref, offset, 8, 8);

SIZE(anyhal_services, 104);
FIELD(anyhal_services, size, 0, 4);
FIELD(anyhal_services, flags, 4, 4);
FIELD(anyhal_services, context, 8, 8);
FIELD(anyhal_services, log, 16, 8);
FIELD(anyhal_services, error_text, 24, 8);
FIELD(anyhal_services, host_alloc, 32, 8);
FIELD(anyhal_services, host_free, 40, 8);
FIELD(anyhal_services, parallel_for, 48, 8);
FIELD(anyhal_services, thread_count, 56, 8);
FIELD(anyhal_services, cache_get, 64, 8);
FIELD(anyhal_services, cache_put, 72, 8);
FIELD(anyhal_services, setting, 80, 8);
FIELD(anyhal_services, span, 88, 8);
FIELD(anyhal_services, ledger_note, 96, 8);

SIZE(anyhal_setting, 16);
FIELD(anyhal_setting, name, 0, 8);
FIELD(anyhal_setting, value, 8, 8);

SIZE(anyhal_hello, 48);
FIELD(anyhal_hello, size, 0, 4);
FIELD(anyhal_hello, flags, 4, 4);
FIELD(anyhal_hello, abi_min, 8, 4);
FIELD(anyhal_hello, abi_max, 12, 4);
FIELD(anyhal_hello, services, 16, 8);
FIELD(anyhal_hello, instance_name, 24, 8);
FIELD(anyhal_hello, settings, 32, 8);
FIELD(anyhal_hello, setting_count, 40, 4);
FIELD(anyhal_hello, reserved, 44, 4);

SIZE(anyhal_reply, 64);
FIELD(anyhal_reply, size, 0, 4);
FIELD(anyhal_reply, flags, 4, 4);
FIELD(anyhal_reply, chosen, 8, 4);
FIELD(anyhal_reply, abi_min, 12, 4);
FIELD(anyhal_reply, abi_max, 16, 4);
FIELD(anyhal_reply, registry_version, 20, 4);
FIELD(anyhal_reply, table, 24, 8);
FIELD(anyhal_reply, self, 32, 8);
FIELD(anyhal_reply, build_id, 40, 8);
FIELD(anyhal_reply, fingerprints, 48, 8);
FIELD(anyhal_reply, fingerprint_count, 56, 4);
FIELD(anyhal_reply, reserved, 60, 4);

SIZE(anyhal_memory_kind, 56);
FIELD(anyhal_memory_kind, size, 0, 4);
FIELD(anyhal_memory_kind, flags, 4, 4);
FIELD(anyhal_memory_kind, heap, 8, 4);
FIELD(anyhal_memory_kind, offset_alignment, 12, 4);
FIELD(anyhal_memory_kind, base_alignment, 16, 4);
FIELD(anyhal_memory_kind, reserved, 20, 4);
FIELD(anyhal_memory_kind, granularity, 24, 8);
FIELD(anyhal_memory_kind, block_bytes_max, 32, 8);
FIELD(anyhal_memory_kind, heap_bytes, 40, 8);
FIELD(anyhal_memory_kind, blocks_max, 48, 8);

SIZE(anyhal_device_info, 256);
FIELD(anyhal_device_info, size, 0, 4);
FIELD(anyhal_device_info, flags, 4, 4);
FIELD(anyhal_device_info, id, 8, 8);
FIELD(anyhal_device_info, uuid, 16, 16);
FIELD(anyhal_device_info, pci_domain, 32, 4);
FIELD(anyhal_device_info, pci_function, 36, 4);
FIELD(anyhal_device_info, name, 40, 64);
FIELD(anyhal_device_info, arch, 104, 32);
FIELD(anyhal_device_info, driver, 136, 64);
FIELD(anyhal_device_info, kinds, 200, 8);
FIELD(anyhal_device_info, kind_count, 208, 4);
FIELD(anyhal_device_info, queue_count_max, 212, 4);
FIELD(anyhal_device_info, queue_depth, 216, 4);
FIELD(anyhal_device_info, preferred_alignment, 220, 4);
FIELD(anyhal_device_info, rank_max, 224, 4);
FIELD(anyhal_device_info, recovery, 228, 4);
FIELD(anyhal_device_info, own_threads, 232, 4);
FIELD(anyhal_device_info, reserved, 236, 4);
FIELD(anyhal_device_info, tensor_bytes_max, 240, 8);
FIELD(anyhal_device_info, timestamp_hz, 248, 8);

SIZE(anyhal_memory_request, 48);
FIELD(anyhal_memory_request, size, 0, 4);
FIELD(anyhal_memory_request, flags, 4, 4);
FIELD(anyhal_memory_request, kind, 8, 4);
FIELD(anyhal_memory_request, purpose, 12, 4);
FIELD(anyhal_memory_request, bytes, 16, 8);
FIELD(anyhal_memory_request, alignment, 24, 8);
FIELD(anyhal_memory_request, reserved, 32, 16);

SIZE(anyhal_memory_block, 56);
FIELD(anyhal_memory_block, size, 0, 4);
FIELD(anyhal_memory_block, flags, 4, 4);
FIELD(anyhal_memory_block, memory, 8, 8);
FIELD(anyhal_memory_block, bytes, 16, 8);
FIELD(anyhal_memory_block, device_address, 24, 8);
FIELD(anyhal_memory_block, host_address, 32, 8);
FIELD(anyhal_memory_block, reserved, 40, 16);

SIZE(anyhal_memory_import, 56);
FIELD(anyhal_memory_import, size, 0, 4);
FIELD(anyhal_memory_import, flags, 4, 4);
FIELD(anyhal_memory_import, type, 8, 4);
FIELD(anyhal_memory_import, kind, 12, 4);
FIELD(anyhal_memory_import, handle, 16, 8);
FIELD(anyhal_memory_import, offset, 24, 8);
FIELD(anyhal_memory_import, bytes, 32, 8);
FIELD(anyhal_memory_import, reserved, 40, 16);

SIZE(anyhal_tensor_desc, 128);
FIELD(anyhal_tensor_desc, size, 0, 4);
FIELD(anyhal_tensor_desc, flags, 4, 4);
FIELD(anyhal_tensor_desc, dtype, 8, 4);
FIELD(anyhal_tensor_desc, rank, 12, 4);
FIELD(anyhal_tensor_desc, dims, 16, 8);
FIELD(anyhal_tensor_desc, strides, 24, 8);
FIELD(anyhal_tensor_desc, dims_max, 32, 8);
FIELD(anyhal_tensor_desc, dynamic_mask, 40, 4);
FIELD(anyhal_tensor_desc, alignment, 44, 4);
FIELD(anyhal_tensor_desc, memory_kind, 48, 4);
FIELD(anyhal_tensor_desc, alias_of, 52, 4);
FIELD(anyhal_tensor_desc, block_bytes, 56, 8);
FIELD(anyhal_tensor_desc, base_offset, 64, 8);
FIELD(anyhal_tensor_desc, value_min, 72, 8);
FIELD(anyhal_tensor_desc, value_max, 80, 8);
FIELD(anyhal_tensor_desc, content_id, 88, 8);
FIELD(anyhal_tensor_desc, content, 96, 16);
FIELD(anyhal_tensor_desc, reserved, 112, 16);

SIZE(anyhal_op_desc, 104);
FIELD(anyhal_op_desc, size, 0, 4);
FIELD(anyhal_op_desc, flags, 4, 4);
FIELD(anyhal_op_desc, op, 8, 4);
FIELD(anyhal_op_desc, op_version, 12, 4);
FIELD(anyhal_op_desc, input_count, 16, 4);
FIELD(anyhal_op_desc, operand_count, 20, 4);
FIELD(anyhal_op_desc, operands, 24, 8);
FIELD(anyhal_op_desc, attributes, 32, 8);
FIELD(anyhal_op_desc, attributes_size, 40, 4);
FIELD(anyhal_op_desc, numerics, 44, 24);
FIELD(anyhal_op_desc, reserved32, 68, 4);
FIELD(anyhal_op_desc, workspace_limit, 72, 8);
FIELD(anyhal_op_desc, cancel, 80, 8);
FIELD(anyhal_op_desc, reserved, 88, 16);

SIZE(anyhal_want, 8);
FIELD(anyhal_want, layout, 0, 4);
FIELD(anyhal_want, alignment, 4, 4);

SIZE(anyhal_verdict, 88);
FIELD(anyhal_verdict, size, 0, 4);
FIELD(anyhal_verdict, flags, 4, 4);
FIELD(anyhal_verdict, support, 8, 4);
FIELD(anyhal_verdict, reason, 12, 4);
FIELD(anyhal_verdict, reason_operand, 16, 4);
FIELD(anyhal_verdict, compile_ms, 20, 4);
FIELD(anyhal_verdict, workspace_bytes, 24, 8);
FIELD(anyhal_verdict, hidden_bytes, 32, 8);
FIELD(anyhal_verdict, baked_bytes, 40, 8);
FIELD(anyhal_verdict, cost_ns, 48, 8);
FIELD(anyhal_verdict, wants, 56, 8);
FIELD(anyhal_verdict, want_count, 64, 4);
FIELD(anyhal_verdict, dynamic_operands, 68, 4);
FIELD(anyhal_verdict, reserved, 72, 16);

SIZE(anyhal_pack, 32);
FIELD(anyhal_pack, operand, 0, 4);
FIELD(anyhal_pack, kind, 4, 4);
FIELD(anyhal_pack, alignment, 8, 4);
FIELD(anyhal_pack, key_size, 12, 4);
FIELD(anyhal_pack, bytes, 16, 8);
FIELD(anyhal_pack, key, 24, 8);

SIZE(anyhal_prepared, 80);
FIELD(anyhal_prepared, size, 0, 4);
FIELD(anyhal_prepared, flags, 4, 4);
FIELD(anyhal_prepared, workspace_bytes, 8, 8);
FIELD(anyhal_prepared, workspace_alignment, 16, 4);
FIELD(anyhal_prepared, pack_count, 20, 4);
FIELD(anyhal_prepared, packs, 24, 8);
FIELD(anyhal_prepared, hidden_bytes, 32, 8);
FIELD(anyhal_prepared, baked_bytes, 40, 8);
FIELD(anyhal_prepared, kernel, 48, 8);
FIELD(anyhal_prepared, library, 56, 8);
FIELD(anyhal_prepared, reserved, 64, 16);

SIZE(anyhal_call, 64);
FIELD(anyhal_call, size, 0, 4);
FIELD(anyhal_call, flags, 4, 4);
FIELD(anyhal_call, tag, 8, 8);
FIELD(anyhal_call, operands, 16, 8);
FIELD(anyhal_call, extents, 24, 8);
FIELD(anyhal_call, operand_count, 32, 4);
FIELD(anyhal_call, extent_count, 36, 4);
FIELD(anyhal_call, workspace, 40, 16);
FIELD(anyhal_call, reserved, 56, 8);

SIZE(anyhal_queue_options, 16);
FIELD(anyhal_queue_options, size, 0, 4);
FIELD(anyhal_queue_options, flags, 4, 4);
FIELD(anyhal_queue_options, priority, 8, 4);
FIELD(anyhal_queue_options, reserved, 12, 4);

SIZE(anyhal_queue_state, 40);
FIELD(anyhal_queue_state, size, 0, 4);
FIELD(anyhal_queue_state, flags, 4, 4);
FIELD(anyhal_queue_state, status, 8, 4);
FIELD(anyhal_queue_state, reserved, 12, 4);
FIELD(anyhal_queue_state, completed, 16, 8);
FIELD(anyhal_queue_state, failed_value, 24, 8);
FIELD(anyhal_queue_state, failed_tag, 32, 8);

SIZE(anyhal_copy_region, 40);
FIELD(anyhal_copy_region, destination, 0, 16);
FIELD(anyhal_copy_region, source, 16, 16);
FIELD(anyhal_copy_region, bytes, 32, 8);

SIZE(anyhal_native_queue, 32);
FIELD(anyhal_native_queue, size, 0, 4);
FIELD(anyhal_native_queue, type, 4, 4);
FIELD(anyhal_native_queue, handle, 8, 8);
FIELD(anyhal_native_queue, operands, 16, 8);
FIELD(anyhal_native_queue, operand_count, 24, 4);
FIELD(anyhal_native_queue, reserved, 28, 4);

SIZE(anyhal_native_operand, 24);
FIELD(anyhal_native_operand, ref, 0, 16);
FIELD(anyhal_native_operand, access, 16, 4);
FIELD(anyhal_native_operand, reserved, 20, 4);

SIZE(anyhal_graph_value, 40);
FIELD(anyhal_graph_value, size, 0, 4);
FIELD(anyhal_graph_value, flags, 4, 4);
FIELD(anyhal_graph_value, kind, 8, 4);
FIELD(anyhal_graph_value, binding, 12, 4);
FIELD(anyhal_graph_value, desc, 16, 8);
FIELD(anyhal_graph_value, ref, 24, 16);

SIZE(anyhal_graph_entry, 88);
FIELD(anyhal_graph_entry, size, 0, 4);
FIELD(anyhal_graph_entry, flags, 4, 4);
FIELD(anyhal_graph_entry, kind, 8, 4);
FIELD(anyhal_graph_entry, value_count, 12, 4);
FIELD(anyhal_graph_entry, op, 16, 8);
FIELD(anyhal_graph_entry, plan, 24, 8);
FIELD(anyhal_graph_entry, values, 32, 8);
FIELD(anyhal_graph_entry, follows, 40, 8);
FIELD(anyhal_graph_entry, follow_count, 48, 4);
FIELD(anyhal_graph_entry, reserved, 52, 4);
FIELD(anyhal_graph_entry, tag, 56, 8);
FIELD(anyhal_graph_entry, bytes, 64, 8);
FIELD(anyhal_graph_entry, data, 72, 8);
FIELD(anyhal_graph_entry, callback, 80, 8);

SIZE(anyhal_graph_desc, 56);
FIELD(anyhal_graph_desc, size, 0, 4);
FIELD(anyhal_graph_desc, flags, 4, 4);
FIELD(anyhal_graph_desc, mode, 8, 4);
FIELD(anyhal_graph_desc, value_count, 12, 4);
FIELD(anyhal_graph_desc, entry_count, 16, 4);
FIELD(anyhal_graph_desc, binding_count, 20, 4);
FIELD(anyhal_graph_desc, values, 24, 8);
FIELD(anyhal_graph_desc, entries, 32, 8);
FIELD(anyhal_graph_desc, reserved, 40, 16);

SIZE(anyhal_payload, 40);
FIELD(anyhal_payload, size, 0, 4);
FIELD(anyhal_payload, flags, 4, 4);
FIELD(anyhal_payload, format, 8, 4);
FIELD(anyhal_payload, reserved, 12, 4);
FIELD(anyhal_payload, bytes, 16, 8);
FIELD(anyhal_payload, byte_count, 24, 8);
FIELD(anyhal_payload, architecture, 32, 8);

SIZE(anyhal_parameter, 8);
FIELD(anyhal_parameter, offset, 0, 4);
FIELD(anyhal_parameter, bytes, 4, 4);

SIZE(anyhal_signature, 64);
FIELD(anyhal_signature, size, 0, 4);
FIELD(anyhal_signature, flags, 4, 4);
FIELD(anyhal_signature, operand_count, 8, 4);
FIELD(anyhal_signature, parameter_count, 12, 4);
FIELD(anyhal_signature, parameters, 16, 8);
FIELD(anyhal_signature, block, 24, 12);
FIELD(anyhal_signature, grid_rule, 36, 4);
FIELD(anyhal_signature, grid, 40, 12);
FIELD(anyhal_signature, shared_bytes, 52, 4);
FIELD(anyhal_signature, warps, 56, 4);
FIELD(anyhal_signature, reserved, 60, 4);

SIZE(anyhal_capability, 48);
FIELD(anyhal_capability, op, 0, 4);
FIELD(anyhal_capability, flags, 4, 4);
FIELD(anyhal_capability, dtypes, 8, 16);
FIELD(anyhal_capability, rank_max, 24, 4);
FIELD(anyhal_capability, accumulate, 28, 4);
FIELD(anyhal_capability, rounding, 32, 4);
FIELD(anyhal_capability, determinism, 36, 4);
FIELD(anyhal_capability, dim_max, 40, 8);

SIZE(anyhal_table, 208);
FIELD(anyhal_table, size, 0, 4);
FIELD(anyhal_table, flags, 4, 4);
FIELD(anyhal_table, device_list, 8, 8);
FIELD(anyhal_table, device_open, 16, 8);
FIELD(anyhal_table, memory_alloc, 24, 8);
FIELD(anyhal_table, op_query, 32, 8);
FIELD(anyhal_table, op_prepare, 40, 8);
FIELD(anyhal_table, op_enqueue, 48, 8);
FIELD(anyhal_table, release, 56, 8);
FIELD(anyhal_table, queue_create, 64, 8);
FIELD(anyhal_table, queue_signal, 72, 8);
FIELD(anyhal_table, queue_wait, 80, 8);
FIELD(anyhal_table, host_wait, 88, 8);
FIELD(anyhal_table, queue_copy, 96, 8);
FIELD(anyhal_table, device_query, 104, 8);
FIELD(anyhal_table, memory_map, 112, 8);
FIELD(anyhal_table, memory_import, 120, 8);
FIELD(anyhal_table, constant_pack, 128, 8);
FIELD(anyhal_table, queue_fill, 136, 8);
FIELD(anyhal_table, queue_notify, 144, 8);
FIELD(anyhal_table, graph_prepare, 152, 8);
FIELD(anyhal_table, module_load, 160, 8);
FIELD(anyhal_table, kernel_prepare, 168, 8);
FIELD(anyhal_table, queue_native, 176, 8);
FIELD(anyhal_table, native_handle, 184, 8);
FIELD(anyhal_table, notify, 192, 8);
FIELD(anyhal_table, extension, 200, 8);

VALUE(ANYHAL_STATUS_OK, 0);
VALUE(ANYHAL_STATUS_INVALID_ARGUMENT, 1);
VALUE(ANYHAL_STATUS_UNSUPPORTED, 2);
VALUE(ANYHAL_STATUS_OUT_OF_MEMORY, 3);
VALUE(ANYHAL_STATUS_DEVICE_LOST, 4);
VALUE(ANYHAL_STATUS_TIMEOUT, 5);
VALUE(ANYHAL_STATUS_NOT_FOUND, 6);
VALUE(ANYHAL_STATUS_ABI_MISMATCH, 7);
VALUE(ANYHAL_STATUS_CANCELLED, 8);
VALUE(ANYHAL_STATUS_EXECUTION_FAILED, 9);
VALUE(ANYHAL_STATUS_INTERNAL, 10);

VALUE(ANYHAL_DTYPE_NONE, 0);
VALUE(ANYHAL_DTYPE_F32, 1);
VALUE(ANYHAL_DTYPE_F16, 2);
VALUE(ANYHAL_DTYPE_BF16, 3);
VALUE(ANYHAL_DTYPE_F64, 4);
VALUE(ANYHAL_DTYPE_I64, 5);
VALUE(ANYHAL_DTYPE_I32, 6);
VALUE(ANYHAL_DTYPE_I16, 7);
VALUE(ANYHAL_DTYPE_I8, 8);
VALUE(ANYHAL_DTYPE_U64, 9);
VALUE(ANYHAL_DTYPE_U32, 10);
VALUE(ANYHAL_DTYPE_U16, 11);
VALUE(ANYHAL_DTYPE_U8, 12);
VALUE(ANYHAL_DTYPE_BOOL, 13);
VALUE(ANYHAL_DTYPE_F8_E4M3FN, 14);
VALUE(ANYHAL_DTYPE_F8_E5M2, 15);
VALUE(ANYHAL_DTYPE_F8_E4M3FNUZ, 16);
VALUE(ANYHAL_DTYPE_F8_E5M2FNUZ, 17);
VALUE(ANYHAL_DTYPE_Q4_1, 64);
VALUE(ANYHAL_DTYPE_Q8_0, 65);
VALUE(ANYHAL_DTYPE_I4, 66);
VALUE(ANYHAL_DTYPE_U4, 67);
VALUE(ANYHAL_DTYPE_Q4_0, 68);
VALUE(ANYHAL_DTYPE_Q4_K, 69);
VALUE(ANYHAL_DTYPE_Q6_K, 70);

VALUE(ANYHAL_OBJECT_DEVICE, 1);
VALUE(ANYHAL_OBJECT_MEMORY, 2);
VALUE(ANYHAL_OBJECT_QUEUE, 3);
VALUE(ANYHAL_OBJECT_PLAN, 4);
VALUE(ANYHAL_OBJECT_MODULE, 5);
VALUE(ANYHAL_OBJECT_GROUP, 6);

VALUE(ANYHAL_REASON_NONE, 0);
VALUE(ANYHAL_REASON_OP, 1);
VALUE(ANYHAL_REASON_DTYPE, 2);
VALUE(ANYHAL_REASON_LAYOUT, 3);
VALUE(ANYHAL_REASON_RANK, 4);
VALUE(ANYHAL_REASON_SHAPE_LIMIT, 5);
VALUE(ANYHAL_REASON_ALIGNMENT, 6);
VALUE(ANYHAL_REASON_ATTRIBUTE, 7);
VALUE(ANYHAL_REASON_ARCHITECTURE, 8);
VALUE(ANYHAL_REASON_DRIVER, 9);
VALUE(ANYHAL_REASON_MISSING_LIBRARY, 10);
VALUE(ANYHAL_REASON_MISSING_ARTEFACT, 11);
VALUE(ANYHAL_REASON_WORKSPACE, 12);
VALUE(ANYHAL_REASON_NUMERICS, 13);
VALUE(ANYHAL_REASON_MEMORY_KIND, 14);
VALUE(ANYHAL_REASON_CAPTURE, 15);
VALUE(ANYHAL_REASON_POLICY, 16);

VALUE(ANYHAL_REPLY_SYNCHRONOUS, 1);
VALUE(ANYHAL_REPLY_HIDDEN_MEMORY, 2);
VALUE(ANYHAL_REPLY_FAULT_ABORTS, 4);

VALUE(ANYHAL_MEMORY_DEVICE_LOCAL, 1);
VALUE(ANYHAL_MEMORY_HOST_VISIBLE, 2);
VALUE(ANYHAL_MEMORY_COHERENT, 4);
VALUE(ANYHAL_MEMORY_CELL, 8);
VALUE(ANYHAL_MEMORY_PARTIAL_READ, 16);
VALUE(ANYHAL_MEMORY_PARTIAL_WRITE, 32);
VALUE(ANYHAL_MEMORY_STABLE_ADDRESS, 64);
VALUE(ANYHAL_MEMORY_LAZY, 128);

VALUE(ANYHAL_DEVICE_UNIFIED, 1);
VALUE(ANYHAL_DEVICE_INTEGRATED, 2);
VALUE(ANYHAL_DEVICE_DISPLAY_ONLY, 4);
VALUE(ANYHAL_DEVICE_SIMULATED, 8);

VALUE(ANYHAL_RECOVERY_NONE, 0);
VALUE(ANYHAL_RECOVERY_PROCESS, 1);
VALUE(ANYHAL_RECOVERY_REOPEN, 2);

VALUE(ANYHAL_PURPOSE_ACTIVATIONS, 0);
VALUE(ANYHAL_PURPOSE_WEIGHTS, 1);
VALUE(ANYHAL_PURPOSE_CACHE, 2);
VALUE(ANYHAL_PURPOSE_WORKSPACE, 3);
VALUE(ANYHAL_PURPOSE_STAGING, 4);
VALUE(ANYHAL_PURPOSE_ARENA, 5);

VALUE(ANYHAL_IMPORT_HOST_POINTER, 1);
VALUE(ANYHAL_IMPORT_ADDRESS, 2);
VALUE(ANYHAL_IMPORT_DMA_BUF, 3);

VALUE(ANYHAL_TENSOR_CONSTANT, 1);
VALUE(ANYHAL_TENSOR_INLINE, 2);
VALUE(ANYHAL_TENSOR_ABSENT, 4);
VALUE(ANYHAL_TENSOR_BINDING, 8);

VALUE(ANYHAL_NUMERICS_ACCUMULATE, 0);
VALUE(ANYHAL_NUMERICS_ROUNDING, 1);
VALUE(ANYHAL_NUMERICS_DENORMALS, 2);
VALUE(ANYHAL_NUMERICS_DETERMINISM, 3);
VALUE(ANYHAL_NUMERICS_MATH, 4);
VALUE(ANYHAL_NUMERICS_RESERVED, 5);

VALUE(ANYHAL_SUPPORT_NO, 0);
VALUE(ANYHAL_SUPPORT_YES, 1);
VALUE(ANYHAL_SUPPORT_PREPARE_KNOWS, 2);

VALUE(ANYHAL_VERDICT_CAPTURE_SAFE, 1);
VALUE(ANYHAL_VERDICT_DETERMINISTIC, 2);
VALUE(ANYHAL_VERDICT_SERIAL, 4);
VALUE(ANYHAL_VERDICT_BOUND_SENSITIVE, 8);
VALUE(ANYHAL_VERDICT_BAKES_CONSTANTS, 16);

VALUE(ANYHAL_LAYOUT_ANY, 0);
VALUE(ANYHAL_LAYOUT_DENSE, 1);
VALUE(ANYHAL_LAYOUT_DENSE_INNER, 2);

VALUE(ANYHAL_PREPARED_CAPTURE_SAFE, 1);
VALUE(ANYHAL_PREPARED_SERIAL, 2);
VALUE(ANYHAL_PREPARED_REBIND, 4);
VALUE(ANYHAL_PREPARED_PINS_MEMORY, 8);

VALUE(ANYHAL_CALL_INDEPENDENT, 1);
VALUE(ANYHAL_CALL_START_NOW, 2);

VALUE(ANYHAL_QUEUE_PROFILED, 1);

VALUE(ANYHAL_NATIVE_HOST, 1);
VALUE(ANYHAL_NATIVE_CUDA_STREAM, 2);
VALUE(ANYHAL_NATIVE_HIP_STREAM, 3);
VALUE(ANYHAL_NATIVE_CL_QUEUE, 4);
VALUE(ANYHAL_NATIVE_VK_COMMAND_BUFFER, 5);

VALUE(ANYHAL_ACCESS_READ, 1);
VALUE(ANYHAL_ACCESS_WRITE, 2);

VALUE(ANYHAL_VALUE_BINDING, 1);
VALUE(ANYHAL_VALUE_FIXED, 2);
VALUE(ANYHAL_VALUE_INTERMEDIATE, 3);

VALUE(ANYHAL_ENTRY_OP, 1);
VALUE(ANYHAL_ENTRY_COPY, 2);
VALUE(ANYHAL_ENTRY_FILL, 3);
VALUE(ANYHAL_ENTRY_NATIVE, 4);

VALUE(ANYHAL_GRAPH_RECORD, 1);
VALUE(ANYHAL_GRAPH_COMPILE, 2);

VALUE(ANYHAL_PAYLOAD_PTX, 1);
VALUE(ANYHAL_PAYLOAD_CUBIN, 2);
VALUE(ANYHAL_PAYLOAD_HSACO, 3);
VALUE(ANYHAL_PAYLOAD_SPIRV, 4);
VALUE(ANYHAL_PAYLOAD_OPENCL_C, 5);
VALUE(ANYHAL_PAYLOAD_VENDOR, 6);

VALUE(ANYHAL_GRID_FIXED, 0);
VALUE(ANYHAL_GRID_EXTENTS, 1);

VALUE(ANYHAL_QUERY_FREE_BYTES, 1);
VALUE(ANYHAL_QUERY_EDGE, 2);
VALUE(ANYHAL_QUERY_HEALTH, 3);
VALUE(ANYHAL_QUERY_COUNTER, 4);
VALUE(ANYHAL_QUERY_CAPABILITIES, 5);
VALUE(ANYHAL_QUERY_NOTES, 6);

VALUE(ANYHAL_CAPABILITY_STRIDED, 1);
VALUE(ANYHAL_CAPABILITY_CAPTURE_SAFE, 2);
VALUE(ANYHAL_CAPABILITY_FLUSHES_DENORMALS, 4);

VALUE(ANYHAL_EVENT_FORK_CHILD, 1);
VALUE(ANYHAL_EVENT_EXIT, 2);
VALUE(ANYHAL_EVENT_TRIM, 3);
VALUE(ANYHAL_EVENT_IDLE, 4);

VALUE(ANYHAL_RELEASE_ABANDON, 1);

VALUE(ANYHAL_MAP_READ, 1);
VALUE(ANYHAL_MAP_WRITE, 2);
VALUE(ANYHAL_MAP_END, 4);

VALUE(ANYHAL_WANTS_MAX, 16);

VALUE(ANYHAL_ACCUMULATE_STRICT, 0);
VALUE(ANYHAL_ACCUMULATE_TF32, 1);
VALUE(ANYHAL_ACCUMULATE_BF16, 2);
VALUE(ANYHAL_ACCUMULATE_INT8, 3);

VALUE(ANYHAL_DETERMINISM_RUN_TO_RUN, 0);
VALUE(ANYHAL_DETERMINISM_NONE, 1);
VALUE(ANYHAL_DETERMINISM_BATCH_INVARIANT, 2);
VALUE(ANYHAL_DETERMINISM_CROSS_DEVICE, 3);
