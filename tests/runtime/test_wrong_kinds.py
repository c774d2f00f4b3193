"""Every public callable with every argument of every wrong kind: only typed errors come out.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anyhal as hal
from anyhal import functions, training
from anyhal.ops._oracle import Blocks
from anyhal.ops._spec import REQUIRED
from anyhal.runtime import context, device

# Made anew for every call: a generator is used up by the first one.
WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "object": object,
    "type": lambda: int,
    "function": lambda: print,
    "text": lambda: "x",
    "empty text": lambda: "",
    "text with a line's end": lambda: "cpu:0\n",
    "text with NUL": lambda: "a\0b",
    "text that is not Unicode": lambda: "\ud800",
    "bytes": lambda: b"x",
    "float": lambda: 1.5,
    "NaN": lambda: float("nan"),
    "infinity": lambda: float("-inf"),
    "bool": lambda: True,
    "complex": lambda: 1j,
    "negative": lambda: -7,
    "2**40": lambda: 1 << 40,
    "2**63": lambda: 1 << 63,
    "-2**64": lambda: -(1 << 64),
    "10**400": lambda: 10**400,
    "NumPy float": lambda: np.float32(1.5),
    "NumPy bool": lambda: np.bool_(True),
    "NumPy integer": lambda: np.int8(-1),
    "NumPy text": lambda: np.str_("x"),
    "NumPy objects": lambda: np.array([None, object()]),
    "NumPy dates": lambda: np.zeros(2, "datetime64[s]"),
    "NumPy records": lambda: np.zeros(2, [("a", "i4"), ("b", "f4")]),
    "empty list": list,
    "list of None": lambda: [None],
    "list of text": lambda: ["x", "y"],
    "list of floats": lambda: [0.5, 1.5],
    "list of huge": lambda: [1 << 64],
    "ragged list": lambda: [[1, 2], [3]],
    "nested list": lambda: [[[[1]]]],
    "dict": lambda: {"a": 1},
    "set": lambda: {1, 2},
    "generator": lambda: (i for i in (1, 2)),
    "slice": lambda: slice("a", None, 0),
    "array": lambda: hal.ones((2, 3)),
    "empty array": lambda: hal.ones((0, 3), dtype="int64"),
    "list of arrays": lambda: [hal.ones((2, 3)), 3],
}

Call = tuple[Callable[..., Any], list[Any], dict[str, Any]]


def only_typed(call: Callable[[], Any], what: str, *names: str) -> None:
    try:
        call()
    except hal.InvalidArgumentError as why:
        assert not names or any(name in str(why) for name in names), f"{what}: {why}"
    except hal.HalError:
        pass
    except BufferError:  # what the DLPack protocol asks for
        assert what.startswith("from_dlpack: "), what
    except BaseException as why:
        pytest.fail(f"{what}: {type(why).__name__}: {why}")


def spoiled(make: Callable[[], Call]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The call with one argument after the other replaced by each wrong kind."""
    _, positional, named = make()
    for kind, wrong in WRONG.items():
        for place in [*range(len(positional)), *named]:

            def call(place: Any = place, wrong: Callable[[], Any] = wrong) -> Any:
                function, args, options = make()
                if isinstance(place, int):
                    args[place] = wrong()
                else:
                    options[place] = wrong()
                return function(*args, **options)

            yield f"argument {place!r} is {kind}", call


def operand(x: Any) -> Any:
    if isinstance(x, Blocks):
        return hal.frombuffer(x.data, x.dtype, x.shape)
    return x if x is None else hal.asarray(x)


def sample(name: str) -> Call:
    """A call of an op with every option given by name."""
    op = getattr(functions, name)
    options = {a.name: a.default for a in op.spec.attrs if a.name not in op.preset}
    for one in op.spec.samples(np.random.default_rng(0)):
        if all(one.attrs.get(k) == v for k, v in op.preset.items()):
            operands = [operand(x) for x in one.inputs]
            options |= {k: v for k, v in one.attrs.items() if k in options}
            break
    else:
        operands = [hal.ones((2, 2)) for a in op.spec.inputs if not a.optional]
        options = {k: 1 if v is REQUIRED else v for k, v in options.items()}
    if any(a.variadic for a in op.spec.inputs):
        operands = [operands]
    return op, operands, {**options, "out": None}


def scope(**options: Any) -> None:
    with hal.use(**options):
        pass


