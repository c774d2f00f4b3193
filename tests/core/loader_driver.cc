// Loads one library as a backend and prints what became of it: "stage|status|text" or its devices.
// With a second argument it also prepares an op of that name.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "anyhal/ops.h"
#include "core/device.hpp"
#include "core/error.hpp"
#include "core/instance.hpp"
#include "core/plan.hpp"

int main(int count, char** arguments) {
  try {
    std::vector<std::pair<std::string, std::string>> settings;
    if (const char* folder = std::getenv("CACHE_DIR")) settings.emplace_back("cache_dir", folder);
    hal::Instance* instance = hal::load_instance(arguments[1], "tiny", settings);
    const auto devices = instance->list_devices();
    std::printf("loaded|%zu|%s\n", devices.size(), instance->build_id.c_str());
    for (const auto& device : devices)
      std::printf("device|%s|%s\n", device.info.name, device.info.arch);
    if (count > 2) {
      hal::OpDesc desc;
      desc.op = ANYHAL_OP_COPY, desc.name = arguments[2];
      hal::prepare_op(*hal::open_device(instance, 1, "card:3"), desc);
    }
    return 0;
  } catch (const hal::Error& error) {
    std::printf("%s|%s|%s\n", error.stage.c_str(), hal::status_name(error.status),
                error.text.c_str());
    return 3;
  }
}
