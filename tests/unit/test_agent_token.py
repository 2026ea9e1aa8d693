"""An agent reads its token anew at each connection. While the file cannot be read, its sessions go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gpupool.client.errors import GpupoolError
from gpupool.node.agent import Agent
from gpupool.node.agent_settings import AgentSettings

NOTHING: Any = object()


def agent(token: Path) -> Agent:
    settings = AgentSettings(node="n1", endpoint="127.0.0.1:1", token_file=token)
    return Agent(settings, NOTHING, NOTHING)


async def test_one_that_was_never_connected_ends_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(GpupoolError, match=r"node\.token"):
        await agent(tmp_path / "node.token")._pool._serve_once("127.0.0.1:1")


@pytest.mark.parametrize("text", [None, ""], ids=["no file", "a file that is just being written"])
async def test_one_that_has_served_tries_again(tmp_path: Path, text: str | None) -> None:
    token = tmp_path / "node.token"
    if text is not None:
        token.write_text(text)
    made = agent(token)
    made._pool._served = True
    assert not await made._pool._serve_once("127.0.0.1:1")
