"""The workflow and the templates that a forge reads: they can be read, and name what there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
FORGE = ROOT / ".github"


def workflow(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((FORGE / "workflows" / name).read_text()))


def test_the_workflow_runs_what_everybody_runs() -> None:
    steps = [step.get("run", "") for job in workflow("test.yml")["jobs"].values() for step in job["steps"]]
    assert "make test" in steps
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {word for step in steps for word in re.findall(r"make ([a-z-]+)", step)} <= targets
    for script in re.findall(r"(?:bash|sh) (\S+)", " ".join(steps)):
        assert (ROOT / script).is_file(), script


def test_the_workflow_may_only_read() -> None:
    assert workflow("test.yml")["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("path", sorted((FORGE / "ISSUE_TEMPLATE").glob("*.md")), ids=lambda path: path.name)
def test_a_template_has_a_name_and_says_what_it_is_for(path: Path) -> None:
    head = yaml.safe_load(path.read_text().split("---")[1])
    assert head["name"] and head["about"]


def test_weaknesses_go_to_the_private_place_of_the_security_page() -> None:
    (link,) = yaml.safe_load((FORGE / "ISSUE_TEMPLATE" / "config.yml").read_text())["contact_links"]
    assert link["url"] in (ROOT / "SECURITY.md").read_text()
