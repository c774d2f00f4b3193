"""Field cases of devices: which one is taken, under which name, and what is said about it.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loading import require_open

import anyhal as hal
from anyhal.dtypes import dtype
from anyhal.ops import BY_NAME
from anyhal.ops._spec import Blocks
from device_runs import call, place
from other_build import copy_as_other_build

Fake = Callable[..., Any]
PACKAGE = Path(hal.__file__).resolve().parent
A = np.arange(12, dtype=np.float32).reshape(3, 4)
UUID = {"left": "a1".ljust(32, "0"), "right": "b2".ljust(32, "0")}
RAN = 206  # the scriptable backend's counter of calls that ran on one device
_numbers = itertools.count()


@pytest.fixture
def fake() -> Iterator[Fake]:
    """Makes an instance of the scriptable backend; its devices, which are gone afterwards."""
    from anyhal.runtime import device

    made: list[str] = []

    def make(script: str = "") -> Any:
        devices = hal.load_backend(
            "fake", instance=f"dev{next(_numbers)}", settings={"script": script}
        )
        made.extend(d.name for d in devices)
        return devices[0] if len(devices) == 1 else devices

    yield make
    assert device._state is not None
    for name in made:
        del device._state.devices[name]


@pytest.fixture
def plugins(tmp_path: Path) -> Callable[..., Path]:
    """Out-of-tree backends that play what ANYHAL_FAKE says, each under its own name and rank."""

    def make(**ranks: int) -> Path:
        for name, rank in ranks.items():
            folder = tmp_path / "plugins" / name
            shutil.copytree(PACKAGE / "backends" / "fake", folder)
            library = folder / f"libanyhal_{name}.so"
            copy_as_other_build(folder / "libanyhal_fake.so", library)
            (folder / "libanyhal_fake.so").unlink()
            manifest = folder / "backend.toml"
            text = (
                manifest.read_text()
                .replace('"fake"', f'"{name}"')
                .replace("rank = 1", f"rank = {rank}")
            )
            manifest.write_text(text.replace("libanyhal_fake.so", library.name))
        return tmp_path / "plugins"

    return make


def run(program: str, *, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """A fresh process with these variables."""
    done = subprocess.run(
        [sys.executable, "-c", "import anyhal as hal\n" + program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


# ------------------------------------------------------------------------------ DEV-01, DEV-02


@pytest.mark.parametrize("variable", [{}, {"FAKE_HOME": "/opt/fake", "LD_LIBRARY_PATH": "/opt"}])
def test_dev_01_what_was_asked_for_runs_or_it_is_said(variable: dict[str, str]) -> None:
    program = (
        "try:\n    hal.select_backend('fake')\n"
        "except hal.BackendLoadError as why:\n    print('refused', why)\n"
        "print(hal.select_backend('fake|cpu_ref').name)\n"
        "hal.select_backend('fake|cpu_ref')\n"
        "from anyhal.runtime.device import facts\nprint(*facts().notes, sep='\\n')\n"
    )
    done = run(program, ANYHAL_FAKE="fail=main:not_found", **variable)
    refused, chosen, *notes = done.stdout.splitlines()
    assert "libfake_vendor.so.1 is not installed" in refused
    assert chosen == "cpu_ref:0"
    assert any("selected by 'fake|cpu_ref'; passed over" in n for n in notes)
    told = [line for line in done.stderr.splitlines() if "passed over" in line]
    assert len(told) == 1 and "libfake_vendor.so.1 is not installed" in told[0]


ALTERNATING = """
import numpy as np
with hal.use(device=DEVICE, fallback="any"):
    x = hal.asarray(np.ones(4, np.float32))
    for i in range(400):
        x = hal.add(x, x) if i in (100, 200, 300) else hal.abs(x)
