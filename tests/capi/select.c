/* Selects a device by its argument ("" = the best) and prints status|reason|device or sentence.
 * SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

int main(int argc, char** argv) {
  hal_device* device;
  hal_device_info info;
  hal_error error = {0, 0, ""};
  const char* names = argc > 1 && argv[1][0] ? argv[1] : NULL;
  const hal_status status = hal_select_backend(names, &device, &error);
  if (status == HAL_STATUS_OK) {
    info.size = sizeof info;
    GOOD(hal_device_describe(device, &info, error));
    snprintf(error.text, sizeof error.text, "%s %s", info.name, info.state);
  }
  printf("%s|%s|%s\n", hal_status_name(status), hal_reason_name(error.reason), error.text);
  return 0;
}
