"""How fast a backend is: against the device's own roofs, and against an earlier build of itself.
SPDX-License-Identifier: Apache-2.0
"""
