"""What an explanation shows: every candidate, its typed reason, the choice and its kernels.

SPDX-License-Identifier: Apache-2.0

The sentence of each refusal reason is written out in golden_explain.json; after a wanted change
`python tests/fake/test_explain.py` writes that file anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import anyhal as hal

Fake = Callable[..., Any]
GOLDEN = Path(__file__).with_name("golden_explain.json")
CALL = "matmul f32[3,4] f32[4,2]"
REASONS = ["op", "dtype", "layout", "rank", "shape_limit", "alignment", "attribute"]
REASONS += ["architecture", "driver", "missing_library", "missing_artefact", "workspace"]
REASONS += ["numerics", "memory_kind", "capture", "policy"]


def explained(device: Any) -> dict[str, Any]:
    """The explanation of a call that its only device refuses, without that device's number."""
    backend = device.fact.backend
    with hal.use(device=device, allow_uncertified=(backend,)):
        decision = hal.explain(CALL)

    def plain(text: str) -> str:
        return text.replace(device.name, "DEVICE").replace(backend, "FAKE")

    own = [r for r in decision.refusals if r.device == device.name]
    return {
        "choice": decision.choice,
        "sentence": plain(decision.sentence),
        "refusals": [[r.form, r.reason, plain(r.sentence)] for r in own],
    }


@pytest.mark.parametrize("reason", REASONS)
def test_each_reason_reads_as_it_should(fake: Fake, reason: str) -> None:
    found = explained(fake(f"refuse=matmul:{reason}"))
    assert found == json.loads(GOLDEN.read_text("utf-8"))[reason]


def test_every_device_is_asked_and_the_choice_names_its_kernels(fake: Fake, on: Fake) -> None:
    device = fake("ops=-softmax")
    with on(device):
        decision = hal.explain("softmax f32[4,5]")
    asked = {(c.device.name, c.form) for c in decision.considered}
    here = {d.name for d in hal.devices()} | {device.name}
    assert asked == {(name, form) for name in here for form in ("fused", "decomposed")}
    assert (decision.choice, decision.form) == (device.name, "decomposed")
    assert [k.op for k in decision.kernels] == ["reduce", "binary", "unary", "reduce", "binary"]
    answered = {(c.device.name, c.form) for c in decision.considered}
    told = {(r.device, r.form) for r in decision.refusals} | {(decision.choice, decision.form)}
    assert told == answered, "one line for each candidate"


def test_a_device_that_could_not_either_says_its_own_reason(fake: Fake, on: Fake) -> None:
    fake("refuse=matmul:dtype")  # another one, which refuses for a reason of its own
    device = fake("")
    with on(device):
        decision = hal.explain(CALL)
    assert "dtype" in {r.reason for r in decision.refusals if r.device != device.name}
    assert decision.choice == device.name


def test_a_strange_demand_is_a_typed_refusal_and_never_ignored(fake: Fake, on: Fake) -> None:
    device = fake("")
    with on(device, determinism="cross_device"), pytest.raises(hal.UnsupportedError) as refused:
        hal.matmul(hal.asarray([[1.0]]), hal.asarray([[1.0]]))
    assert refused.value.reason == "numerics"
    assert device.counter(6) == 0, "nothing was queued"
    with on(device, numerics="bf16"):  # a permission: strict is enough
        assert hal.matmul(hal.asarray([[3.0]]), hal.asarray([[2.0]])).numpy() == 6
    rows = [r for r in hal.routes() if r["device"] == device.name]
    assert {r["numerics"] for r in rows if r["op"] == "matmul"} == {"strict"}


def write() -> None:
    found = {}
    for number, reason in enumerate(REASONS):
        settings = {"script": f"refuse=matmul:{reason}"}
        made = hal.load_backend("fake", instance=f"fake{number}", settings=settings)
        found[reason] = explained(made[0])
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    write()
