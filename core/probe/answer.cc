// Texts of strangers are written so that they end no string and no line.
// SPDX-License-Identifier: Apache-2.0
#include "core/probe/answer.hpp"

#include <cstdio>
#include <cstring>

#include "core/error.hpp"

namespace hal::probe {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += '\\';
    if (byte >= 0x20 && byte != 0x7f)
      out += c;
    else
      out += ' ';
  }
  return out + '"';
}

template <size_t n>
std::string text_of(const char (&text)[n]) {
  return {text, strnlen(text, n)};  // the subject may have written over it
}

const char* stage_name(uint32_t stage) { return kStageNames[stage < kStages ? stage : kStart]; }

std::string pair(const char* key, const std::string& value) {
  return quoted(key) + ": " + value + ", ";
}
std::string number(const char* key, long long value) { return pair(key, std::to_string(value)); }

std::string printed(const Printed& p) {
  return "{" + number("bytes", (long long)p.bytes) + pair("stage", quoted(stage_name(p.stage))) +
         "\"beginning\": " + quoted(p.beginning) + "}";
}

std::string changes(const Record& record) {
  std::string out = "[";
  for (uint32_t what = 0; what < kWhats; ++what) {
    const Change& change = record.changes[what];
    const uint32_t stage = change.stage.load();
    if (stage == kStart) continue;
    if (out.size() > 1) out += ", ";
    out += "[" + quoted(kWhatNames[what]) + ", " + quoted(stage_name(stage)) + ", " +
           quoted(text_of(change.detail)) + "]";
  }
  return out + "]";
}

void put(const std::string& fields) {
  const std::string line = "{" + fields + "}\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

void write_answer(const Outcome& o, const Record& record) {
  const std::string core = text_of(record.core_stage);
  put(pair("ended", quoted(o.ended)) + number("number", o.number) +
      pair("stage", quoted(stage_name(record.stage.load()))) + pair("core_stage", quoted(core)) +
      pair("core_status", quoted(status_name(record.core_status))) +
      pair("core_text", quoted(text_of(record.core_text))) +
      number("devices", record.devices.load()) + number("forks", record.forks.load()) +
      number("copies", record.copies.load()) +
      pair("copied", quoted(stage_name(record.copied.load()))) + number("left", o.left) +
      number("peak_bytes", (long long)o.peak_bytes) +
      number("microseconds", (long long)o.microseconds) + pair("out", printed(o.out)) +
      pair("err", printed(o.err)) + "\"changes\": " + changes(record));
}

void write_failure(const char* ended, const std::string& why) {
  put(pair("ended", quoted(ended)) + "\"why\": " + quoted(why));
}

}  // namespace hal::probe
