"""`anyhal run`: a language model from a GGUF file, on one device or on every device found.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anyhal.cli.terminal import printable
from anyhal.errors import HalError, InvalidArgumentError

if TYPE_CHECKING:
    from anyhal.frontends.gguf.generate import Generation
    from anyhal.frontends.gguf.reader import GgufFile
    from anyhal.frontends.gguf.tokenizer import Tokenizer
    from anyhal.routing.policy import Ranked

SCHEMA = 1
_CHAT_CAPACITY = 4096
# What makes two routes of a run different.
_ROUTE = ("op", "backend", "device", "state", "decomposed", "numerics")


@dataclass(frozen=True, slots=True)
class Options:
    """The command line of one run."""

    model: str
    prompt: str | None
    raw: bool
    chat: bool
    device: str | None
    every_device: bool
    max_tokens: int
    temperature: float
    seed: int
    fallback: str | None
    numerics: str | None
    report: bool
    json: bool

    def check(self) -> None:
        """Refuses combinations that contradict each other."""
        clashes = (
            (self.chat and self.json, "--chat talks to a person and --json to a program"),
            (self.chat and self.raw, "--chat needs the template that --raw leaves out"),
            (self.chat and self.every_device, "--chat runs on one device"),
            (
                self.device is not None and self.every_device,
                "--every-device already names all devices",
            ),
        )
        for clash, why in clashes:
            if clash:
                raise InvalidArgumentError(f"reading the command line: {why}; leave one out")
        if not self.model.strip():
            raise InvalidArgumentError(
                "reading the command line: the model's name is empty; write a model's name or a"
                " .gguf file"
            )
        if not self.chat and not self.prompt:
            raise InvalidArgumentError(
                "reading the command line: there is no prompt; write one after the model or use"
                " --chat"
            )
        if self.max_tokens < 1:
            raise InvalidArgumentError(
                f"reading the command line: --max-tokens is {self.max_tokens}; use 1 or more"
            )


def run(
    model: Annotated[str, typer.Argument(help="A model's name (smollm2) or a .gguf file.")],
    prompt: Annotated[
        str | None, typer.Argument(help="What to ask, or with --raw to go on.")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Complete the bare prompt.")] = False,
    chat: Annotated[bool, typer.Option("--chat", help="Talk until end of input.")] = False,
    device: Annotated[str | None, typer.Option(help="Where to run, such as cpu:0.")] = None,
    every_device: Annotated[
        bool, typer.Option("--every-device", help="Run on each device found and compare.")
    ] = False,
    max_tokens: Annotated[int, typer.Option(help="The most tokens to write.")] = 256,
    temperature: Annotated[float, typer.Option(help="0 takes the most likely token.")] = 0.0,
    seed: Annotated[int, typer.Option(help="The seed of the choice above temperature 0.")] = 0,
    fallback: Annotated[str | None, typer.Option(help="never, decompose or any.")] = None,
    numerics: Annotated[str | None, typer.Option(help="The numeric contract.")] = None,
    report: Annotated[
        bool, typer.Option("--report", help="Show each op's routes and times.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Run a language model and say which device did what."""
    options = Options(
        model,
        prompt,
        raw,
        chat,
        device,
        every_device,
        max_tokens,
        temperature,
        seed,
        fallback,
        numerics,
        report,
        json_,
    )
    _run(options)


