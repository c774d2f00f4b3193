"""The command line's frame: one line on stderr per failure, exit status, nothing on stdout.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from anyhal.cli import devices
from anyhal.routing.facts import DeviceFact, Facts, RefusedBackend


def anyhal(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from anyhal.cli import main; main(sys.argv[1:])"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["devics"], "Did you mean 'devices'"),
        (["explain"], "Missing argument"),
        (["devices", "--jsn"], "--jsn"),
        (["devices", "extra"], "unexpected extra argument"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_and_exit_2(
    arguments: list[str], words: str
) -> None:
    done = anyhal(*arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("anyhal: ") and done.stderr.count("\n") == 1
    assert words in done.stderr and "anyhal --help" in done.stderr


def test_no_arguments_show_the_commands() -> None:
    done = anyhal()
    assert done.returncode == 2
    for command in ("devices", "explain", "run"):
        assert command in done.stdout + done.stderr


def test_one_command_does_not_import_the_others() -> None:
    code = (
        "import sys; from anyhal import cli; cli._app(['devices']);"
        "print([m for m in sys.modules if m.startswith('anyhal.cli.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['anyhal.cli.devices']"


FACTS = Facts(
    (DeviceFact("chip:0", "chip", 50, "self-tested", "id-1", "v1", memory_bytes=2**30),),
    (RefusedBackend("other", "/opt/other", "manifest", "key vendor is missing; add it"),),
    ("/opt (a test)",),
)


def test_devices_json_has_the_promised_keys() -> None:
    document = json.loads(json.dumps(devices._document(FACTS, {})))
    assert document["schema"] == 1
    assert document["devices"] == [
        {
            "name": "chip:0",
            "backend": "chip",
            "identity": "id-1",
            "arch": "v1",
            "memory_bytes": 2**30,
            "memory_kinds": [],
            "state": "self-tested",
            "own_threads": 0,
        }
    ]
    assert document["refused"][0]["sentence"] == "key vendor is missing; add it"


def test_devices_table_shows_order_refusals_and_an_empty_machine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    devices._print_devices(FACTS)
    shown = " ".join(capsys.readouterr().out.split())
    assert "chip:0 self-tested v1 1.0 GiB chosen: the only device" in shown
    assert "refused: key vendor is missing; add it" in shown
    devices._print_devices(Facts(searched=("/opt (a test)",)))
    assert "no device; searched /opt (a test)" in capsys.readouterr().out


def test_a_closed_stdout_is_no_traceback() -> None:
    code = "import sys; from anyhal.cli import main; main(['devices', '--json'])"
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" >&-', sys.executable, code],
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    assert "Traceback" not in done.stderr
