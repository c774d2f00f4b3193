"""What a backend is offered by its caller, counted: memory, threads, artefacts, settings, notes.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes as c
from collections import Counter
from collections.abc import Mapping
from typing import Any

from anyhal.conformance.behaviour import records as r

_libc = c.CDLL(None)
_libc.aligned_alloc.restype, _libc.aligned_alloc.argtypes = r.P, (c.c_size_t, c.c_size_t)
_libc.free.restype, _libc.free.argtypes = None, (r.P,)
_kept: list[Any] = []  # services live as long as the process


class Host:
    """`calls` counts each service; `threads` and `backward` say how work is shared out; the
    allocation numbered `refuse_from` and all later ones answer NULL."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.calls: Counter[str] = Counter()
        self.spans: list[tuple[int, int, int]] = []  # tag, begin, end
        self.notes: dict[str, int] = {}
        self.threads, self.backward, self.refuse_from = 2, False, 0
        self._settings = {
            k.encode(): c.create_string_buffer(v.encode()) for k, v in settings.items()
        }
        self.record = r.sized(
            r.Services, log=r.LogFn(self._log), error_text=r.ErrorTextFn(self._error_text),
            host_alloc=r.AllocFn(self._alloc), host_free=r.FreeFn(self._free),
            parallel_for=r.ParallelFn(self._parallel_for), thread_count=r.CountFn(self._count),
            cache_get=r.CacheFn(self._cache_get), cache_put=r.CachePutFn(self._cache_put),
            setting=r.SettingFn(self._setting), span=r.SpanFn(self._span),
            ledger_note=r.NoteFn(self._note),
        )  # fmt: skip
        _kept.append(self)

    def given(self) -> Any:
        """The settings as hello hands them over."""
        rows = [r.Setting(name, text.value) for name, text in self._settings.items()]
        return (r.Setting * max(len(rows), 1))(*rows)

    @property
    def setting_count(self) -> int:
        return len(self._settings)

    def _log(self, _: Any, level: int, text: Any) -> None:
        self.calls["log"] += 1

    def _error_text(self, _: Any, error: Any, status: int, reason: int, text: Any) -> int:
        self.calls["error_text"] += 1
        if error:
            into = c.cast(error, c.POINTER(r.Error)).contents
            into.reason, into.text = reason, (text or b"")[:239]
        return status

    def _alloc(self, _: Any, size: int, alignment: int) -> Any:
        self.calls["host_alloc"] += 1
        if self.refuse_from and self.calls["host_alloc"] >= self.refuse_from:
            return None
        alignment = max(alignment, 16)
        return _libc.aligned_alloc(alignment, -(-max(size, 1) // alignment) * alignment)

    def _free(self, _: Any, pointer: Any) -> None:
        _libc.free(pointer)

    def _parallel_for(self, _: Any, count: int, part: Any, argument: Any) -> None:
        self.calls["parallel_for"] += 1
        numbers = range(count)
        for index in reversed(numbers) if self.backward else numbers:
            part(argument, index)

    def _count(self, _: Any) -> int:
        return self.threads

    def _cache_get(self, _: Any, key: Any, data: Any, size: Any) -> int:
        self.calls["cache_get"] += 1
        return r.NOT_FOUND

    def _cache_put(self, _: Any, key: Any, data: Any, size: int) -> int:
        self.calls["cache_put"] += 1
        return r.OK

    def _setting(self, _: Any, name: Any) -> Any:
        found = self._settings.get(name)
        return None if found is None else c.addressof(found)

    def _span(self, _: Any, tag: int, begin: int, end: int, on_device: int) -> None:
        self.calls["span"] += 1
        self.spans.append((tag, begin, end))

    def _note(self, _: Any, label: Any, size: int) -> None:
        self.calls["ledger_note"] += 1
        self.notes[(label or b"").decode("utf-8", "replace")] = size