print(x.numpy().tolist(), hal.device("fake:0").counter(6), hal.copies(), hal.placement())
"""


def test_dev_02_a_device_that_takes_three_of_400_calls_says_so() -> None:
    done = run(ALTERNATING.replace("DEVICE", "'fake:0'"), ANYHAL_FAKE="ops=binary")
    assert done.stdout.startswith("[8.0, 8.0, 8.0, 8.0] 3 ")
    (line,) = [line for line in done.stderr.splitlines() if "calls for" in line]
    assert "397 of 400 calls for fake:0 ran elsewhere (99%), with copies: unary 397 on" in line
    assert "(reason op)" in line


def test_dev_02_small_islands_are_left_where_their_operands_are() -> None:
    done = run(ALTERNATING.replace("DEVICE", "'cpu_ref:0'"), ANYHAL_FAKE="ops=binary")
    assert done.stdout == "[8.0, 8.0, 8.0, 8.0] 0 [] []\n" and "calls for" not in done.stderr


# -------------------------------------------------------------------------------------- DEV-03


ORDER = """
from anyhal.runtime.device import facts
from anyhal.routing.facts import Contract
from anyhal.routing.policy import rank_devices
for r in rank_devices(facts(), Contract(allow_uncertified=("fake",))):
    if r.device.backend == "fake":
        print(r.device.integrated or r.device.display_only, r.eligible, r.reason, sep="|")
with hal.use(allow_uncertified=("fake",)):
    print(hal.device().fact.memory_bytes >> 20)
"""


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("display", [False, True])
def test_dev_03_the_small_gpu_in_the_processor_is_not_taken(first: int, display: bool) -> None:
    small = f"{1 - first}.integrated; {1 - first}.unified; {1 - first}.heap=512MiB"
    small += f"; {1 - first}.display_only" if display else ""
    script = f"devices=2; {first}.heap=16GiB; {small}"
    done = run(ORDER, ANYHAL_FAKE=script, ANYHAL_VISIBLE_DEVICES="fake")
    big, behind, chosen = done.stdout.splitlines()
    assert big.startswith("False|True|chosen") and chosen == str(16 << 10)
    why = "it only drives a display; name it" if display else "it is integrated, not discrete"
    assert behind.startswith(f"True|{not display}|not chosen: {why}")


def test_dev_03_a_device_that_only_drives_a_display_is_never_taken_unnamed() -> None:
    program = (
        "try:\n    hal.device()\nexcept hal.HalError:\n    print('none')\n"
        "print(hal.device('fake:0').name)"
    )
    done = run(program, ANYHAL_FAKE="display_only", ANYHAL_VISIBLE_DEVICES="fake")
    assert done.stdout == "none\nfake:0\n"


# -------------------------------------------------------------------------------------- DEV-04


def pair(first: str) -> str:
    """Two cards; `first` is the one that the driver lists first."""
    cards = {
        "left": "N.uuid=a1; N.pci=3; N.heap=1GiB",
        "right": "N.uuid=b2; N.pci=4; N.heap=2GiB",
    }
    listed = [first, "right" if first == "left" else "left"]
    return "devices=2; " + "; ".join(cards[c].replace("N", str(i)) for i, c in enumerate(listed))


CHOOSE = """
for name in ("fake:0", "fake:1", "LEFT", "RIGHT", "0000:03:00.0", "00000000:04:00.0",
             "GPU-b2000000-0000-0000-0000-000000000000"):
    d = hal.device(name)
    x = hal.ones(4, device=d)
    print(d.identity, d.fact.address, d.fact.memory_bytes >> 30, x.device is d, d.trim() >= 0)
