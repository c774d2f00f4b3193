"""Renders one chat template under limits; a program of its own, started by chat.py.
SPDX-License-Identifier: Apache-2.0

Reads a JSON object {template, messages, bos, eos} and writes {text}, {error} or {missing}. It
imports nothing of this project, so it starts quickly and holds nothing worth reaching for.
"""

from __future__ import annotations

import json
import resource
import sys
from datetime import datetime
from typing import Any

_MEMORY_BYTES = 512 << 20
_CPU_S = 5
_MAX_OUTPUT = 1 << 20


class _TooLong(Exception):
    pass


def _limit_process() -> None:
    limits = (
        (resource.RLIMIT_AS, _MEMORY_BYTES),
        (resource.RLIMIT_CPU, _CPU_S),
        (resource.RLIMIT_CORE, 0),
    )
    for kind, wanted in limits:
        # Whoever started us may have set less, and raising that is not allowed.
        _, most = resource.getrlimit(kind)
        value = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(kind, (value, value))


def _render(request: dict[str, Any]) -> str:
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def tojson(value: Any, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=False, indent=indent)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    parts: list[str] = []
    length = 0
    for part in environment.from_string(request["template"]).generate(
        messages=request["messages"],
        add_generation_prompt=True,
        bos_token=request["bos"],
        eos_token=request["eos"],
    ):
        length += len(part)
        if length > _MAX_OUTPUT:
            raise _TooLong
        parts.append(part)
    return "".join(parts)


def main() -> None:
    request = json.loads(sys.stdin.buffer.read())
    _limit_process()
    try:
        answer = {"text": _render(request)}
    except ImportError:
        answer = {"missing": "jinja2"}
    except MemoryError:
        answer = {"error": f"it needs more than {_MEMORY_BYTES >> 20} MB of memory"}
    except _TooLong:
        answer = {"error": f"it writes more than {_MAX_OUTPUT} characters"}
    except Exception as error:  # whatever a template does wrong, its author reads
        answer = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
