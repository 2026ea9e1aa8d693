"""Every block of a guide is run, or says why not; settings and files of other languages can be read."""

from __future__ import annotations

import ast
import configparser
import json
import re
from pathlib import Path
from typing import Any

import gpupool
import jsonschema
import pytest
import yaml
from gpupool.providers import settings
from gpupool.providers.kinds import KINDS, Place
from traitlets.config import Config

from jupyter_gpupool.server.extension import GpuPoolExtension
from tests.documentation.blocks import Block, all_blocks, blocks_of, guides, is_cell, is_configuration
from tests.documentation.not_run import NOT_RUN, NOTHING_TO_RUN
from tests.support.pool_node import ROOT

#: Blocks to read: what a program prints, and files.
_TO_READ = {"text", "json", "yaml", "ini", "toml", "mermaid"}


def those(language: str) -> list[Any]:
    return [pytest.param(block, id=str(block)) for block in all_blocks() if block.language == language]


def test_blocks_within_lists_are_found_without_their_indentation() -> None:
    text = "1. One:\n\n   ```sh\n   ls\n     more\n   ```\n\n```python\nx = 1\n```\n"
    found = [(block.line, block.language, block.text) for block in blocks_of(text, "page.md")]
    assert found == [(3, "sh", "ls\n  more"), (8, "python", "x = 1")]


def test_every_block_names_a_language_that_a_test_knows() -> None:
    known = {"sh", "console", "python"} | _TO_READ
    assert [f"{block}: {block.language!r}" for block in all_blocks() if block.language not in known] == []


def test_blocks_that_are_not_run_say_why_and_no_reason_is_left_over() -> None:
    reasons = [(page, start) for page, starts in NOT_RUN.items() for start in starts]
    found = []
    for block in (block for block in all_blocks() if block.language == "console"):
        fitting = [
            (page, start)
            for page, start in reasons
            if page == block.page and block.text.startswith(start) and NOT_RUN[page][start]
        ]
        assert fitting, f"{block}: run it (`sh`), or say in not_run.py why not: {block.first_line}"
        found.append(max(fitting, key=lambda one: len(one[1])))
    assert sorted(found) == sorted(reasons)


def test_every_guide_runs_something_or_says_why_not() -> None:
    running = {block.page for block in all_blocks() if block.language == "sh" or is_cell(block)}
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in guides()}
    assert pages - running == NOTHING_TO_RUN.keys()


@pytest.mark.parametrize(
    "block", [pytest.param(block, id=str(block)) for block in all_blocks() if is_configuration(block)]
)
def test_settings_exist_and_take_these_values(block: Block) -> None:
    config = Config()
    exec(compile(ast.parse(block.text), str(block), "exec"), {"c": config})
    for name, value in config.get("GpuPoolExtension", {}).items():
        trait = GpuPoolExtension.class_traits(config=True)[name]
        trait._validate(GpuPoolExtension(), value)


@pytest.mark.parametrize("block", those("json"))
def test_json_can_be_read(block: Block) -> None:
    json.loads(block.text)


@pytest.mark.parametrize("block", those("yaml"))
def test_yaml_can_be_read(block: Block) -> None:
    assert yaml.safe_load(block.text)


@pytest.mark.parametrize("block", those("toml"))
def test_files_of_providers_are_understood(block: Block, tmp_path: Path) -> None:
    """Every TOML of the guides is one."""
    file = tmp_path / "providers.toml"
    file.write_text(block.text)
    place = Place(tmp_path, "unix:/pool.sock", "pool", "tls:login1:7460")
    made = tmp_path / "node.token"  # by the pool
    assert [one.open(place, made if one.needs_token(place) else None) for one in settings.read(file)]


def test_every_setting_of_kubernetes_is_in_its_guide() -> None:
    page = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text()
    assert [key for key in KINDS["kubernetes"].keys if not re.search(rf"\b{key}\b", page)] == []


def test_values_of_the_chart_are_those_that_it_takes() -> None:
    schema = json.loads((ROOT / "containers" / "helm" / "gpupool" / "values.schema.json").read_text())
    blocks = [block for block in all_blocks() if block.text.startswith("# gpupool chart")]
    assert blocks
    for block in blocks:
        jsonschema.validate(yaml.safe_load(block.text), schema)


@pytest.mark.parametrize("block", those("ini"))
def test_units_have_their_sections_and_an_absolute_program(block: Block) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(block.text)
    assert {"Unit", "Service", "Install"} <= set(unit.sections())
    assert unit["Service"]["ExecStart"].startswith("/opt/gpupool/bin/gpupool ")
    # A target that a unit only names in After= isn't started for it, and systemd gives up after five failures at once.
    assert unit["Unit"]["Wants"] == unit["Unit"]["After"] == "network-online.target"
    assert int(unit["Service"]["RestartSec"]) > 2
    page = (ROOT / "docs" / block.page).read_text()
    name = block.first_line.removeprefix("# /etc/systemd/system/").removesuffix(".service")
    assert f"systemctl enable --now {name}\n" in page


def test_the_python_api_names_all_that_the_package_exports() -> None:
    page = (ROOT / "docs" / "reference" / "python-api.md").read_text()
    named = set(re.findall(r"^\.\. auto\w+:: gpupool\.(\w+)$", page, re.MULTILINE))
    assert named == set(gpupool.__all__)
