"""An option that would have no effect is an error, and not silence."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpupool.cli.common import exits
from gpupool.cli.main import app
from gpupool.client.endpoint import ENDPOINT_VARIABLE
from typer.testing import CliRunner


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("report usage --currency EUR", "--currency"),
        ("report usage --digits 2", "--digits"),
        ("pool restore --ledger postgresql+psycopg://host/database --force", "--force"),
        ("pool serve --hub-believed 1m", "--hub-believed"),
        ("pool serve --hub-grace 1m", "--hub-grace"),
        ("kernel-packs build --library libmine.so --jobs 2", "--jobs"),
        ("kernel-packs build --library libmine.so --source pytorch.tar.gz", "--source"),
        ("kernel-packs build --torch python3 --source pytorch.tar.gz --option=-I.", "--option"),
        ("lab --driver software", "--driver"),
        ("lab --software-gpus 2", "--software-gpus"),
        ("lab --quota *=1", "--quota"),
    ],
)
def test_it_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, named: str) -> None:
    monkeypatch.setenv("GPUPOOL_HOME", str(tmp_path))
    monkeypatch.setenv(ENDPOINT_VARIABLE, "unix:/nowhere/pool.sock")
    done = CliRunner().invoke(app, command.split())
    assert done.exit_code == exits.USAGE
    assert f"{named} has no effect" in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    "command", ["up --driver nvidia", "lab --driver nvidia", "up --providers slurm.toml"]
)
@pytest.mark.parametrize("option", ["--software-gpus 2", "--memory-mib 1024"])
def test_software_gpus_that_are_not_started_have_no_options(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, option: str
) -> None:
    monkeypatch.setenv("GPUPOOL_HOME", str(tmp_path))
    monkeypatch.delenv(ENDPOINT_VARIABLE, raising=False)
    done = CliRunner().invoke(app, [*command.split(), *option.split()])
    assert done.exit_code == exits.USAGE
    assert f"{option.split()[0]} has no effect" in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.parametrize("moment", ["999999d", "0001-01-01", "1969-12-31", "2026-13-01", "today-1", ""])
def test_a_moment_before_1970_or_none_at_all_is_refused(moment: str) -> None:
    done = CliRunner().invoke(app, ["report", "usage", "--from", moment])
    assert done.exit_code == exits.USAGE