def watching(*args: Any) -> training.Tape:
    return training.Tape(list(args) or [hal.ones((2,))])


def calls(tmp_path: Path) -> dict[str, Call]:
    """Every public callable that is no op, with arguments that fit."""
    f32 = hal.ones((2, 3))
    there: dict[str, Any] = {"dtype": None, "device": None}
    return {
        "arange": (hal.arange, [0, 4, 1], there),
        "asarray": (hal.asarray, [[1.0]], {**there, "constant": False}),
        "broadcast_to": (hal.broadcast_to, [f32, (4, 2, 3)], {}),
        "counters": (hal.counters, [None], {}),
        "device": (hal.device, ["cpu_ref"], {}),
        "devices": (hal.devices, [], {}),
        "einsum": (hal.einsum, ["ij,kj->ik", f32, f32], {}),
        "empty": (hal.empty, [(2,)], {**there, "dtype": "float32", "pool": "cache"}),
        "explain": (hal.explain, ["exp f32[2]"], {}),
        "facts": (hal.facts, [tmp_path / "facts.json"], {"calls": ["exp f32[2]"]}),
        "from_dlpack": (hal.from_dlpack, [np.ones(2, np.float32)], {"device": None}),
        "frombuffer": (
            hal.frombuffer,
            [b"12345678", "f32", (2,)],
            {"device": None, "constant": True},
        ),
        "full": (hal.full, [(2,), 1.0], there),
        "get_include": (hal.get_include, [], {}),
        "graph": (hal.graph, ["cpu_ref:0"], {}),
        "ledger": (hal.ledger, [None], {}),
        "load_backend": (hal.load_backend, ["fake"], {"instance": None, "settings": {}}),
        "ones": (hal.ones, [(2,)], there),
        "permute_dims": (hal.permute_dims, [f32, (1, 0)], {}),
        "permute_dims of several": (hal.permute_dims, [f32, 1, 0], {}),
        "receipts": (hal.receipts, [], {}),
        "reshape": (hal.reshape, [f32, (3, 2)], {}),
        "reshape to several": (hal.reshape, [f32, 3, 2], {}),
        "routes": (hal.routes, [], {}),
        "copies": (hal.copies, [], {}),
        "select_backend": (hal.select_backend, ["cpu_ref"], {}),
        "split": (hal.split, [f32, 2], {"axis": 0}),
        "split at": (hal.split, [f32, [1]], {"axis": 0}),
        "synchronize": (hal.synchronize, [None], {}),
        "use": (
            scope,
            [],
            {
                "device": None,
                "fallback": None,
                "numerics": None,
                "determinism": None,
                "queue": None,
                "allow_uncertified": (),
                "receipts": None,
                "policy": None,
            },
        ),
        "zeros": (hal.zeros, [(2,)], there),
        "enqueue_native": (
            hal.enqueue_native,
            [lambda work: None],
            {"reads": [f32], "writes": (), "queue": None},
        ),
        "extension": (hal.extension, ["cpu:0", "anyhal.kernel_limits"], {"since": 1}),
        "kernel_limits": (hal.kernel_limits, ["cpu:0"], {}),
        "load_module": (hal.load_module, [__file__], {"device": "cpu:0"}),
        "native_handle": (hal.native_handle, [f32], {}),
        "placement": (hal.placement, [], {}),
        **methods(),
    }


def methods() -> dict[str, Call]:
    """Those of arrays, queues, events, graphs, devices and of the training API."""
    f32 = hal.ones((2, 3))
    queue = hal.Queue("cpu_ref:0")
    tape = watching()
    return {
        "Queue": (hal.Queue, ["cpu_ref:0"], {}),
        "Queue.wait": (queue.wait, [1.0], {}),
        "Queue.wait_for": (queue.wait_for, [queue.signal()], {}),
        "Event.wait": (queue.signal().wait, [1.0], {}),
        "Graph": (hal.Graph, ["cpu_ref:0"], {}),
        "Device.counter": (hal.device("cpu_ref").counter, [0], {}),
        "Array.numpy": (f32.numpy, [], {}),
        "Array.set": (hal.ones((2, 3)).set, [1.0], {}),
        "Array.reshape": (f32.reshape, [3, 2], {}),
        "Array.transpose": (f32.transpose, [1, 0], {}),
        "Array.astype": (f32.astype, ["float16"], {"overflow": "unstated"}),
        "Array.item": (hal.ones(1).item, [], {}),
        "Array[]": (f32.__getitem__, [0], {}),
        "Array[,]": (lambda *keys: f32[keys], [0, slice(None)], {}),
        "Array[:]": (lambda *ends: f32[slice(*ends)], [0, 2, 1], {}),
        "Array[] =": (f32.__setitem__, [0, 1.0], {}),
        "training.Tape": (watching, [f32], {}),
        "Tape": (training.Tape, [[f32]], {}),
        "Tape.matmul": (tape.matmul, [f32, hal.ones((3, 2))], {}),
        "Tape.concat": (tape.concat, [[f32, f32]], {"axis": 0}),
        "Tape.permute_dims": (tape.permute_dims, [f32, 1, 0], {}),
        "Tape.index": (tape.index, [f32, 0], {}),
        "Tape.gradients": (watching().gradients, [hal.ones(())], {}),
        "clip_grad_norm": (training.clip_grad_norm, [[hal.ones((2,))], 1.0], {}),
    }