""".replace("LEFT", UUID["left"]).replace("RIGHT", UUID["right"])


def test_dev_04_a_name_means_the_same_card_whatever_the_driver_lists_first() -> None:
    shown = [run(CHOOSE, ANYHAL_FAKE=pair(first)).stdout for first in UUID]
    left = f"{UUID['left']} 0000:03:00.0 1 True True"
    right = f"{UUID['right']} 0000:04:00.0 2 True True"
    assert shown[0].splitlines() == [left, right, left, right, left, right, right]
    assert shown[1] == shown[0]


@pytest.mark.parametrize("form", ["uuid", "address", "name"])
def test_dev_04_ids_go_round_through_the_environment_and_child_processes(form: str) -> None:
    """A parent hands its device to a child whose driver lists the cards the other way round."""
    shows = {"uuid": "d.identity", "address": "d.fact.address", "name": "d.name"}
    program = f"d = hal.device('{UUID['right']}')\nprint({shows[form]})"
    named = run(program, ANYHAL_FAKE=pair("left")).stdout.strip()
    child = (
        "from anyhal.runtime.device import facts\n"
        "print([d.name for d in facts().devices if not d.why_not])\n"
        "print(hal.device('fake').identity)\n"
    )
    seen = run(child, ANYHAL_FAKE=pair("right"), ANYHAL_VISIBLE_DEVICES=named).stdout
    assert seen == f"['fake:1']\n{UUID['right']}\n"  # hiding the other renumbers nothing


# ------------------------------------------------------------------------------ DEV-05 to DEV-08


@pytest.mark.parametrize("op", BY_NAME)
def test_dev_05_the_processor_can_run_every_op_and_dtype(op: str) -> None:
    """Every sample of the registry, so every dtype of every op, on the floor of routing."""
    from anyhal.runtime.device import device

    spec = BY_NAME[op]
    floor = device("cpu_ref")
    seen: set[str] = set()
    for sample in spec.samples(np.random.default_rng(5)):
        kinds = tuple(
            None if x is None else (x.dtype if isinstance(x, Blocks) else dtype(x.dtype)).short
            for x in sample.inputs
        )
        key = str((kinds, sample.attrs))
        if key in seen or any(x is not None and 0 in x.shape for x in sample.inputs):
            continue
        seen.add(key)
        inputs = [None if x is None else place(x, "dense", floor.name) for x in sample.inputs]
        made_by(spec, sample, inputs, floor)
    assert seen


def made_by(spec: Any, sample: Any, inputs: list[Any], device: Any) -> Any:
    """The op's result; one that only fills what it is given is what `full` is made of."""
    if sample.out_shape is None:
        return call(spec, inputs, dict(sample.attrs))
    return hal.full(sample.out_shape, inputs[0].item(), dtype=inputs[0].dtype, device=device)


def test_dev_06_a_model_with_an_op_that_the_device_lacks_hops_with_copies(fake: Fake) -> None:
    device = fake("ops=-group_norm,-reduce")
    scope = {"device": device, "allow_uncertified": (device.fact.backend,)}
    x, gain, shift = (np.ones(s, np.float32) for s in ((2, 4, 3), (4,), (4,)))
    before = sum(row["count"] for row in hal.copies())
    with hal.use(**scope, fallback="any"):
        hidden = hal.add(hal.asarray(x), hal.asarray(x))
        normed = hal.group_norm(hidden, hal.asarray(gain), hal.asarray(shift), groups=2, eps=1e-5)
        out = hal.multiply(normed, hidden)
        trace = hal.explain("group_norm f32[2,4,3] f32[4] f32[4] groups=2 eps=1e-5")
    np.testing.assert_allclose(out.numpy(), np.full((2, 4, 3), 2), atol=1e-5)
    assert out.device is device
    assert sum(row["count"] for row in hal.copies()) >= before + 2
    assert trace.choice != device.name
    assert {(r.form, r.reason) for r in trace.refusals if r.device == device.name} == {
        ("fused", "op"),
        ("decomposed", "op"),
    }
    moved = next(row for row in hal.placement() if row["device"] == device.name)
    assert moved["reasons"][0]["op"] == "group_norm" and moved["elsewhere"] == 1


SHAPES = [(), (1,), (2,), (3,), (1, 1), (1, 3), (2, 1), (2, 3), (3, 2), (1, 2, 3), (0,)]


