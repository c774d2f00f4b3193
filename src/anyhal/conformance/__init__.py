"""How results are judged: error bounds by formula, and comparison without blind spots.
SPDX-License-Identifier: Apache-2.0
"""

from anyhal.conformance import gradients as _gradients  # adds its formulas to tolerance.BOUNDS

__all__: list[str] = []
assert _gradients.BOUNDS_OF_TRAINING
