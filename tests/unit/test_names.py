"""One rule for a name, whoever reads it: the magic, the command line, the pool, the node."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from gpupool.cli.pool import simulate
from gpupool.names import is_label, is_name, is_project
from gpupool.node.agent_settings import AgentError, AgentSettings
from gpupool.node.service import NodeOptions, run_node
from gpupool.pool.access import validate
from gpupool.request.forms import of_body
from gpupool.request.gpu_request import checked_project
from gpupool.request.option import RequestError
from gpupool.scheduler.fairshare.tree import Project, ProjectError

GOOD = ("a", "n1", "A100.2", "x" * 63)
BAD = ("", ".hidden", "-a", "a-", "a b", "é", "x" * 64, "a\n")
BAD_PATHS = ("/", "a/", "/a", "a//b", "a/.b", "/".join("abcdefghi"), "/".join(["x" * 63] * 4))


@pytest.mark.parametrize("name", GOOD)
def test_a_good_name_is_good_everywhere(name: str) -> None:
    assert is_name(name)
    assert is_project(f"{name}/vision")
    assert validate.node_name(name) == validate.node_pool(name) == name
    assert checked_project(name) == name
    asked = of_body({"project": name, "node_pools": [name]})
    assert (asked.project, asked.pools) == (name, (name,))
    Project(name).check()
    assert simulate._project(f"{name}=2").path == name


@pytest.mark.parametrize("path", [*BAD[1:], *BAD_PATHS])
def test_what_is_no_project_is_one_for_nobody(path: str) -> None:
    assert not is_project(path)
    with pytest.raises(RequestError):
        of_body({"project": path})
    with pytest.raises(ProjectError):
        Project(path).check()
    with pytest.raises(typer.BadParameter):
        simulate._project(f"{path}=2")


@pytest.mark.parametrize("name", [*BAD, "a/b"])
async def test_what_is_no_node_is_one_for_nobody(name: str, tmp_path: Path) -> None:
    with pytest.raises(validate.BadInputError):
        validate.node_name(name)
    with pytest.raises(RequestError):
        of_body({"node_pools": [name]})
    with pytest.raises(AgentError, match="is no node name"):
        await run_node(NodeOptions(agent=AgentSettings(node=name, endpoint="unix:/nowhere")))


def test_labels_may_begin_with_any_sign_of_a_name() -> None:
    assert is_label("_zone.a-")
    assert not is_label("a b")
    assert not is_label("x" * 64)