def test_dev_07_the_error_is_about_the_op_that_was_called(fake: Fake) -> None:
    device = fake("ops=-where")
    arrays = {s: hal.ones(s, device=device) for s in SHAPES}
    conditions = {s: hal.asarray(np.ones(s, bool), device=device) for s in SHAPES}
    wrong = right = 0
    for c, a, b in itertools.product(SHAPES, repeat=3):
        try:
            want = np.broadcast_shapes(c, a, b)
        except ValueError:
            with pytest.raises(hal.InvalidArgumentError) as refused:
                hal.where(conditions[c], arrays[a], arrays[b])
            said = str(refused.value)
            assert said.startswith("where") and "multiply" not in said
            for kind, shape in (("bool", c), ("f32", a), ("f32", b)):
                assert f"{kind}[{','.join(map(str, shape))}]" in said
            wrong += 1
        else:
            with pytest.raises(hal.UnsupportedError, match="^where"):
                hal.where(conditions[c], arrays[a], arrays[b])
            assert want is not None
            right += 1
    assert (wrong + right, right > 300, wrong > 300) == (1331, True, True)


def test_dev_08_a_missing_dtype_is_named_with_what_there_is(fake: Fake) -> None:
    device = fake("dtypes=-f64")
    assert [d.name for d in (dtype("f32"), dtype("f64")) if d in device.dtypes] == ["float32"]
    with hal.use(device=device, allow_uncertified=(device.fact.backend,)):
        for kind in ("f32", "f64", "i32"):  # a mixed list: only the one that is missing is refused
            x = hal.asarray(A, dtype=kind)
            assert x.dtype == dtype(kind).name, "nothing is made smaller unasked"
            if kind != "f64":
                np.testing.assert_array_equal(hal.add(x, x).numpy(), A + A)
                continue
            with pytest.raises(hal.UnsupportedError) as refused:
                hal.add(x, x)
            said = str(refused.value)
            assert refused.value.reason == "dtype"
            assert device.name in said and "f64" in said and "has for binary: f32, f16" in said
        given = hal.asarray(A, dtype="f64").numpy().astype(np.float32)  # the explicit way down
        np.testing.assert_array_equal(hal.add(hal.asarray(given), 1.0).numpy(), A + 1)


# -------------------------------------------------------------------------------------- DEV-09


@pytest.fixture(scope="module")
def two() -> Iterator[tuple[Any, Any]]:
    from anyhal.runtime import device

    devices = hal.load_backend("fake", instance="devpair", settings={"script": "devices=2"})
    yield devices[0], devices[1]
    assert device._state is not None
    for d in devices:
        del device._state.devices[d.name]


@pytest.mark.parametrize("op", BY_NAME)
def test_dev_09_an_op_runs_where_its_data_is(two: tuple[Any, Any], op: str) -> None:
    current, other = two
    spec = BY_NAME[op]
    sample = next(
        s
        for s in spec.samples(np.random.default_rng(9))
        if all(x is None or 0 not in x.shape for x in s.inputs)
    )
    before = current.counter(RAN)
    with hal.use(device=current, allow_uncertified=("devpair",)):
        inputs = [None if x is None else place(x, "dense", other.name) for x in sample.inputs]
        placed = any(x is not None for x in inputs) or sample.out_shape is not None
        made = made_by(spec, sample, inputs, other)
        results = made if isinstance(made, tuple) else (made,)
        for r in results:
            r.numpy()
            assert r.device is (other if placed else current)
    assert not placed or current.counter(RAN) == before


def test_dev_09_mixed_operands_are_refused_with_both_names(two: tuple[Any, Any]) -> None:
    with pytest.raises(hal.InvalidArgumentError) as refused:
        hal.add(hal.asarray(A, device=two[0]), hal.asarray(A, device=two[1]))
    assert two[0].name in str(refused.value) and two[1].name in str(refused.value)


# ----------------------------------------------------------------------------- DEV-10 to DEV-13


