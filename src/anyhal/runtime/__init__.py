"""What is on this machine: discovery of backends, devices, arrays, queues.
SPDX-License-Identifier: Apache-2.0
"""

from anyhal.runtime import status as status  # core errors become ours before any call
