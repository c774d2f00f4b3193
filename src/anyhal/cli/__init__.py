"""The command `anyhal`: one file of this folder per subcommand, imported when it is called.
SPDX-License-Identifier: Apache-2.0

Results go to stdout, everything else to stderr. A failure is one line on stderr and an exit status
other than 0: 1 a failure, a bad value included, 2 an unknown option or command or a missing
argument, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from anyhal.cli.terminal import encode_all, printable
from anyhal.errors import HalError, InvalidArgumentError

__all__ = ["main"]

COMMANDS = (
    "backend",
    "bench",
    "cache",
    "certificate",
    "certify",
    "check-backend",
    "config",
    "devices",
    "diff",
    "doctor",
    "explain",
    "new-backend",
    "report",
    "run",
)
FAILED, USAGE, INTERRUPTED = 1, 2, 130
_WRITE_FAILURES = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE, errno.EBADF}


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point: runs one command and leaves with its exit status."""
    status = _run(list(sys.argv[1:] if arguments is None else arguments))
    sys.exit(status)


class _Flags:
    """Help that shows no value after an option that takes none."""

    def get_params(self, ctx: Any) -> Any:
        found = super().get_params(ctx)  # type: ignore[misc]
        for option in found:
            if getattr(option, "is_flag", False):
                option.metavar = ""
        return found


class _Group(_Flags, TyperGroup):
    """The command itself."""


class _Command(_Flags, TyperCommand):
    """A command whose options, when they are given, say something."""

    def invoke(self, ctx: Any) -> Any:
        for option in self.params:
            # An empty text is a shell variable that was not set; taking it for "not given" would
            # run on another device than the one that was meant.
            value = ctx.params.get(option.name or "")
            if option.param_type_name == "option" and isinstance(value, str) and not value.strip():
                raise InvalidArgumentError(
                    f"reading the command line: {option.opts[0]} is empty; write its value, or"
                    f" leave {option.opts[0]} out"
                )
        return super().invoke(ctx)


def _app(arguments: Sequence[str]) -> typer.Typer:
    """The commands that the arguments may mean: the one they name, else all of them."""
    app = typer.Typer(
        cls=_Group,
        add_completion=False,
        no_args_is_help=True,
        context_settings={"max_content_width": 100},
    )
    app.callback()(_options)
    named = _named(arguments)
    for name in COMMANDS if named is None else (named,):
        file = file_of(name)
        app.command(name, cls=_Command)(getattr(import_module(f"{__name__}.{file}"), file))
    return app


def _named(arguments: Sequence[str]) -> str | None:
    return next((word for word in arguments if word in COMMANDS), None)


def file_of(command: str) -> str:
    """The file of a command, and the function in it."""
    return command.replace("-", "_")


def _print_version(wanted: bool) -> None:
    if wanted:
        from anyhal.cli.version import lines

        print("\n".join(map(printable, lines())))
        raise typer.Exit()


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the versions of core, contract and backends, then stop.",
        ),
    ] = False,
) -> None:
    """One application, any accelerator: run programs and language models on the devices found."""


def _run(arguments: list[str]) -> int:
    encode_all()
    try:
        status = _app(arguments)(args=arguments, prog_name="anyhal", standalone_mode=False)
        _flush()  # a full disk or a closed pipe shows here, not after the exit status
        if status == INTERRUPTED:  # newer Typers turn Ctrl-C into this status and say nothing
            _say("interrupted")
        return status if isinstance(status, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        _say("interrupted")
        return INTERRUPTED
    except OSError as error:
        if not _output_failed(error):
            _say(str(error))
        elif not isinstance(error, BrokenPipeError):  # else the reader has left, as readers do
            _say(
                f"writing the output: {(error.strerror or str(error)).lower()} on standard output;"
                " make room, or send the output elsewhere"
            )
        return FAILED
    except (HalError, MemoryError) as error:
        _say(str(error) or type(error).__name__)
        return FAILED
    except Exception as error:
        # Typer's own errors; their classes have moved between its releases, this method has not.
        if not hasattr(error, "format_message"):
            raise
        if arguments:
            command = " ".join(filter(None, ("anyhal", _named(arguments))))
            _say(f"{error.format_message().rstrip('.')}; see {command} --help")
        return USAGE


def _flush() -> None:
    if sys.stdout is not None:  # None: closed before we started
        sys.stdout.flush()


def _output_failed(error: OSError) -> bool:
    """Whether the error is that of a write to standard output; then nothing more goes there:
    Python would try once more at exit and print a traceback."""
    if error.filename is not None or error.errno not in _WRITE_FAILURES:
        return False  # a file that was opened has a name; the front ends type their own failures
    with contextlib.suppress(OSError, ValueError, AttributeError):  # it may be closed already
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # a full or closed stderr: the status still says it
        print("anyhal: " + printable(" ".join(text.split())), file=sys.stderr)
