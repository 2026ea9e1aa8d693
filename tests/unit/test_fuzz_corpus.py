"""The fuzz targets' kept inputs: an archive each."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src" / "fuzz"))
import corpus


@pytest.mark.parametrize("target", corpus.targets())
def test_every_archive_belongs_to_a_target_and_has_inputs(target: str) -> None:
    assert (corpus.CORPUS.parent / f"{target}.cpp").exists()
    assert corpus.read(target)


def test_every_target_has_an_archive() -> None:
    sources = corpus.CORPUS.parent.glob("*.cpp")
    entry = "LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {"
    assert sorted(path.stem for path in sources if entry in path.read_text()) == corpus.targets()


def test_the_same_inputs_make_the_same_archive(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    inputs = {"b": b"\0" * 1000, "a": b"", "seed-x": bytes(range(256))}
    corpus.write("target", inputs, one)
    corpus.write("target", dict(reversed(inputs.items())), two)
    assert corpus.archive_of("target", one).read_bytes() == corpus.archive_of("target", two).read_bytes()
    assert corpus.read("target", one) == inputs


def test_an_input_is_kept_once_under_the_name_that_says_most(tmp_path: Path) -> None:
    found = tmp_path / "found"
    found.mkdir()
    (found / "crash-a9993e364706816aba3e25717850c26c9cd0d89d").write_bytes(b"abc")
    (found / "copy").write_bytes(b"abc")
    (found / "empty-table").write_bytes(b"def")
    assert corpus.add("target", [found], tmp_path) == 2
    assert corpus.read("target", tmp_path) == {"copy": b"abc", "empty-table": b"def"}
    assert corpus.add("target", [found / "copy"], tmp_path) == 0
    (found / "copy").write_bytes(b"more")
    assert corpus.add("target", [found / "copy"], tmp_path) == 1
    assert sorted(corpus.read("target", tmp_path).values()) == [b"abc", b"def", b"more"]
    named = tmp_path / "a9993e364706816aba3e25717850c26c9cd0d89d"
    named.write_bytes(b"abc")
    assert corpus.add("other", [named], tmp_path) == 1
    assert list(corpus.read("other", tmp_path)) == ["a9993e364706816a"]


def test_what_is_unpacked_replaces_what_lay_there(tmp_path: Path) -> None:
    stale = tmp_path / "turn_file" / "stale"
    stale.parent.mkdir()
    stale.write_bytes(b"")
    corpus.unpack(tmp_path, ["turn_file"])
    assert {path.name: path.read_bytes() for path in stale.parent.iterdir()} == corpus.read("turn_file")
