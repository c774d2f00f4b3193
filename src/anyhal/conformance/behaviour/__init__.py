"""Behaviour of a backend: order, lifetime, memory, failures, threads, its place in a process.
SPDX-License-Identifier: Apache-2.0

One file per kind. What can be seen through the core is looked at there; what the core would hide is
asked of the contract's slots, on an instance of its own (driver.py). Nothing is assumed of a
backend but the contract and what it declares.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from anyhal.conformance.behaviour import driver
from anyhal.conformance.behaviour.registry import (
    ALL,
    Behaviour,
    Bench,
    NotApplicableError,
    NotDeclaredError,
    WrongError,
    not_declared,
)
from anyhal.conformance.suite import Case, Finding
from anyhal.errors import DeviceLostError, HalError, UnsupportedError

KINDS = (
    "order", "timelines", "lifetime", "pools", "hot_path", "failures", "plan_keys", "second_call",
    "determinism", "extent", "capture", "threads", "drift", "host_state", "fork_exit", "instances",
    "devices", "queries", "refusals",
)  # fmt: skip


def behaviours() -> dict[str, Behaviour]:
    for kind in KINDS:
        import_module(f"anyhal.conformance.behaviour.{kind}")
    return ALL


def cases() -> Iterator[Case]:
    for one in behaviours().values():
        yield one.case


def run(case: Case, bench: Bench) -> Finding:
    one = behaviours()[case.id]
    found = _found(one, bench, case)
    if found.outcome == "fail":
        driver.forget()
        return found
    try:
        driver.tidy()
    except driver.RefusedError as why:
        driver.forget()
        return Finding("fail", f"what the case had made could not be released: {why}", "release")
    return found


def _found(one: Behaviour, bench: Bench, case: Case) -> Finding:
    try:
        measured = one.check(bench, **case.given)
    except WrongError as why:
        return Finding("fail", str(why), why.code, why.measured)
    except NotApplicableError as why:
        return Finding("refused", str(why), "not_applicable")
    except NotDeclaredError as why:
        return Finding("refused", str(why), "not_declared")
    except UnsupportedError as why:
        return _refused(bench, why)
    except driver.RefusedError as why:
        return Finding("fail", str(why), why.word)
    except DeviceLostError as why:
        return Finding("fail", str(why), "device_lost")
    except HalError as why:
        return Finding("fail", f"{type(why).__name__}: {why}", why.code)
    except Exception as why:  # what no check expects is no reason to end the run
        return Finding("fail", f"{type(why).__name__}: {why}", "error")
    return Finding("pass", measured=measured or {})


def _refused(bench: Bench, why: UnsupportedError) -> Finding:
    """Only what the backend declares must it run."""
    missing = not_declared(bench, why)
    if missing is None:
        return Finding("fail", f"{type(why).__name__}: {why}", why.code)
    return Finding("refused", str(missing), "not_declared")
