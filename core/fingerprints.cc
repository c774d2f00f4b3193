// Layout fingerprints: what backend.h was when the backend was built, against what it is here.
// SPDX-License-Identifier: Apache-2.0
#include "core/fingerprints.hpp"

#include <algorithm>
#include <string>

#include "anyhal/fingerprints.h"
#include "core/negotiate.hpp"

namespace hal {
namespace {

enum Growth : bool { FIXED, GROWS };

struct Field {
  const char* name;
  uint64_t word;
  uint32_t end, since;
  const char* text;
};
struct Record {
  const char* name;
  uint64_t hash;
  uint32_t bytes, count;
  Growth growth;
};
// What the backend says of one of its records.
struct Section {
  uint64_t hash;
  uint32_t bytes, count;
  const uint64_t* words;
};

#define NOTHING(...)
#define RECORD(name, hash, bytes, count, growth) {#name, hash, bytes, count, growth},
#define FIELD(record, name, spelt, at, bytes, word, since, text) \
  {#name, word, (at) + (bytes), since, text},
constexpr Record kRecords[] = {ANYHAL_RECORD_LIST(RECORD, NOTHING)};
constexpr Field kFields[] = {ANYHAL_RECORD_LIST(NOTHING, FIELD)};  // record after record
#undef FIELD
#undef RECORD
#undef NOTHING

constexpr uint32_t kMostWords = 1u << 16, kMostBytes = 1u << 16;

[[noreturn]] void differs(const Instance& in, const std::string& why) {
  refuse("fingerprint", ANYHAL_STATUS_ABI_MISMATCH, in,
         why +
             "; rebuild it with the backend.h and fingerprints.h of one contract that this core "
             "loads",
         "layout_differs");
}

std::vector<Section> sections_of(const Instance& in) {
  const anyhal_reply& r = in.reply;
  if (!r.fingerprints || r.fingerprint_count == 0)
    refuse("fingerprint", ANYHAL_STATUS_ABI_MISMATCH, in,
           "its reply has no layout fingerprints, so nobody knows how its records lie; give "
           "anyhal_fingerprints of anyhal/fingerprints.h and rebuild it",
           "no_fingerprint");
  if (r.fingerprint_count > kMostWords || r.fingerprints[0] != ANYHAL_FINGERPRINT_FORM)
    differs(in, "its layout fingerprints have a form that this core does not know");
  std::vector<Section> found;
  const uint64_t *at = r.fingerprints + 1, *const end = r.fingerprints + r.fingerprint_count;
  while (at != end) {
    const auto left = uint64_t(end - at);
    const uint32_t count = left < 2 ? 0 : uint32_t(at[1]);
    if (left < 2 || count > left - 2 || at[1] >> 32 > kMostBytes)
      differs(in, "its layout fingerprints end in the middle of a record");
    found.push_back({at[0], uint32_t(at[1] >> 32), count, at + 2});
    at += 2 + count;
  }
  return found;
}

// A word as far as its hash is one that this core knows, too.
std::string described(uint64_t word) {
  const auto known = std::find_if(std::begin(kFields), std::end(kFields),
                                  [&](const Field& f) { return f.word >> 16 == word >> 16; });
  return (known == std::end(kFields) ? "something that this core does not know"
                                     : "'" + std::string(known->text) + "'") +
         " at byte " + std::to_string(word & 0xffff);
}

void compare(const Instance& in, const Record& ours, const Field* fields, const Section& theirs) {
  const uint32_t common = std::min(ours.count, theirs.count);
  for (uint32_t i = 0; i < common; ++i)
    if (theirs.words[i] != fields[i].word)
      differs(in, "its layout differs at " + std::string(ours.name) + "." + fields[i].name +
                      ": it has " + described(theirs.words[i]) + ", this core has " +
                      described(fields[i].word));
  if (ours.growth == FIXED && (ours.count != theirs.count || ours.bytes != theirs.bytes))
    differs(in, "its " + std::string(ours.name) + " has " + std::to_string(theirs.count) +
                    " fields in " + std::to_string(theirs.bytes) + " bytes, this core's " +
                    std::to_string(ours.count) + " in " + std::to_string(ours.bytes) +
                    ", and this record never grows");
  for (uint32_t i = common; i < ours.count; ++i)
    if (fields[i].since <= in.reply.abi_max)
      differs(in, "its " + std::string(ours.name) + " ends before '" + fields[i].text +
                      "', which contract " + version_text(in.reply.abi_max) +
                      " has, and it says that it is built for that");
  // Arrays step by it: no compiler gives a size that its fields pass or that would misplace the
  // next.
  if (theirs.bytes < fields[common - 1].end || theirs.bytes % 4 ||
      (ours.bytes % 8 == 0 && theirs.bytes % 8))
    differs(in, "its " + std::string(ours.name) + " is said to have " +
                    std::to_string(theirs.bytes) + " bytes, which its own fields do not fit");
}

}  // namespace

void compare_fingerprints(Instance& in) {
  const std::vector<Section> sections = sections_of(in);
  const Field* fields = kFields;
  const auto section = [&](uint64_t hash) {
    return std::find_if(sections.begin(), sections.end(),
                        [&](const Section& s) { return s.hash == hash; });
  };
  for (const Record& ours : kRecords) {
    const auto theirs = section(ours.hash);
    if (theirs != sections.end())
      compare(in, ours, fields, *theirs);
    else if (in.reply.abi_max >= ANYHAL_ABI_VERSION)  // an older header may lack a newer record
      differs(in, "its layout has no record " + std::string(ours.name));
    fields += ours.count;
  }
  const auto size = [&](const char* name, uint32_t own) {
    const auto known = std::find_if(std::begin(kRecords), std::end(kRecords), [&](const Record& r) {
      return std::string_view(r.name) == name;
    });
    const auto theirs = section(known->hash);
    return theirs == sections.end() ? own : theirs->bytes;
  };
  in.sizes.table = size("anyhal_table", sizeof(anyhal_table));
  in.sizes.device_info = size("anyhal_device_info", sizeof(anyhal_device_info));
  in.sizes.memory_kind = size("anyhal_memory_kind", sizeof(anyhal_memory_kind));
  in.sizes.tensor_desc = size("anyhal_tensor_desc", sizeof(anyhal_tensor_desc));
  in.sizes.graph_value = size("anyhal_graph_value", sizeof(anyhal_graph_value));
  in.sizes.graph_entry = size("anyhal_graph_entry", sizeof(anyhal_graph_entry));
}

}  // namespace hal
