"""`--port-range` of `gpupool node start`, `up` and `lab`: what is a range, and which port of it is taken."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest
import typer
from gpupool.cli.main import app
from gpupool.cli.top import up
from gpupool.client.endpoint import ENDPOINT_VARIABLE, HOME_VARIABLE
from gpupool.embedded.options import EmbeddedOptions
from gpupool.node.meter import Meter, MeterBusyError
from gpupool.node.ports import PortRange, PortsError
from typer.testing import CliRunner


@pytest.mark.parametrize(
    ("text", "first", "last"), [("40000-40099", 40000, 40099), ("7000", 7000, 7000), ("1-65535", 1, 65535)]
)
def test_a_range_is_read_and_told_as_it_is_written(text: str, first: int, last: int) -> None:
    assert PortRange.parse(text) == PortRange(first, last)
    assert str(PortRange.parse(text)) == text


@pytest.mark.parametrize("text", ["", "0", "0-1", "9-8", "1-65536", "a-b", "1-2-3", "1 2", "-1"])
def test_what_is_no_range_is_refused_with_the_value(text: str) -> None:
    with pytest.raises(PortsError) as error:
        PortRange.parse(text)
    assert repr(text) in str(error.value)
    for command in (["node", "start"], ["up"], ["lab"]):
        refused = CliRunner().invoke(app, [*command, f"--port-range={text}"])
        assert refused.exit_code == 2
        assert "--port-range" in refused.output


@pytest.mark.parametrize("command", ["up", "lab"])
def test_a_pool_of_this_machine_gets_the_range_and_one_that_borrows_has_no_use_for_it(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[EmbeddedOptions] = []

    def joined(_home: Path, options: EmbeddedOptions) -> None:
        asked.append(options)
        raise typer.Exit

    monkeypatch.setattr(up, "joined", joined)
    monkeypatch.delenv(ENDPOINT_VARIABLE, raising=False)
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    words = [command, "--port-range", "40000-40019"]
    CliRunner().invoke(app, words)
    CliRunner().invoke(app, [command])
    assert [options.port_range for options in asked] == ["40000-40019", ""]
    (tmp_path / "slurm.toml").write_text("")
    refused = CliRunner().invoke(app, [*words, "--providers", "slurm.toml"])
    assert refused.exit_code == 2
    assert "node_options" in refused.output
    assert len(asked) == 2


def test_the_network_is_measured_on_a_port_of_the_range() -> None:
    with contextlib.ExitStack() as listening:
        ports: list[int] = []
        while len(ports) < 2 or ports[-1] - ports[-2] != 1:
            ports = [*ports, *_pair(listening)]
        taken, free = ports[-2:]
        listening.close()
        listening.enter_context(socket.create_server(("127.0.0.1", taken)))
        assert Meter("127.0.0.1", PortRange(taken, free)).open("0" * 64) == free
        with pytest.raises(MeterBusyError, match=f"127.0.0.1:{taken}"):
            Meter("127.0.0.1", PortRange(taken, taken)).open("0" * 64)


def _pair(listening: contextlib.ExitStack) -> list[int]:
    """Two ports beside each other that nobody listens on; empty: not this time."""
    first = listening.enter_context(socket.create_server(("127.0.0.1", 0)))
    port = int(first.getsockname()[1])
    try:
        listening.enter_context(socket.create_server(("127.0.0.1", port + 1)))
    except (OSError, OverflowError):
        return []
    return [port, port + 1]
