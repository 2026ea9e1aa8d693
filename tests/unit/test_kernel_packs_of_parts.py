"""PTX that stays behind in the parts of a linked library, as the tool and the builder of packs take it."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from gpupool.client.errors import RuntimeMissingError
from gpupool.client.native import native_file
from gpupool.kernel_packs import build as building
from gpupool.kernel_packs.build import build_from_itself
from gpupool.kernel_packs.errors import PackError
from gpupool.kernel_packs.library import TOOL, FatBinary, Library, own_texts
from gpupool.kernel_packs.store import Store

PTX = ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry {name}(.param .u64 p) {{ ret; }}\n"


def _is_built() -> bool:
    try:
        return native_file(TOOL).is_file()
    except RuntimeMissingError:
        return False


pytestmark = pytest.mark.skipif(not _is_built(), reason="native parts not built")


def _fat_binary(*texts: tuple[int, str]) -> bytes:
    """Entries of PTX, each for an architecture."""
    entries = b""
    for architecture, text in texts:
        payload = text.encode() + b"\0"
        payload += bytes(-len(payload) % 8)
        header = struct.pack(
            "<HHIQIIIIIIQQQ", 1, 0x101, 64, len(payload), 0, 0, 0, architecture, 0, 0, 0, 0, 0
        )
        entries += header + payload
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries


def _library(path: Path, fat_binaries: Sequence[bytes]) -> Path:
    """A shared library of sections alone."""
    note = struct.pack("<III4s", 4, 8, 3, b"GNU\0") + bytes(range(8))
    names = b"\0.shstrtab\0__nv_relfatbin\0.note.gnu.build-id\0"
    contents = [b"", names, b"".join(fat_binaries), note]
    starts = [0, names.index(b".shstrtab"), names.index(b"__nv"), names.index(b".note")]
    body, sections = b"", b""
    for kind, name, content in zip((0, 3, 1, 7), starts, contents, strict=True):
        body += bytes(-len(body) % 8)
        sections += struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, 64 + len(body), len(content), 0, 0, 8, 0)
        body += content
    body += bytes(-len(body) % 8)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, 4, 1
    )
    path.write_bytes(header + body + sections)
    return path


def test_the_text_of_the_lowest_architecture_is_taken_from_each_part(tmp_path: Path) -> None:
    parts = [
        _fat_binary((90, PTX.format(name="one") + "// 90"), (80, PTX.format(name="one"))),
        _fat_binary(),
        _fat_binary((80, PTX.format(name="zwei") + "// größer")),
    ]
    library = _library(tmp_path / "libparts.so", parts)
    assert list(own_texts(library)) == [PTX.format(name="one"), PTX.format(name="zwei") + "// größer"]


def _linked(path: Path) -> Library:
    layout = ((0, 8),)
    linked = FatBinary(False, ("aa" * 32,), {"one": layout, "two": layout, "three": ((0, 4),)}, frozenset())
    part = FatBinary(True, (), {"one": layout}, frozenset())
    return Library(path, "0123456789abcdef", (part, linked))


def test_parts_become_one_file_for_the_machine_code_that_they_were_linked_to(tmp_path: Path) -> None:
    texts = ["one", "one", "three", "elsewhere"]
    library = _linked(
        _library(tmp_path / "libparts.so", [_fat_binary((80, PTX.format(name=name))) for name in texts])
    )
    store = Store(tmp_path / "packs")
    (outcome,) = build_from_itself("parts 1.0", library, store)
    built = outcome.built
    assert built is not None
    assert (built.kernels, built.absent, built.other_parameters) == (1, ("two",), ("three",))
    (pack,) = store.packs()
    assert building.verify(pack, store) == []
    assert (store.path(pack.build_id) / "index").read_text().splitlines()[1:] == [
        f"built {'aa' * 32} linked-1.kernels"
    ]


def test_texts_that_are_no_ptx_are_passed_over(tmp_path: Path) -> None:
    parts = [_fat_binary((80, "{ this is cut")), _fat_binary((80, PTX.format(name="one")))]
    library = _linked(_library(tmp_path / "libparts.so", parts))
    (outcome,) = build_from_itself("parts 1.0", library, Store(tmp_path / "packs"))
    assert outcome.built is not None and outcome.built.kernels == 1


def test_without_any_the_sources_are_asked_for_and_nothing_is_written(tmp_path: Path) -> None:
    library = _linked(_library(tmp_path / "libparts.so", [_fat_binary((80, PTX.format(name="elsewhere")))]))
    with pytest.raises(PackError, match="--file PATH"):
        list(build_from_itself("parts 1.0", library, Store(tmp_path / "packs")))
    assert not (tmp_path / "packs").exists()


def test_what_is_no_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\x7fELF nothing")
    with pytest.raises(PackError, match="not a shared library"):
        list(own_texts(tmp_path / "x"))