def test_dev_10_two_out_of_tree_devices_and_the_processor(plugins: Callable[..., Path]) -> None:
    folder = plugins(left=20, right=21)
    program = (
        "import numpy as np\nx = np.arange(4, dtype=np.float32)\n"
        "for name in ('left', 'right', 'cpu_ref', 'right', 'left'):\n"
        "    a = hal.asarray(x, device=name + ':0')\n    x = hal.add(a, a).numpy()\n"
        "b = hal.asarray(hal.asarray(a, device='right:0'), device='cpu_ref:0')\n"
        "print(x.tolist(), (b.numpy() == a.numpy()).all())\n"
        "print(sorted({r['device'] for r in hal.routes() if r['op'] == 'binary'}))\n"
    )
    done = run(program, ANYHAL_FAKE="1", ANYHAL_BACKEND_PATH=str(folder))
    names = "['cpu_ref:0', 'left:0', 'right:0']"
    assert done.stdout == f"[0.0, 32.0, 64.0, 96.0] True\n{names}\n"


def test_dev_10_a_clash_of_names_is_refused(plugins: Callable[..., Path]) -> None:
    folder = plugins(cpu_ref=99)
    program = (
        "from anyhal.runtime.device import facts\n"
        "print([r.sentence for r in facts().refused if r.name == 'cpu_ref'])\n"
        "print([d.name for d in hal.devices() if d.fact.backend == 'cpu_ref'])\n"
    )
    done = run(program, ANYHAL_FAKE="1", ANYHAL_BACKEND_PATH=str(folder))
    refused, devices = done.stdout.splitlines()
    assert "cpu_ref" in refused and devices == "['cpu_ref:0']", done.stdout


ROUTES = """
import numpy as np
devices = {d.name: d for d in hal.devices()}
one, two = devices["left:0"], devices["right:0"]
print(one.identity == two.identity != "", one.routes == two.routes, *one.routes)
with hal.use(allow_uncertified=("left", "right")):
    print(hal.device("LEFT").name)
    print(hal.ones(2, device=one).device.name, hal.ones(2, device=two).device.name)
    for d in (one, two):
        x = hal.ones(2, device=d)
        with hal.graph(d) as g:
            y = hal.add(x, x)
        g.launch()
        print(y.device.name, y.numpy().tolist())
""".replace("LEFT", UUID["left"]).replace("RIGHT", UUID["right"])


def test_dev_11_one_card_through_two_backends(plugins: Callable[..., Path]) -> None:
    given = {
        "ANYHAL_FAKE": "uuid=a1; pci=3",
        "ANYHAL_BACKEND_PATH": str(plugins(left=20, right=21)),
        "ANYHAL_VISIBLE_DEVICES": "left,right,cpu_ref",
    }
    done = run(ROUTES, **given)
    same, chosen, per_call, *graphs = done.stdout.splitlines()
    assert same == "True True right:0 left:0 fake:0" or same == "True True right:0 left:0"
    assert (chosen, per_call) == ("right:0", "left:0 right:0")  # the higher rank first
    assert graphs == ["left:0 [2.0, 2.0]", "right:0 [2.0, 2.0]"]
    given["ANYHAL_VISIBLE_DEVICES"] = "left,cpu_ref"  # by configuration: the other route is hidden
    assert run(f"print(hal.device('{UUID['left']}').name)", **given).stdout == "left:0\n"


