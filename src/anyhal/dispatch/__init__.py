"""The one meeting point of a new call signature: facts → decision → plan.
SPDX-License-Identifier: Apache-2.0
"""

from anyhal.dispatch.resolve import explain, facts, op

__all__ = ["explain", "facts", "op"]
