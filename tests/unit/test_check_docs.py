"""What `make lint` finds wrong in the documentation."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from gpupool.cli.main import app

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_docs", ROOT / ".ci" / "check_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_docs"] = module
    spec.loader.exec_module(module)
    return module


def page(docs: ModuleType, folder: Path, text: str, name: str = "page.md") -> Any:
    path = folder / name
    path.write_text(text)
    return docs.Page.read(path)


def links(docs: ModuleType, *pages: Any) -> list[str]:
    return list(docs.broken_links(pages[0], {one.path: one for one in pages}))


def commands(docs: ModuleType, one: Any) -> list[str]:
    return list(docs.wrong_commands(one, typer.main.get_command(app), {"lab", "test"}))


def test_a_link_to_a_heading_is_spelled_as_the_forge_spells_it(docs: ModuleType, tmp_path: Path) -> None:
    other = page(docs, tmp_path, "# Why you wait: `%gpu`, 2 ways\n", "other.md")
    good = page(docs, tmp_path, "[a](other.md#why-you-wait-gpu-2-ways) [b](https://example.org/nothing#x)\n")
    assert links(docs, good, other) == []


def test_a_link_to_nothing_names_its_line_and_target(docs: ModuleType, tmp_path: Path) -> None:
    other = page(docs, tmp_path, "# Here\n", "other.md")
    bad = page(docs, tmp_path, "# Top\n\n[a](gone.md)\n[b](other.md#there)\n[c](#top)\n[d](#bottom)\n")
    assert links(docs, bad, other) == [
        "3: there is no file gone.md",
        "4: other.md has no heading there",
        "6: page.md has no heading bottom",
    ]


@pytest.mark.parametrize(
    ("target", "travels"),
    [
        ("other.ipynb", True),
        ("https://example.org/page.md", True),
        ("#walls", True),
        ("gone.ipynb", False),
        ("../docs/page.md", False),
    ],
)
def test_a_link_of_an_example_leads_to_another_example(
    docs: ModuleType, tmp_path: Path, target: str, travels: bool
) -> None:
    folder = tmp_path / "examples"
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").touch()
    folder.mkdir()
    (folder / "other.ipynb").touch()
    cell = {"cell_type": "markdown", "id": "one", "source": ["See\n", f"[it]({target})."]}
    notebook = folder / "one.ipynb"
    notebook.write_text(json.dumps({"cells": [cell]}))
    assert (list(docs.links_that_do_not_travel(notebook)) == []) == travels


def test_brackets_in_code_are_no_links(docs: ModuleType, tmp_path: Path) -> None:
    assert links(docs, page(docs, tmp_path, "`kernels[i](gone.md)`\n```\n[a](gone.md)\n```\n")) == []


@pytest.mark.parametrize(
    "line",
    [
        "gpupool run -p 0.2 -- python train.py --any-option",
        "sudo gpupool pool serve --notice 2m | tee log",
        "GPUPOOL_HOME=/x gpupool project set research/vision --deserved 4",
        "`gpupool` is a command",
        "make lab",
    ],
)
def test_commands_that_exist_are_no_mistake(docs: ModuleType, tmp_path: Path, line: str) -> None:
    assert commands(docs, page(docs, tmp_path, f"```\n{line}\n```\n")) == []


@pytest.mark.parametrize(
    ("line", "mistake"),
    [
        ("gpupool fly", "2: there is no command `gpupool fly`"),
        ("gpupool project paint x", "2: there is no command `gpupool project paint`"),
        ("gpupool run --wings 2 -- true", "2: `gpupool run` has no option --wings"),
        ("make tea", "2: there is no target `make tea`"),
    ],
)
def test_commands_that_do_not_exist_are_named(
    docs: ModuleType, tmp_path: Path, line: str, mistake: str
) -> None:
    assert commands(docs, page(docs, tmp_path, f"```\n{line}\n```\n")) == [mistake]


def test_an_option_that_the_magic_does_not_have_is_named(docs: ModuleType, tmp_path: Path) -> None:
    one = page(docs, tmp_path, "`%%gpu 0.2 --hold` and `%%gpu 0.2 --wings`\n")
    assert list(docs.wrong_magics(one, {"--hold"})) == ["1: %%gpu has no option --wings"]


def test_settings_without_a_row_and_rows_without_a_setting_are_named(
    docs: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "tests").mkdir()
    for name in ("settings.cpp", "memory_test.cpp", "tests/main.cpp"):
        (tmp_path / name).write_text(
            f'getenv("GPUPOOL_SOFTGPU_{name[:3].upper()}"); say("GPUPOOL_SOFTGPU_X=0");'
        )
    (tmp_path / "jit.h").write_text('text_of("GPUPOOL_SOFTGPU_JIT")')
    read = docs.settings_read(tmp_path)
    assert read == {"GPUPOOL_SOFTGPU_SET", "GPUPOOL_SOFTGPU_JIT"}
    one = page(
        docs,
        tmp_path,
        "`GPUPOOL_SOFTGPU_SET` in a text\n| `GPUPOOL_SOFTGPU_JIT` | on |\n| `GPUPOOL_SOFTGPU_OLD` | |\n",
    )
    assert list(docs.wrong_settings(one, read)) == [
        "1: the table of settings lacks GPUPOOL_SOFTGPU_SET",
        "3: nothing reads GPUPOOL_SOFTGPU_OLD",
    ]
