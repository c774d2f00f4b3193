/* Takes the best device, then looks which backends the process has mapped; then lists all devices.
 * Prints what was mapped after each. SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

static int mapped(const char* library) {
  char line[4096];
  int found = 0;
  FILE* maps = fopen("/proc/self/maps", "r");
  HOLDS(maps);
  while (fgets(line, sizeof line, maps)) found |= strstr(line, library) != NULL;
  fclose(maps);
  return found;
}

int main(void) {
  hal_device* device;
  uint32_t count = 0;
  GOOD(hal_select_backend(NULL, &device, error));
  printf("%d %d ", mapped("libanyhal_cpu.so"), mapped("libanyhal_dayone.so"));
  GOOD(hal_device_list(NULL, 0, &count, error));
  printf("%d %d\n", mapped("libanyhal_cpu.so"), mapped("libanyhal_dayone.so"));
  return 0;
}
