"""How results are judged: error bounds by formula, and comparison without blind spots.
SPDX-License-Identifier: Apache-2.0
"""

from anyhal.conformance import gradients as _gradients  # both add their formulas to
from anyhal.conformance import rows as _rows  # tolerance.BOUNDS

__all__: list[str] = []
assert _gradients.BOUNDS_OF_TRAINING and _rows.BOUNDS_OF_ROWS
