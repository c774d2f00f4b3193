// The table that is handed out: the real one's slots, each behind a door of the double.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "double.h"

namespace pjrt_double {
namespace {

const std::pair<size_t, const char*> kNames[] = {
    {api::kErrorDestroy, "Error_Destroy"},
    {api::kErrorMessage, "Error_Message"},
    {api::kErrorGetCode, "Error_GetCode"},
    {api::kPluginInitialize, "Plugin_Initialize"},
    {api::kEventDestroy, "Event_Destroy"},
    {api::kEventIsReady, "Event_IsReady"},
    {kEventError, "Event_Error"},
    {api::kEventAwait, "Event_Await"},
    {kEventOnReady, "Event_OnReady"},
    {api::kClientCreate, "Client_Create"},
    {kClientDestroy, "Client_Destroy"},
    {api::kClientPlatformName, "Client_PlatformName"},
    {api::kClientPlatformVersion, "Client_PlatformVersion"},
    {api::kClientAddressableDevices, "Client_AddressableDevices"},
    {api::kClientCompile, "Client_Compile"},
    {api::kClientBufferFromHostBuffer, "Client_BufferFromHostBuffer"},
    {api::kDeviceDescriptionKind, "DeviceDescription_Kind"},
    {api::kDeviceGetDescription, "Device_GetDescription"},
    {api::kExecutableDestroy, "Executable_Destroy"},
    {api::kExecutableNumOutputs, "Executable_NumOutputs"},
    {api::kExecutableSerialize, "Executable_Serialize"},
    {api::kLoadedExecutableDestroy, "LoadedExecutable_Destroy"},
    {api::kLoadedExecutableGetExecutable, "LoadedExecutable_GetExecutable"},
    {api::kLoadedExecutableExecute, "LoadedExecutable_Execute"},
    {api::kExecutableDeserializeAndLoad, "Executable_DeserializeAndLoad"},
    {api::kBufferDestroy, "Buffer_Destroy"},
    {api::kBufferIsDeleted, "Buffer_IsDeleted"},
    {api::kBufferToHostBuffer, "Buffer_ToHostBuffer"},
    {api::kBufferReadyEvent, "Buffer_ReadyEvent"},
    {api::kBufferOpaquePointer, "Buffer_OpaqueDeviceMemoryDataPointer"},
    {kCreateView, "Client_CreateViewOfDeviceBuffer"},
    {api::kExecutableGetCompiledMemoryStats, "Executable_GetCompiledMemoryStats"},
};

// How long the records are that api.h knows whole or as a prefix; 0: not looked at.
size_t known_size(size_t slot) {
  switch (slot) {
    case api::kPluginInitialize:
      return sizeof(api::PluginInitialize);
    case api::kClientCreate:
      return sizeof(api::ClientCreate);
    case api::kClientCompile:
      return sizeof(api::ClientCompile);
    case api::kClientBufferFromHostBuffer:
      return sizeof(api::ClientBufferFromHostBuffer);
    case api::kLoadedExecutableExecute:
      return sizeof(api::LoadedExecutableExecute);
    case api::kBufferToHostBuffer:
      return sizeof(api::BufferToHostBuffer);
    case api::kBufferReadyEvent:
      return sizeof(api::BufferReadyEvent);
    default:
      return 0;
  }
}

api::Error* enter(size_t slot, void* record) {
  World& w = world();
  {
    std::lock_guard lock(w.mutex);
    if (api::Error* error = scripted(slot)) return error;
    if (api::Error* error = check_size(slot, record)) return error;
  }
  return handle(slot, record);
}

template <size_t N>
api::Error* door(void* record) {
  return enter(N, record);
}

template <size_t... N>
void fill(api::AnySlot* slots, std::index_sequence<N...>) {
  ((slots[N] = door<N>), ...);
}

std::string part_of(const char* key) {
  const char* script = std::getenv("PJRT_DOUBLE");
  const std::string text = std::string(";") + (script != nullptr ? script : "");
  std::string squeezed;
  for (char c : text)
    if (c != ' ') squeezed += c;
  const size_t at = squeezed.find(std::string(";") + key + "=");
  if (at == std::string::npos) return "";
  const size_t from = at + std::strlen(key) + 2;
  return squeezed.substr(from, squeezed.find(';', from) - from);
}

size_t real_slots() {
  return (world().real->header.struct_size - offsetof(api::Table, slots)) / sizeof(api::AnySlot);
}

}  // namespace

std::string name_of(size_t slot) {
  for (const auto& [number, name] : kNames)
    if (number == slot) return name;
  return "Slot_" + std::to_string(slot);
}

api::Error* check_size(size_t slot, const void* record) {
  const World& w = world();
  const size_t known = known_size(slot);
  if (known == 0) return nullptr;
  const size_t given = static_cast<const api::Header*>(record)->struct_size;
  const size_t wanted = known + w.record_slack;
  if (w.records_exact ? given == known : given >= wanted) return nullptr;
  return made_error(api::kInvalidArgument, "Unexpected size of the record of " + name_of(slot) +
                                               ": expected " + std::to_string(wanted) + ", got " +
                                               std::to_string(given));
}

const api::Table* table() {
  static const api::Table* made = [] {
    auto* room = static_cast<api::Table*>(
        std::calloc(1, offsetof(api::Table, slots) + kSlots * sizeof(api::AnySlot)));
    std::memcpy(room, world().real, offsetof(api::Table, slots));
    api::AnySlot doors[kSlots];
    fill(doors, std::make_index_sequence<kSlots>());
    std::string gone = "," + part_of("null") + ",";
    for (size_t i = 0; i < std::min(real_slots(), kSlots); ++i)
      if (world().real->slots[i] != nullptr &&
          gone.find("," + name_of(i) + ",") == std::string::npos)
        room->slots[i] = doors[i];
    const std::string slots = part_of("slots"), version = part_of("version");
    if (!slots.empty())
      room->header.struct_size = offsetof(api::Table, slots) +
                                 std::min<size_t>(std::stoul(slots), kSlots) * sizeof(api::AnySlot);
    if (!version.empty()) {
      room->version.major = std::atoi(version.c_str());
      room->version.minor = std::atoi(version.c_str() + version.find('.') + 1);
    }
    return room;
  }();
  return made;
}

}  // namespace pjrt_double