@pytest.mark.parametrize("eps", [True, "1.0", [1.0]], ids=repr)
def test_a_known_plan_takes_no_more_than_a_new_one(eps: Any) -> None:
    x = hal.ones((2, 3))
    for _ in range(2):
        hal.rms_norm(x, None, eps=1.0)
        for wrong in (eps, hal.ones(())):
            with pytest.raises(hal.InvalidArgumentError, match="is not a number"):
                hal.rms_norm(x, None, eps=wrong)


# One function of each op: the others differ in a preset attribute only.
ONE_EACH = {getattr(functions, n).spec.name: n for n in functions.__all__}.values()


NUMERIC, LISTS = ("i64", "ints", "axis", "axes", "f32"), ("ints", "axes")


@pytest.mark.parametrize("name", ONE_EACH)
def test_only_numbers_are_numbers_with_and_without_a_known_plan(name: str) -> None:
    for known in (False, True):
        op, operands, options = sample(name)
        if known:
            op(*operands, **options)
        for a in (a for a in op.spec.attrs if a.kind in NUMERIC and a.name in options):
            for wrong in (True, np.True_, np.array(True), np.array(1), np.array(0.5), hal.ones(())):
                op, operands, options = sample(name)
                # Where a tuple is taken, also as an element of one.
                for value in (wrong, (wrong,), [wrong]) if a.kind in LISTS else (wrong,):
                    with pytest.raises(hal.InvalidArgumentError, match=a.name):
                        op(*operands, **{**options, a.name: value})


def test_numbers_of_numpy_are_numbers() -> None:
    x = hal.ones((2, 3))
    for eps in (np.float64(1.0), np.float32(1.0), np.float16(1.0), np.int8(1), 1):
        for _ in range(2):
            assert (
                hal.rms_norm(x, None, eps=eps).numpy() == hal.rms_norm(x, eps=1.0).numpy()
            ).all()


@pytest.mark.parametrize("name", ONE_EACH)
def test_ops(name: str) -> None:
    for what, call in spoiled(lambda: sample(name)):
        op = getattr(functions, name).spec.name.removesuffix(
            "_backward"
        )  # checked as the forward op
        only_typed(call, f"{name}: {what}", name, op)


@pytest.fixture(autouse=True)
def no_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is taken for a file's name is written here; what becomes the default is taken back."""
    monkeypatch.chdir(tmp_path)
    known = {d.name for d in hal.devices()}
    before = context._process_wide
    yield
    context._process_wide = before
    assert device._state is not None
    for name in set(device._state.devices) - known:  # other tests walk over all devices
        del device._state.devices[name]


NAMES = list(calls(Path()))


@pytest.mark.parametrize("name", NAMES)
def test_the_rest(name: str, tmp_path: Path) -> None:
    for what, call in spoiled(lambda: calls(tmp_path)[name]):
        only_typed(call, f"{name}: {what}")


def test_nothing_public_is_left_out() -> None:
    rest = set(hal.__all__) - set(functions.__all__) - {name.split()[0] for name in NAMES}
    assert {n for n in rest if not inspect.isclass(getattr(hal, n))} == set()
    methods = {n for n in vars(hal.Array) if not n.startswith("_")}
    callables = {n for n in methods if callable(getattr(hal.Array, n))}
    assert callables <= {name.partition(".")[2] for name in NAMES if name.startswith("Array.")}
