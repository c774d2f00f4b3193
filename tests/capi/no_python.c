/* Runs an op, then looks for Python among the libraries of the process.
 * SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

int main(void) {
  hal_queue* queue;
  char line[4096];
  FILE* maps;
  GOOD(hal_queue_create(NULL, &queue, error));
  hal_tensor a = matrix(queue, 4, 4), b = matrix(queue, 4, 4), c = matrix(queue, 4, 4);
  GOOD(hal_matmul(queue, &a, &b, &c, error));
  maps = fopen("/proc/self/maps", "r");
  HOLDS(maps);
  while (fgets(line, sizeof line, maps))
    HOLDS(!strstr(line, "libpython") && !strstr(line, "_core."));
  fclose(maps);
  printf("ok\n");
  return 0;
}
