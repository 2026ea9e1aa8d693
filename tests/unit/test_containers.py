"""The container recipes name commands, options and extras that exist, and the chart is of the same version."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from gpupool.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted((ROOT / "containers").glob("*.Dockerfile"))


def test_there_are_three() -> None:
    assert [path.stem for path in RECIPES] == ["node", "pool", "singleuser"]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_what_is_installed_exists(recipe: Path) -> None:
    extras = re.search(r"\*\.whl\)\[([a-z0-9,]+)\]", recipe.read_text())
    assert extras is not None
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras[1].split(",")) <= set(known)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_what_is_run_exists(recipe: Path) -> None:
    text = recipe.read_text()
    command = re.search(r"^CMD (\[.+\])$", text, re.MULTILINE)
    assert command is not None
    words = json.loads(command[1])
    if 'ENTRYPOINT ["gpupool"]' not in text:
        assert words[:2] == ["jupyter", "lab"]
        return
    one: Any = typer.main.get_command(app)
    while words and words[0] in getattr(one, "commands", {}):
        one = one.commands[words.pop(0)]
    assert not hasattr(one, "commands"), words
    options = {name for parameter in one.params for name in parameter.opts} | {"--help"}
    assert {word for word in words if word.startswith("--")} <= options


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_it_runs_as_a_user_without_rights(recipe: Path) -> None:
    users = re.findall(r"^USER (\w+)$", recipe.read_text(), re.MULTILINE)
    assert users
    assert users[-1] != "root"


def test_the_chart_is_of_this_version() -> None:
    version = json.loads((ROOT / "package.json").read_text())["version"]
    chart = yaml.safe_load((ROOT / "containers" / "helm" / "gpupool" / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    users = yaml.safe_load((ROOT / "containers" / "helm" / "jupyterhub.yaml").read_text())["singleuser"]
    assert users["image"]["tag"] == version


def test_every_value_of_the_chart_is_described() -> None:
    """values.yaml says so."""

    def bare(schema: dict[str, Any], path: str) -> list[str]:
        members = schema.get("properties")
        if members is None:
            return [] if schema.get("description") else [path]
        return [name for key, value in members.items() for name in bare(value, f"{path}.{key}")]

    schema = json.loads((ROOT / "containers" / "helm" / "gpupool" / "values.schema.json").read_text())
    assert bare(schema, "") == []


def test_the_charts_notes_ask_for_nothing_that_its_network_policy_closes() -> None:
    """Only nodes and clients reach the ports of nodes. The pool's pod, in which the notes run commands, is neither."""
    notes = (ROOT / "containers/helm/gpupool/templates/NOTES.txt").read_text()
    measuring = re.findall(r"gpupool (?:health|node netperf)\b.*", notes)
    assert measuring and all("--no-network" in command for command in measuring)
