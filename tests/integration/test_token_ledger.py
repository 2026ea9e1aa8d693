"""Tokens of a pool whose ledger is in PostgreSQL are made where the ledger is."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpupool.cli.main import app
from gpupool.ledger.ledger import Ledger
from gpupool.model.clock import Clock
from gpupool.pool.access import tokens
from typer.main import get_command
from typer.testing import CliRunner

from tests.support import postgres


@pytest.mark.skipif(bool(postgres.why_not()), reason=postgres.why_not())
def test_tokens_of_a_ledger_in_postgresql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("GPUPOOL_HOME", str(tmp_path))
    gpupool = CliRunner()
    with postgres.cluster() as cluster:
        url = cluster.database()
        made = gpupool.invoke(app, ["token", "create", "--user", "kube", "--role", "node", "--ledger", url])
        assert made.exit_code == 0, made.output
        with Ledger(url, Clock.start()) as ledger:
            found = tokens.verify(ledger, made.stdout.strip())
            assert found is not None
            assert (found.subject, found.role) == ("kube", "node")
        assert found.id in gpupool.invoke(app, ["token", "list", "--ledger", url]).output
        assert gpupool.invoke(app, ["token", "revoke", found.id, "--ledger", url]).exit_code == 0
        with Ledger(url, Clock.start()) as ledger:
            assert tokens.verify(ledger, made.stdout.strip()) is None
    assert not (tmp_path / "pool.sqlite").exists()


class TestTheVariableNamesTheLedger:
    """A container of the chart has it, so that commands in the container work on the ledger of its pool."""

    def test_tokens_are_made_there(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        tmp_path.chmod(0o700)
        monkeypatch.setenv("GPUPOOL_HOME", str(tmp_path))
        named = tmp_path / "another.sqlite"
        monkeypatch.setenv("GPUPOOL_LEDGER", str(named))
        made = CliRunner().invoke(app, ["token", "create", "--user", "ann"])
        assert made.exit_code == 0, made.output
        with Ledger(named, Clock.start()) as ledger:
            assert tokens.verify(ledger, made.stdout.strip()) is not None
        assert not (tmp_path / "pool.sqlite").exists()

    @pytest.mark.parametrize(
        "words", ["token create", "token list", "token revoke", "pool serve", "pool replay"]
    )
    def test_of_every_command_that_opens_the_ledger(self, words: str) -> None:
        command = get_command(app)
        for word in words.split():
            command = command.commands[word]  # type: ignore[attr-defined]
        (option,) = [one for one in command.params if one.name in ("ledger", "ledger_url")]
        assert option.envvar == "GPUPOOL_LEDGER"


def test_a_password_in_the_url_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("GPUPOOL_HOME", str(tmp_path))
    url = "postgresql+psycopg://me:very_secret@/pool"
    done = CliRunner().invoke(app, ["token", "list", "--ledger", url])
    assert done.exit_code != 0
    assert "very_secret" not in done.output