def test_dev_11_a_card_is_listed_with_both_routes_and_its_memory_once(
    plugins: Callable[..., Path],
) -> None:
    given = {
        "ANYHAL_FAKE": "uuid=a1; heap=3GiB",
        "ANYHAL_BACKEND_PATH": str(plugins(left=20, right=21)),
        "ANYHAL_VISIBLE_DEVICES": "left,right,cpu_ref",
        "COLUMNS": "250",
    }
    command = Path(sys.executable).parent / "anyhal"
    shown = subprocess.run(
        [command, "devices"],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rows = [line.split() for line in shown.splitlines()]
    left, right = (next(r for r in rows if r[:1] == [f"{n}:0"]) for n in ("left", "right"))
    assert f"card {UUID['left']}: right:0, left:0" in shown
    assert shown.count("3.0 GiB") <= 2 and ("the same" in " ".join(left)), shown
    document = json.loads(
        subprocess.run(
            [command, "devices", "--json"],
            env={**os.environ, **given},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    routes = {d["name"]: d["routes"] for d in document["devices"]}
    assert routes["left:0"] == routes["right:0"] and set(routes["left:0"]) >= {"left:0", "right:0"}


def test_dev_11_routes_are_one_card_by_uuid_or_bus_address() -> None:
    from anyhal.routing.facts import DeviceFact, Facts
    from anyhal.routing.policy import physical

    uuid, bus = UUID["left"], "0000:03:00.0"
    both = DeviceFact("a:0", "a", identity=uuid, address=bus)
    named = DeviceFact("b:0", "b", identity=uuid)
    placed = DeviceFact("c:0", "c", identity=bus, address=bus)
    other = DeviceFact("d:0", "d")
    for order in itertools.permutations((both, named, placed, other)):
        assert physical(Facts(order)) == {"a:0": uuid, "b:0": uuid, "c:0": uuid, "d:0": "d:0"}


SEARCH = """
try:
    hal.select_backend("card")
except hal.NotFoundError as why:
    print(why)
print(hal.select_backend("cpu_ref").name)
"""


@pytest.mark.parametrize("kind", ["empty", "wrong", "closed"])
def test_dev_12_nothing_loaded_says_where_it_looked(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / kind
    if kind != "wrong":
        folder.mkdir()
    if kind == "closed":
        if os.getuid() == 0:
            require_open(PACKAGE)
        (folder / "card").mkdir()
        folder.chmod(0)
    drop = (
        "import os, email.parser, importlib.metadata, tomllib, traceback, dataclasses\n"
        "import inspect, difflib, subprocess, glob, anyhal.sdk.chip, anyhal.runtime.probing\n"
        "os.setuid(65534)\n"
        if kind == "closed" and os.getuid() == 0
        else ""
    )
    done = run(drop + SEARCH, ANYHAL_BACKEND_PATH=str(folder))  # root reads everything
    if kind == "closed":
        folder.chmod(0o700)
    why, chosen = done.stdout.splitlines()
    assert str(folder) in why and "cpu" in why, "what was searched, and what is here"
    assert chosen == "cpu_ref:0", "the processor is built in"


PREFER = """
from anyhal.runtime.device import facts
from anyhal.routing.facts import Contract
from anyhal.routing.policy import rank_devices
for r in rank_devices(facts(), Contract(allow_uncertified=("card",))):
    print(r.device.name, r.reason)
with hal.use(allow_uncertified=("card",)):
    print("taken", hal.device().name, hal.ones(2).device.name)
    print(hal.explain("add f32[2] f32[2]").sentence)
print("unallowed", [r.reason for r in rank_devices(facts()) if r.device.backend == "card"][0])
"""


@pytest.mark.parametrize("order", ["card first", "card last"])
def test_dev_13_an_installed_card_is_taken_and_the_ranking_says_why(
    plugins: Callable[..., Path], tmp_path: Path, order: str
) -> None:
    """The card's wheel: an entry point that gives its folder, before and behind another wheel."""
    folder = plugins(card=90)
    site = tmp_path / "site"
    wheels = {"a_card": ("card", folder), "z_other": ("other", tmp_path / "nothing")}
    if order == "card last":
        wheels = {"z_card": wheels["a_card"], "a_other": wheels["z_other"]}
    for package, (entry, path) in wheels.items():
        (site / f"{package}-1.0.dist-info").mkdir(parents=True)
        (site / f"{package}.py").write_text(f"def folder():\n    return {str(path)!r}\n")
        (site / f"{package}-1.0.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
        )
        (site / f"{package}-1.0.dist-info" / "entry_points.txt").write_text(
            f"[anyhal.backends]\n{entry} = {package}:folder\n"
        )
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    done = run(PREFER, ANYHAL_FAKE="heap=16GiB", PYTHONPATH=path)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("card:0 chosen: first of"), done.stdout + done.stderr
    assert any(line.startswith("cpu:0 not chosen: its backend's rank is lower") for line in lines)
    assert "taken card:0 card:0" in lines
    assert "runs fused on card:0" in lines[-2]
    assert lines[-1].startswith("unallowed not chosen: it is uncertified; name it")
