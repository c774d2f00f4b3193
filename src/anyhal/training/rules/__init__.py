"""Gradient rules: for each op, its inputs' gradients from the gradients of its outputs.
SPDX-License-Identifier: Apache-2.0

A rule is built from public ops, so it runs wherever they do and can itself be captured in a graph.
"""

from anyhal.training.rules import (
    elementwise,
    layers,
    moves,
    products,
    reductions,
    sums,
    windows,
)
from anyhal.training.rules._shapes import Rule

__all__ = ["REFUSED", "RULES", "STEPS", "Rule"]

RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **reductions.RULES,
    **products.RULES,
    **sums.RULES,
    **windows.RULES,
    **layers.RULES,
    **moves.RULES,
}
# Functions whose gradient is 0 by definition: they are constant between their steps.
STEPS = (*elementwise.STEPS, "floor_divide")


def _refused(why: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, why)


# Functions without a rule, each with its reason: a tape refuses them.
REFUSED: dict[str, str] = {
    **_refused(
        "its result is true or false",
        *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
        *("isnan", "isinf", "isfinite", "signbit", "all", "any"),
        *("logical_and", "logical_or", "logical_xor", "logical_not"),
    ),
    **_refused("its result is a position", "argmax", "argmin"),
    **_refused(
        "it is defined on whole numbers",
        *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert"),
        *("bitwise_left_shift", "bitwise_right_shift", "one_hot"),
    ),
    **_refused("it moves by one spacing of the dtype, not by an amount", "nextafter"),
    **_refused("its operand or its result is storage of codes", "quantize", "dequantize"),
    **_refused(
        "what it draws depends on no operand that changes smoothly",
        *("random_uniform", "random_normal", "random_integers"),
    ),
    **_refused(
        "it writes into its operand, which a tape must find unchanged",
        *("cache_append", "paged_cache_append", "adamw_step", "sgd_step"),
    ),
    **_refused("it is for inference; train with attention", "paged_attention"),
    **_refused(
        "it is itself a gradient, and there are no second derivatives",
        *("softmax_backward", "log_softmax_backward", "cross_entropy_backward"),
        *("rms_norm_backward", "layer_norm_backward", "group_norm_backward"),
        *("batch_norm_backward", "attention_backward", "embedding_backward", "conv_backward"),
    ),
}
