"""The GGUF header reader: what it reads, and that every malformed file is one sentence.
SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import pickle
import random
import struct
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from gguf_writer import GgufWriter, text

from anyhal.errors import HalError
from anyhal.frontends.gguf.reader import MAX_STRINGS, GgufError, GgufFile, open_gguf


def small_writer() -> GgufWriter:
    writer = GgufWriter()
    writer.add("general.architecture", "str", "llama")
    for kind, value in (("u8", 255), ("i8", -1), ("u16", 65535), ("i16", -2), ("u32", 7)):
        writer.add(f"test.{kind}", kind, value)
    for kind, value in (("i32", -7), ("f32", 0.5), ("u64", 2**63), ("i64", -(2**62))):
        writer.add(f"test.{kind}", kind, value)
    writer.add("test.f64", "f64", 1e300).add("test.bool", "bool", 1)
    writer.add("test.words", "str[]", ["a", "", "né", "😀"]).add("test.empty", "str[]", [])
    writer.add("test.floats", "f32[]", [1.0, 2.0]).add("test.flags", "bool[]", [1, 0])
    writer.array("first", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.tensor("blocks", (2, 64), 3, bytes(range(80)))
    return writer


def parse(folder: Path, data: bytes) -> GgufFile:
    path = folder / "model.gguf"
    path.write_bytes(data)
    return open_gguf(path)


def refusal(folder: Path, data: bytes) -> str:
    with pytest.raises(GgufError) as caught:
        parse(folder, data)
    message = str(caught.value)
    assert "\n" not in message and "; " in message, message
    return message


def test_reads_every_value_type(tmp_path: Path) -> None:
    file = parse(tmp_path, small_writer().build())
    found = file.metadata
    assert found["general.architecture"] == "llama"
    assert [found[f"test.{k}"] for k in ("u8", "i8", "u16", "i16", "u32")] == [
        255,
        -1,
        65535,
        -2,
        7,
    ]
    assert (found["test.u64"], found["test.i64"], found["test.f64"]) == (2**63, -(2**62), 1e300)
    assert found["test.bool"] is True
    assert found["test.words"] == ["a", "", "né", "😀"]
    assert found["test.empty"] == []
    assert found["test.floats"].tolist() == [1.0, 2.0]
    assert found["test.flags"].tolist() == [True, False]


def test_reads_tensors_without_copying(tmp_path: Path) -> None:
    file = parse(tmp_path, small_writer().build())
    first, blocks = file.tensors["first"], file.tensors["blocks"]
    assert (first.shape, first.type.name, first.nbytes) == ((2, 3), "f32", 24)
    assert (blocks.shape, blocks.type.name, blocks.nbytes) == ((2, 64), "q4_1", 80)
    assert file.data("first").view(np.float32).tolist() == [0, 1, 2, 3, 4, 5]
    assert file.data("blocks").tobytes() == bytes(range(80))
    assert not file.data("blocks").flags.writeable
    assert not file.data("blocks").flags.owndata


def test_agrees_with_the_gguf_package(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
    path = tmp_path / "theirs.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 3)
    writer.add_array("tokenizer.ggml.tokens", ["<s>", "▁a"])
    writer.add_tensor("weight", np.arange(12, dtype=np.float32).reshape(3, 4))
    writer.add_tensor("half", np.ones((2, 2), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ours, theirs = open_gguf(path), gguf.GGUFReader(path)
    assert set(ours.tensors) == {each.name for each in theirs.tensors}
    for each in theirs.tensors:
        info = ours.tensors[each.name]
        assert info.offset == each.data_offset
        assert info.nbytes == each.n_bytes
        assert info.shape == tuple(int(extent) for extent in reversed(each.shape))
    for name, value in ours.metadata.items():
        assert theirs.fields[name].contents() == value


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    data = small_writer().build()
    for length in range(len(data)):
        refusal(tmp_path, data[:length])


def test_bit_flips_either_open_or_are_refused(tmp_path: Path) -> None:
    data = bytearray(small_writer().build())
    header = len(small_writer().header())
    outcomes = {"opened": 0, "refused": 0}
    tracemalloc.start()
    for position in range(header):
        for bit in (0, 3, 7):
            data[position] ^= 1 << bit
            try:
                parse(tmp_path, bytes(data))
                outcomes["opened"] += 1
            except GgufError:
                outcomes["refused"] += 1
            data[position] ^= 1 << bit
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert outcomes["refused"] > header, outcomes
    assert peak < 4 << 20, f"{peak} bytes were taken for a file of {len(data)}"


def test_huge_numbers_anywhere_are_refused_at_once(tmp_path: Path) -> None:
    data = small_writer().build()
    header = len(small_writer().header())
    begin = time.monotonic()
    tracemalloc.start()
    for position in range(4, header - 8):
        for number in (2**64 - 1, 2**63, 2**40, 2**32 - 1, 2**31):
            patched = data[:position] + struct.pack("<Q", number) + data[position + 8 :]
            try:
                parse(tmp_path, patched)
            except GgufError:
                pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20
    assert time.monotonic() - begin < 60


def test_random_bytes_after_the_magic_are_refused(tmp_path: Path) -> None:
    rng = random.Random(5)
    for version in (2, 3):
        for _ in range(200):
            body = rng.randbytes(rng.randrange(16, 400))
            refusal(tmp_path, b"GGUF" + struct.pack("<I", version) + body)


def test_many_strings_are_bounded(tmp_path: Path) -> None:
    # 33 MB of zero bytes are four million empty strings: legal lengths, absurd vocabulary.
    count = MAX_STRINGS + 1
    packed = struct.pack("<IIQ", 9, 8, count)
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("tokenizer.ggml.tokens") + packed
    path = tmp_path / "model.gguf"
    path.write_bytes(head)
    os.truncate(path, len(head) + 8 * count)
    with pytest.raises(GgufError, match=f"more than {MAX_STRINGS} strings"):
        open_gguf(path)


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"magic": b"GGML"}, "the magic"),
        ({"version": 1}, "version 1 is not 2 or 3"),
        ({"version": 0x03000000}, "big-endian"),
        ({"version": 4}, "version 4"),
    ],
)
def test_preamble(tmp_path: Path, patch: dict[str, object], words: str) -> None:
    writer = small_writer()
    for name, value in patch.items():
        setattr(writer, name, value)
    assert words in refusal(tmp_path, writer.build())


def test_version_2_reads(tmp_path: Path) -> None:
    writer = small_writer()
    writer.version = 2
    assert parse(tmp_path, writer.build()).version == 2


def test_bad_metadata(tmp_path: Path) -> None:
    assert "occurs twice" in refusal(tmp_path, small_writer().add("test.u8", "u8", 1).build())
    assert "is empty" in refusal(tmp_path, small_writer().add("", "u8", 1).build())
    assert "a bool holds 2" in refusal(tmp_path, small_writer().add("b", "bool", 2).build())
    assert "a bool holds 9" in refusal(tmp_path, small_writer().add("b", "bool[]", [1, 9]).build())
    assert "UTF-8" in refusal(tmp_path, small_writer().add("s", "str", b"\xff").build())
    assert "UTF-8" in refusal(tmp_path, small_writer().add("s", "str[]", [b"\xc3"]).build())
    assert "split over 2 files" in refusal(
        tmp_path, small_writer().add("split.count", "u16", 2).build()
    )
    writer = small_writer()
    writer.entries.append(("odd", struct.pack("<I", 13)))
    assert "value type 13 is unknown" in refusal(tmp_path, writer.build())
    writer.entries[-1] = ("odd", struct.pack("<IIQ", 9, 9, 1))
    assert "array of arrays" in refusal(tmp_path, writer.build())


@pytest.mark.parametrize("alignment", [0, 1, 12, 1 << 20, "32"])
def test_bad_alignment(tmp_path: Path, alignment: int | str) -> None:
    kind = "str" if isinstance(alignment, str) else "u32"
    data = small_writer().add("general.alignment", kind, alignment).build()
    assert "power of two" in refusal(tmp_path, data)


def test_other_alignment_reads(tmp_path: Path) -> None:
    writer = small_writer().add("general.alignment", "u32", 256)
    writer.alignment = 256
    file = parse(tmp_path, writer.build())
    assert file.tensors["blocks"].offset % 256 == 0
    assert file.data("blocks").tobytes() == bytes(range(80))


def test_bad_tensors(tmp_path: Path) -> None:
    cases = [
        (("first", (1,), 0, b"1234"), "occurs twice"),
        (("", (1,), 0, b"1234"), "is empty"),
        (("x" * 65, (1,), 0, b"1234"), "exceeds the limit of 64 bytes"),
        (("x", (), 0, b"1234"), "rank 0"),
        (("x", (1,) * 5, 0, b"1234"), "rank 5"),
        (("x", (4, 0), 0, b""), "is zero"),
        (("x", (1,), 77, b"1234"), "tensor type 77 is unknown"),
        (("x", (2, 33), 3, bytes(80)), "do not divide into q4_1 blocks of 32"),
        (("x", (2**32, 2**31), 0, b""), "leave the file"),
        (("x", (64,), 0, b"1234"), "its data ends at byte"),
        (("x", (1,), 0, b"1234", 33), "not a multiple of the alignment 32"),
        (("x", (1,), 0, b"1234", 0), "overlap"),
        (("x", (1,), 0, b"1234", 1 << 62), "leave the file"),
    ]
    for arguments, words in cases:
        message = refusal(tmp_path, small_writer().tensor(*arguments).build())  # type: ignore[arg-type]
        assert words in message, message


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    for path, words in (
        (tmp_path / "absent.gguf", "no such file"),
        (tmp_path, "not a regular file"),
        (Path("/dev/zero"), "not a regular file"),
    ):
        with pytest.raises(GgufError, match=words):
            open_gguf(path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(GgufError, match="not a regular file"):
        open_gguf(pipe)


def test_sec_01_a_pickle_is_never_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"

    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (os.mkdir, (str(marker),))

    for data in (pickle.dumps(Bomb()), b"GGUF" + pickle.dumps(Bomb())):
        with pytest.raises(HalError):
            parse(tmp_path, data + bytes(64))
    assert not marker.exists()