@dataclass(frozen=True, slots=True)
class _Program:
    """What is the same on every device: the file, its tokenizer and the prompt."""

    options: Options
    file: GgufFile
    tokenizer: Tokenizer
    prompt: list[int]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One program on one device."""

    device: str
    simulated: bool
    generation: Generation
    routes: list[dict[str, Any]]


def _run(options: Options) -> None:
    import anyhal as hal

    options.check()
    rss_after_import = _memory_bytes("VmRSS")
    from anyhal.cli import run_tables
    from anyhal.frontends.gguf.fetch import locate_model
    from anyhal.frontends.gguf.generate import Sampler
    from anyhal.frontends.gguf.reader import open_gguf
    from anyhal.frontends.gguf.tokenizer import Tokenizer
    from anyhal.routing.policy import rank_devices
    from anyhal.runtime.device import facts as known_devices

    # A wrong option should not cost a download first.
    places = rank_devices(known_devices())
    device = None if options.every_device else _pick(options)
    Sampler(options.temperature, options.seed)
    scope = hal.use(fallback=options.fallback, numerics=options.numerics)
    with run_tables.fetch_progress() as progress:
        file = open_gguf(locate_model(options.model, progress))
    tokenizer = Tokenizer(file)
    program = _Program(options, file, tokenizer, _prompt_ids(options, file, tokenizer))
    with scope:
        if options.chat:
            _chat(program, device)
        elif options.every_device:
            _run_everywhere(program, places, rss_after_import)
        else:
            _run_once(program, device, rss_after_import)


def _pick(options: Options) -> Any:
    import anyhal as hal

    return hal.device(options.device)


def _prompt_ids(options: Options, file: GgufFile, tokenizer: Tokenizer) -> list[int]:
    if options.prompt is None:
        return []
    if options.raw:
        ids = tokenizer.encode(options.prompt)
    else:
        ids = _chat_ids(file, tokenizer, [{"role": "user", "content": options.prompt}])
    if not ids:
        raise InvalidArgumentError("encoding the prompt: it gives no tokens; write some text")
    return ids


def _chat_ids(file: GgufFile, tokenizer: Tokenizer, messages: list[dict[str, str]]) -> list[int]:
    from anyhal.frontends.gguf.chat import render_chat

    def text(token: int | None) -> str:
        return "" if token is None else tokenizer.tokens[token]

    rendered = render_chat(file, messages, bos=text(tokenizer.bos), eos=text(tokenizer.eos))
    return tokenizer.encode(rendered, parse_special=True)


def _execute(program: _Program, device: Any, on_text: Callable[[str], Any]) -> Outcome:
    import anyhal as hal
    from anyhal.frontends.gguf.generate import Sampler, generate
    from anyhal.frontends.gguf.llama import LlamaModel
    from anyhal.frontends.gguf.session import Session

    options = program.options
    sampler = Sampler(options.temperature, options.seed)
    # Receipts put times into the routes; two clock readings for each call are lost in the noise.
    with hal.use(device=device, receipts=True):
        before = _route_counts()
        model = LlamaModel(program.file, device)
        capacity = len(program.prompt) + options.max_tokens
        if len(program.prompt) < model.config.context:
            capacity = min(capacity, model.config.context)
        generation = generate(
            Session(model, capacity),
            program.tokenizer,
            program.prompt,
            max_tokens=options.max_tokens,
            sampler=sampler,
            on_text=on_text,
        )
        routes = _routes_since(before)
    return Outcome(device.name, device.fact.simulated, generation, routes)


def _route_counts() -> dict[tuple[object, ...], tuple[int, float]]:
    import anyhal as hal

    return {_route_key(row): (row["calls"], row["time_ms"] or 0.0) for row in hal.routes()}


def _route_key(row: dict[str, Any]) -> tuple[object, ...]:
    return tuple(row[name] for name in _ROUTE)


def _routes_since(
    before: dict[tuple[object, ...], tuple[int, float]],
) -> list[dict[str, Any]]:
    """The routes that this run used, one row per op and route."""
    import anyhal as hal

    totals: dict[tuple[object, ...], list[float]] = {}
    for row in hal.routes():
        total = totals.setdefault(_route_key(row), [0, 0.0])
        total[0] += row["calls"]
        total[1] += row["time_ms"] or 0.0
    rows = []
    for key, (calls, time_ms) in totals.items():
        calls_before, time_before = before.get(key, (0, 0.0))
        if calls > calls_before:
            took = round(time_ms - time_before, 3) if time_ms > time_before else None
            rows.append(
                {
                    **dict(zip(_ROUTE, key, strict=True)),
                    "calls": int(calls - calls_before),
                    "time_ms": took,
                }
            )
    return sorted(rows, key=lambda row: -(row["time_ms"] or 0.0))


def _run_once(program: _Program, device: Any, rss_after_import: int) -> None:
    from anyhal.cli import run_tables

    options = program.options
    outcome = _execute(program, device, _ignore if options.json else _write)
    if options.json:
        _print_json(_document(program, outcome, rss_after_import))
    else:
        _write("\n")
        run_tables.who_ran_what(outcome)
    if options.report:
        run_tables.routes_by_op(outcome)


def _document(program: _Program, outcome: Outcome, rss_after_import: int) -> dict[str, Any]:
    generation = asdict(outcome.generation)
    if outcome.simulated:
        generation |= dict.fromkeys(("prefill_tokens_per_s", "decode_tokens_per_s"))
    return {
        "schema": SCHEMA,
        "model": program.options.model,
        "device": outcome.device,
        "simulated": outcome.simulated,
        "prompt_token_ids": program.prompt,
        **generation,
        "rss_after_import_bytes": rss_after_import,
        "peak_rss_bytes": _memory_bytes("VmHWM"),
        "routes": outcome.routes,
    }


def _run_everywhere(program: _Program, places: list[Ranked], rss_after_import: int) -> None:
    """Best device first; one that fails is a row of the table and the exit status."""
    import anyhal as hal
    from anyhal.cli import run_tables

    options = program.options
    rows: list[run_tables.DeviceRow] = []
    runs: list[dict[str, Any]] = []
    first: list[int] | None = None
    for number, place in enumerate(places, 1):
        if sys.stderr.isatty():
            print(f"{place.device.name} ({number} of {len(places)}) ...", file=sys.stderr)
        # The text is printed once: while the first device that gets it done writes it.
        on_text = _write if first is None and not options.json else _ignore
        about = {
            "device": place.device.name,
            "backend": place.device.backend,
            "state": place.device.state,
            "why": place.reason,
        }
        try:
            outcome = _execute(program, hal.device(place.device.name), on_text)
        except HalError as error:
            rows.append(run_tables.DeviceRow.failed(place, error))
            runs.append({**about, "simulated": place.device.simulated, "error": str(error)})
            continue
        if on_text is _write:
            _write("\n")
        first = first if first is not None else outcome.generation.token_ids
        identical = outcome.generation.token_ids == first
        rows.append(run_tables.DeviceRow.done(place, outcome, identical, on_text is _write))
        document = _document(program, outcome, rss_after_import)
        runs.append({**document, **about, "tokens_identical": identical})
        if options.report:
            run_tables.routes_by_op(outcome)
    if options.json:
        _print_json({"schema": SCHEMA, "model": options.model, "runs": runs})
    else:
        run_tables.every_device(rows)
    if not runs or any("error" in each for each in runs):
        raise typer.Exit(1)


def _chat(program: _Program, device: Any) -> None:
    import anyhal as hal
    from anyhal.frontends.gguf.generate import Sampler, generate
    from anyhal.frontends.gguf.llama import LlamaModel
    from anyhal.frontends.gguf.session import Session

    options = program.options
    sampler = Sampler(options.temperature, options.seed)
    messages: list[dict[str, str]] = []
    with hal.use(device=device):
        model = LlamaModel(program.file, device)
        session = Session(model, min(model.config.context, _CHAT_CAPACITY))
        for said in _turns(options.prompt):
            messages.append({"role": "user", "content": said})
            prompt = _chat_ids(program.file, program.tokenizer, messages)
            room = session.capacity - len(prompt)
            if room < 1:
                raise InvalidArgumentError(
                    f"chatting: the conversation needs {len(prompt)} tokens and its memory holds"
                    f" {session.capacity}; start a new one"
                )
            answer = generate(
                session,
                program.tokenizer,
                session.resume(prompt),
                max_tokens=min(options.max_tokens, room),
                sampler=sampler,
                on_text=_write,
            )
            _write("\n")
            messages.append({"role": "assistant", "content": answer.text})


def _turns(first: str | None) -> Iterator[str]:
    """What the person says, line by line, until the end of input."""
    if first:
        yield first
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401 - gives input() line editing
    while True:
        try:
            line = input("> " if sys.stdin.isatty() else "")
        except EOFError:
            return
        if line.strip():
            yield line


_JOINERS = "\u200c\u200d"  # of letters and emoji: text, not control


def _write(text: str) -> None:
    # A model may write what drives a terminal.
    sys.stdout.write(printable(text, keep="\n\t" + _JOINERS))
    sys.stdout.flush()


def _ignore(text: str) -> None:
    pass


def _print_json(document: dict[str, Any]) -> None:
    # ASCII only: whatever reads it need not guess the encoding.
    print(json.dumps(document, allow_nan=False))


def _memory_bytes(field: str) -> int:
    """VmRSS (now) or VmHWM (the peak) of this process, from the kernel."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0
