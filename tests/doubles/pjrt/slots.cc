// What happens behind the doors: objects are counted, rules are looked after, faults are carried
// on. SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>
#include <thread>

#include "double.h"

namespace pjrt_double {
namespace {

using Lock = std::lock_guard<std::mutex>;

struct Made {
  int code;
  std::string text;
};

template <class Record>
Record& as(void* record) {
  return *static_cast<Record*>(record);
}

// The mutex is held by none of the handlers when they pass a call on.
template <class Fn>
auto locked(Fn&& fn) {
  Lock lock(world().mutex);
  return fn(world());
}

api::Error* broken(const std::string& text) {
  return locked([&](World&) { return violation(text); });
}

// Real errors are counted as well.
api::Error* noted(api::Error* error) {
  if (error != nullptr) locked([&](World& w) { return w.errors.insert(error).second; });
  return error;
}

api::Event* wrapped(api::Event* real, int code) {
  if (real == nullptr) return nullptr;
  return locked([&](World& w) {
    auto* made = new Event{real, code, Clock::now() + w.delay};
    w.events.insert(made);
    return reinterpret_cast<api::Event*>(made);
  });
}

bool lives(std::set<const void*> World::* kind, const void* object) {
  return locked([&](World& w) { return (w.*kind).count(object) != 0; });
}
void born(std::set<const void*> World::* kind, const void* object) {
  locked([&](World& w) { return (w.*kind).insert(object).second; });
}
// False: it was not there.
bool died(std::set<const void*> World::* kind, const void* object) {
  return locked([&](World& w) { return (w.*kind).erase(object) != 0; });
}
int poison_of(const void* buffer) {
  return locked([&](World& w) {
    const auto at = w.poisoned.find(buffer);
    return at == w.poisoned.end() ? 0 : at->second;
  });
}

api::Error* event_slot(size_t slot, void* record) {
  auto& args = as<api::EventIsReady>(record);
  auto* event = reinterpret_cast<Event*>(args.event);
  if (!lives(&World::events, event)) return broken(name_of(slot) + " of no event that lives");
  if (slot == kEventOnReady) {
    args.event = event->real;
    return noted(pass(slot, record));
  }
  api::Args<api::EventIsReady> asked;
  asked->event = event->real;
  if (slot == api::kEventAwait) std::this_thread::sleep_until(event->ready);
  if (slot == kEventError) {
    if (api::Error* error = pass(api::kEventIsReady, &asked)) return noted(error);
    if (!asked->is_ready || Clock::now() < event->ready)
      return broken("Event_Error of an event that is not ready");
  }
  api::Error* error = pass(slot, &asked);
  if (slot == api::kEventIsReady) args.is_ready = asked->is_ready && Clock::now() >= event->ready;
  if (slot == api::kEventDestroy) {
    died(&World::events, event);
    delete event;
    return noted(error);
  }
  const bool tells = slot == api::kEventAwait || slot == kEventError;
  if (error == nullptr && tells && event->code != 0)
    return locked([&](World&) { return made_error(event->code, "this run fails as asked"); });
  return noted(error);
}

api::Error* from_host(void* record) {
  auto& args = as<api::ClientBufferFromHostBuffer>(record);
  if (args.data == nullptr) return broken("a buffer of null data");
  if (args.type <= 0 || args.type > 20) return broken("a buffer type out of range");
  if (args.device == nullptr && args.memory == nullptr) return broken("a buffer on no device");
  if (args.byte_stride_count != 0 && args.byte_stride_count != args.dim_count)
    return broken("as many strides as there are no dims");
  int64_t count = 1;
  for (size_t i = 0; i < args.dim_count; ++i)
    if (args.dims[i] < 0 || __builtin_mul_overflow(count, args.dims[i], &count))
      return broken("a shape whose element count overflows");
  if (api::Error* error = pass(api::kClientBufferFromHostBuffer, record)) return noted(error);
  args.done_with_host_buffer = wrapped(args.done_with_host_buffer, 0);
  born(&World::buffers, args.buffer);
  return nullptr;
}

api::Error* compile(void* record) {
  auto& args = as<api::ClientCompile>(record);
  const std::string_view options(args.options, args.options_size);
  if (options.find(std::string_view("\x20\x01\x28\x01", 4)) == std::string_view::npos)
    return broken("compile options without replica and partition counts");
  if (args.program == nullptr || args.program->code == nullptr) return broken("no program");
  return nullptr;
}

// A program, compiled or loaded.
void arrived(api::LoadedExecutable* loaded) {
  api::Args<api::LoadedExecutableGetExecutable> inner;
  inner->loaded = loaded;
  api::Args<api::ExecutableNumOutputs> outputs;
  if (pass(api::kLoadedExecutableGetExecutable, &inner) == nullptr) {
    outputs->executable = inner->executable;
    pass(api::kExecutableNumOutputs, &outputs);
    api::Args<api::ExecutableArgs> end;
    end->executable = inner->executable;
    pass(api::kExecutableDestroy, &end);
  }
  locked([&](World& w) {
    w.loaded.insert(loaded);
    return w.output_count[loaded] = outputs->output_count;
  });
}

std::map<const void*, void (*)(api::SerializedExecutable*)>& serialized_ends() {
  static auto* ends = new std::map<const void*, void (*)(api::SerializedExecutable*)>;
  return *ends;
}

void end_serialized(api::SerializedExecutable* given) {
  void (*end)(api::SerializedExecutable*) = locked([&](World& w) {
    if (w.serialized.erase(given) == 0) violation("a serialised program was ended twice");
    return serialized_ends()[given];
  });
  end(given);
}

api::Error* execute(void* record) {
  auto& args = as<api::LoadedExecutableExecute>(record);
  if (!lives(&World::loaded, args.executable)) return broken("a run of no program that lives");
  if (args.options == nullptr) return broken("a run without options");
  if (args.device_count != 1 || args.outputs == nullptr || args.outputs[0] == nullptr)
    return broken("a run without room for its results");
  int poison = 0;
  for (size_t i = 0; i < args.argument_count; ++i) {
    const api::Buffer* buffer = args.arguments[0][i];
    if (buffer == nullptr) return broken("a null argument of a run");
    if (!lives(&World::buffers, buffer)) return broken("an argument that was destroyed");
    if (poison == 0) poison = poison_of(buffer);
  }
  const int fault = locked([](World&) { return scripted_fault(); });
  if (fault != 0) poison = fault;
  if (api::Error* error = pass(api::kLoadedExecutableExecute, record)) return noted(error);
  locked([&](World& w) {
    for (size_t i = 0; i < w.output_count[args.executable]; ++i) {
      w.buffers.insert(args.outputs[0][i]);
      if (poison != 0) w.poisoned[args.outputs[0][i]] = poison;
    }
    return 0;
  });
  if (args.complete != nullptr) args.complete[0] = wrapped(args.complete[0], poison);
  return nullptr;
}

api::Error* buffer_slot(size_t slot, void* record) {
  auto& args = as<api::BufferReadyEvent>(record);
  if (!lives(&World::buffers, args.buffer))
    return broken(name_of(slot) + " of no buffer that lives");
  const int poison = poison_of(args.buffer);
  if (slot == api::kBufferDestroy) {
    died(&World::buffers, args.buffer);
    locked([&](World& w) { return w.poisoned.erase(args.buffer); });
  }
  api::Error* error = pass(slot, record);
  if (error != nullptr) return noted(error);
  if (slot == api::kBufferReadyEvent) args.event = wrapped(args.event, poison);
  if (slot == api::kBufferToHostBuffer) {
    auto& copy = as<api::BufferToHostBuffer>(record);
    if (copy.destination != nullptr) copy.event = wrapped(copy.event, poison);
  }
  return nullptr;
}

api::Error* program_slot(size_t slot, void* record) {
  auto& args = as<api::ExecutableArgs>(record);
  const bool whole = slot == api::kLoadedExecutableDestroy;
  const bool ends = whole || slot == api::kExecutableDestroy;
  const auto kind = whole ? &World::loaded : &World::executables;
  if (ends ? !died(kind, args.executable) : !lives(kind, args.executable))
    return broken(name_of(slot) + " of no program that lives");
  api::Error* error = noted(pass(slot, record));
  if (slot != api::kExecutableSerialize || error != nullptr) return error;
  auto& made = as<api::ExecutableSerialize>(record);
  locked([&](World& w) {
    serialized_ends()[made.serialized] = made.destroy;
    return w.serialized.insert(made.serialized).second;
  });
  made.destroy = end_serialized;
  return nullptr;
}

api::Error* client_destroy(void* record) {
  const void* client = as<api::ClientText>(record).client;
  if (!locked([](World& w) { return w.buffers.empty(); }))
    return broken("a client was destroyed before its buffers");
  if (!died(&World::clients, client)) return broken("a client was destroyed twice");
  return noted(pass(kClientDestroy, record));
}

api::Error* error_slot(size_t slot, void* record) {
  auto& args = as<api::ErrorMessage>(record);
  World& w = world();
  {
    Lock lock(w.mutex);
    if (w.errors.count(args.error) == 0)
      return violation(name_of(slot) + " of no error that lives");
  }
  auto* made = reinterpret_cast<Made*>(const_cast<api::Error*>(args.error));
  const bool ours = locked([&](World& all) { return all.made.count(made) != 0; });
  if (slot == api::kErrorDestroy) {
    locked([&](World& all) { return all.errors.erase(args.error); });
    if (!ours) return pass(slot, record);
    locked([&](World& all) { return all.made.erase(made); });
    delete made;
    return nullptr;
  }
  if (!ours) return pass(slot, record);
  if (slot == api::kErrorGetCode) {
    as<api::ErrorGetCode>(record).code = made->code;
  } else {
    args.message = made->text.data();
    args.message_size = made->text.size();
  }
  return nullptr;
}

}  // namespace

api::Error* made_error(int code, const std::string& text) {
  auto* made = new Made{code, text};
  world().made.insert(made);
  world().errors.insert(made);
  return reinterpret_cast<api::Error*>(made);
}

api::Error* handle(size_t slot, void* record) {
  if (slot <= api::kErrorGetCode) return error_slot(slot, record);
  if (slot >= api::kEventDestroy && slot <= kEventOnReady) return event_slot(slot, record);
  if (slot >= api::kExecutableDestroy && slot <= api::kLoadedExecutableDestroy)
    return program_slot(slot, record);
  if (slot >= api::kBufferDestroy && slot <= api::kBufferOpaquePointer)
    return buffer_slot(slot, record);
  switch (slot) {
    case api::kClientBufferFromHostBuffer:
      return from_host(record);
    case api::kClientCompile:
      if (api::Error* error = compile(record)) return error;
      if (api::Error* error = pass(slot, record)) return noted(error);
      arrived(as<api::ClientCompile>(record).executable);
      return nullptr;
    case api::kExecutableDeserializeAndLoad:
      if (api::Error* error = pass(slot, record)) return noted(error);
      arrived(as<api::ExecutableDeserializeAndLoad>(record).executable);
      return nullptr;
    case api::kLoadedExecutableGetExecutable:
      if (api::Error* error = pass(slot, record)) return noted(error);
      born(&World::executables, as<api::LoadedExecutableGetExecutable>(record).executable);
      return nullptr;
    case api::kLoadedExecutableExecute:
      return execute(record);
    case api::kClientCreate:
      if (api::Error* error = pass(slot, record)) return noted(error);
      born(&World::clients, as<api::ClientCreate>(record).client);
      return nullptr;
    case kClientDestroy:
      return client_destroy(record);
    case kCreateView:
      // header, client, pointer, dims, count, type, layout, device, then the callback
      if (static_cast<void**>(record)[9] == nullptr)
        return broken("a view without a callback for its end");
      [[fallthrough]];
    default:
      return noted(pass(slot, record));
  }
}

}  // namespace pjrt_double
