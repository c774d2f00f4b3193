"""Uses one hostile backend under each lie that is named, and prints what came of it.
SPDX-License-Identifier: Apache-2.0

One process for all of them: a lie that ends it, or harms it, is found by those that follow.
"""

from __future__ import annotations

import json
import sys

import numpy as np

import anyhal as ah
from anyhal.errors import HalError

X = np.arange(16, dtype=np.float32).reshape(4, 4)


def use(lie: str) -> None:
    ah.load_backend("liar", instance=lie, settings={"lie": lie})
    device = ah.device(f"{lie}:0")
    with ah.use(device=device):
        x = ah.asarray(X)
        if lie.endswith("_block"):
            large = [ah.asarray(np.full(1 << 17, i, np.float32)) for i in range(3)]
            assert all((np.asarray(one) == i).all() for i, one in enumerate(large))
        if lie.startswith("wait"):
            for _ in range(3):
                x = ah.add(x, x)
                ah.synchronize(device)
            assert np.array_equal(np.asarray(x), 8 * X)
        assert np.array_equal(np.asarray(ah.matmul(ah.asarray(X), ah.asarray(X))), X @ X)
        assert np.array_equal(np.asarray(ah.add(ah.asarray(X), ah.asarray(X))), X + X)
    if "fact" in lie:
        device.capabilities(), device.notes(), device.counter(3), device.dtypes
    print(repr(device), device.fact, ah.receipts(), ah.routes(), file=sys.stderr)


for lie in sys.argv[1:]:
    try:
        use(lie)
        outcome = ["used", ""]
    except HalError as why:
        outcome = [type(why).__name__, str(why)]
    print(json.dumps([lie, *outcome]), flush=True)
