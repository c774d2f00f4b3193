"""argmax(x, axis): where the largest element stands.
SPDX-License-Identifier: Apache-2.0
"""

from anyhal.ops import _place

SPEC = _place.make("argmax", 19, "max", "largest")
