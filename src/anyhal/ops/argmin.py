"""argmin(x, axis): where the smallest element stands.
SPDX-License-Identifier: Apache-2.0
"""

from anyhal.ops import _place

SPEC = _place.make("argmin", 27, "min", "smallest")
