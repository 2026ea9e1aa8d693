"""Where nodes of a user's own jobs find her pool."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
from gpupool.embedded.borrowing import borrowing
from gpupool.embedded.join import EmbeddedError
from gpupool.embedded.options import EmbeddedOptions


def _file(folder: Path, text: str = '[slurm]\nkind = "slurm"\n') -> Path:
    file = folder / "providers.toml"
    file.write_text(text)
    return file


def test_a_port_is_chosen_once(tmp_path: Path) -> None:
    options = borrowing(EmbeddedOptions(), _file(tmp_path), tmp_path / "home", "127.0.0.1")
    assert re.fullmatch(r"127\.0\.0\.1:[1-9]\d{2,4}", options.listen)
    assert options.providers == str(tmp_path / "providers.toml")


def test_a_port_that_is_named_stays(tmp_path: Path) -> None:
    assert (
        borrowing(EmbeddedOptions(), _file(tmp_path), tmp_path / "home", "127.0.0.1:7460").listen
        == "127.0.0.1:7460"
    )


def test_processes_of_this_machine_dial_no_port(tmp_path: Path) -> None:
    assert (
        borrowing(EmbeddedOptions(), _file(tmp_path, '[here]\nkind = "local"\n'), tmp_path / "home").listen
        == ""
    )


def test_a_table_that_says_what_its_nodes_dial_needs_no_port(tmp_path: Path) -> None:
    text = '[slurm]\nkind = "slurm"\npool = "tls:login1:7460"\n'
    assert borrowing(EmbeddedOptions(), _file(tmp_path, text), tmp_path / "home").listen == ""


def test_a_name_that_stands_for_this_machine_alone_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    with pytest.raises(EmbeddedError, match=r"localhost is 127\.0\.0\.1 here.*--listen HOST"):
        borrowing(EmbeddedOptions(), _file(tmp_path), tmp_path / "home")


@pytest.mark.parametrize(
    "wrong", ["a b", ":7460", "a:b", "a:1:2", "[::1", "a:123456", "\n", "a..b", "x" * 64]
)
def test_what_is_no_address_is_named(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(EmbeddedError, match=re.escape(repr(wrong))):
        borrowing(EmbeddedOptions(), _file(tmp_path), tmp_path / "home", wrong)


def test_an_address_of_another_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match=r"cannot listen at '192\.0\.2\.1'"):
        borrowing(EmbeddedOptions(), _file(tmp_path), tmp_path / "home", "192.0.2.1")


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedError, match=r"providers\.toml, \[x\]: kind is 'nothing'"):
        borrowing(EmbeddedOptions(), _file(tmp_path, '[x]\nkind = "nothing"\n'), tmp_path / "home")


def test_the_next_pool_listens_where_jobs_of_the_one_before_dial(tmp_path: Path) -> None:
    home, file = tmp_path / "home", _file(tmp_path)
    first = borrowing(EmbeddedOptions(), file, home, "127.0.0.1").listen
    assert borrowing(EmbeddedOptions(), file, home, "127.0.0.1").listen == first


def test_unless_somebody_else_has_taken_the_port(tmp_path: Path) -> None:
    home, file = tmp_path / "home", _file(tmp_path)
    first = borrowing(EmbeddedOptions(), file, home, "127.0.0.1").listen
    with socket.create_server(("127.0.0.1", int(first.rpartition(":")[2]))):
        second = borrowing(EmbeddedOptions(), file, home, "127.0.0.1").listen
    assert second != first
    assert borrowing(EmbeddedOptions(), file, home, "127.0.0.1").listen == second
