"""Training: a tape that differentiates calls of the ops, and clipping of gradients.
SPDX-License-Identifier: Apache-2.0
"""

from anyhal.training.clip import clip_grad_norm
from anyhal.training.tape import Tape

__all__ = ["Tape", "clip_grad_norm"]
