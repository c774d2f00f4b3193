"""Chat templates: rendered as written, and harmless whatever they contain.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gguf_writer import GgufWriter

from anyhal.errors import HalError, UnsupportedError
from anyhal.frontends.gguf import chat
from anyhal.frontends.gguf.reader import GgufFile, open_gguf

pytest.importorskip("jinja2", reason="the extra llm is not installed")

CHATML = (
    "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\\n' + m.content + '<|im_end|>\\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{'<|im_start|>assistant\\n'}}{% endif %}"
)
DOUBLING = (
    "{% set ns = namespace(s='xy') %}"
    "{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"
)
HELLO = [{"role": "user", "content": "Hello {{ 7*7 }} 😀"}]


def file_with(folder: Path, template: str | None) -> GgufFile:
    writer = GgufWriter()
    if template is not None:
        writer.add("tokenizer.chat_template", "str", template)
    path = folder / "chat.gguf"
    path.write_bytes(writer.build())
    return open_gguf(path)


def render(folder: Path, template: str, **names: Any) -> str:
    return chat.render_chat(file_with(folder, template), HELLO, **names)


def failure(folder: Path, template: str) -> str:
    with pytest.raises(HalError) as caught:
        render(folder, template)
    message = str(caught.value)
    assert "\n" not in message and "--raw" in message
    return message


def test_renders_a_conversation(tmp_path: Path) -> None:
    expected = "<|im_start|>user\nHello {{ 7*7 }} 😀<|im_end|>\n<|im_start|>assistant\n"
    assert render(tmp_path, CHATML) == expected


def test_what_templates_expect_to_find(tmp_path: Path) -> None:
    assert render(tmp_path, "{{ bos_token }}|{{ eos_token }}", bos="<s>", eos="</s>") == "<s>|</s>"
    assert render(tmp_path, "{{ messages | tojson }}") == (
        '[{"role": "user", "content": "Hello {{ 7*7 }} 😀"}]'
    )
    assert len(render(tmp_path, "{{ strftime_now('%Y') }}")) == 4
    assert render(tmp_path, "{% set ns = namespace(n=1) %}{% set ns.n = 2 %}{{ ns.n }}") == "2"
    assert render(tmp_path, "  {% if true %}\nx\n  {% endif %}\ny") == "x\ny"


def test_a_template_may_refuse(tmp_path: Path) -> None:
    assert "roles must alternate" in failure(
        tmp_path, "{{ raise_exception('roles must\nalternate') }}"
    )


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{% for %}", "TemplateSyntaxError"),
        ("{{ absent.field }}", "UndefinedError"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "SecurityError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{% for i in range(99999999) %}x{% endfor %}", "OverflowError"),
        ("{% for i in range(99999) %}{{ 'x' * 999 }}{% endfor %}", "characters"),
        ("{{ 'x' * 10000000000 }}", "MB of memory"),
        ("{{ '%10000000000d' % 1 }}", "rendering the chat template"),
        (DOUBLING, "MB of memory"),
    ],
)  # fmt: skip
def test_sec_01_a_template_can_only_fail(tmp_path: Path, template: str, words: str) -> None:
    assert words in failure(tmp_path, template)


def test_sec_01_a_template_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "_TIMEOUT_S", 1.0)
    loop = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    assert "not done after 1 s" in failure(tmp_path, loop)


def test_limits_of_our_own_process_stay(tmp_path: Path) -> None:
    def tighten() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))

    request = {"template": "{{ bos_token }}", "messages": [], "bos": "<s>", "eos": ""}
    child = subprocess.run(
        [sys.executable, str(chat._RENDERER)],
        input=json.dumps(request).encode(),
        capture_output=True,
        preexec_fn=tighten,
        check=True,
    )
    assert json.loads(child.stdout) == {"text": "<s>"}


def test_a_file_without_a_template(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="no chat template"):
        chat.render_chat(file_with(tmp_path, None), HELLO)


def test_a_template_of_absurd_length(tmp_path: Path) -> None:
    assert "longer than" in failure(tmp_path, "x" * (chat.MAX_TEMPLATE_BYTES + 1))
