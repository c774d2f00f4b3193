"""Turns a conversation into the prompt text that a model's own chat template describes.
SPDX-License-Identifier: Apache-2.0

A template is a program that comes with a file from anywhere. It is rendered by Jinja's immutable
sandbox in a child process whose memory, time and output are limited, so the worst it can do is
to fail.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from anyhal.errors import UnsupportedError
from anyhal.frontends.gguf.reader import GgufError, GgufFile

MAX_TEMPLATE_BYTES = 1 << 18
_RENDERER = Path(__file__).with_name("_render.py")
_TIMEOUT_S = 20.0


def render_chat(
    file: GgufFile, messages: Sequence[Mapping[str, str]], *, bos: str = "", eos: str = ""
) -> str:
    """The prompt for `messages` (dicts of role and content), ready for the assistant's answer."""
    template = file.metadata.get("tokenizer.chat_template")
    if not isinstance(template, str):
        raise UnsupportedError(
            f"chat with {file.path}: the file has no chat template; use --raw to complete a text"
        )
    if len(template.encode()) > MAX_TEMPLATE_BYTES:
        raise _failure(file, f"it is longer than {MAX_TEMPLATE_BYTES} bytes")
    request = {"template": template, "messages": list(messages), "bos": bos, "eos": eos}
    try:
        child = subprocess.run(
            [sys.executable, "-P", str(_RENDERER)],
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _failure(file, f"it was not done after {_TIMEOUT_S:g} s") from None
    try:
        answer = json.loads(child.stdout)
    except ValueError:
        raise _failure(file, "it used more memory or time than it may") from None
    if "missing" in answer:
        raise UnsupportedError(
            f"chat with {file.path}: the package jinja2 is not installed; run"
            ' "pip install anyhal[llm]" or use --raw'
        )
    if "error" in answer:
        raise _failure(file, answer["error"])
    text: str = answer["text"]
    return text


def _failure(file: GgufFile, why: str) -> GgufError:
    why = " ".join(why.split())
    return GgufError(
        f"rendering the chat template of {file.path}: {why}; use --raw to complete a bare text"
    )
