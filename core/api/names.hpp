// Names as people write them: lists, devices, the nearest known one; and texts of fixed size.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/text.hpp"

namespace hal {

// The parts of "a | b", without the spaces beside separators.
std::vector<std::string> split_names(const std::string& text, char separator);
// chip or chip:index, exactly as `devices` prints it.
bool is_device_name(const std::string& name);
// The plain form of a UUID or bus address, as routing/facts.py has it; other texts as they are.
std::string plain_identity(const std::string& text);
bool names_backend(const std::string& name, const std::string& backend);
bool names_device(const std::string& name, const std::string& backend, uint32_t index);
// The known name that is most like it; "" when none is near.
std::string nearest(const std::string& name, const std::vector<std::string>& known);
// Settings of the process: threads, log level, debug pool. Throws for what cannot be read.
void apply_environment();

// Throws InvalidArgument for a null argument.
void need(const void* pointer, const char* argument);

template <size_t n>
void copy_text(char (&to)[n], const std::string& from) {
  copy_text(to, from.c_str());
}

}  // namespace hal
