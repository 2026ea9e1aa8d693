"""Directories for sockets and secrets: private when made here, never changed when others may use them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from gpupool.client import endpoint
from gpupool.client.credentials import TokenCredentials
from gpupool.client.endpoint import (
    EndpointError,
    home,
    metadata,
    parse_endpoints,
    private_directory,
    private_home,
    read_token,
)
from gpupool.client.errors import DirectoryUnusableError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_missing_is_made_for_the_owner_only(tmp_path: Path) -> None:
    assert private_directory(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert (mode(tmp_path / "a"), mode(tmp_path / "a" / "b")) == (0o700, 0o700)
    private_directory(tmp_path / "a" / "b")


@pytest.mark.parametrize("wide", [0o1777, 0o755, 0o750, 0o701])
def test_a_directory_that_is_open_to_others_is_named_and_left_alone(tmp_path: Path, wide: int) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(wide)
    with pytest.raises(DirectoryUnusableError, match=rf"{shared} is open to others \(mode {wide:04o}\)"):
        private_directory(shared)
    assert mode(shared) == wide


def test_a_directory_of_another_user_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: mine.stat().st_uid + 1)
    for tighten in (False, True):
        with pytest.raises(DirectoryUnusableError, match="belongs to another user"):
            private_directory(mine, tighten=tighten)


def test_a_home_that_was_named_is_left_alone_and_the_programs_own_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(endpoint.HOME_VARIABLE, str(tmp_path / "named"))
    (tmp_path / "named").mkdir(mode=0o755)
    with pytest.raises(DirectoryUnusableError):
        private_home()
    monkeypatch.delenv(endpoint.HOME_VARIABLE)
    monkeypatch.setenv("HOME", str(tmp_path))
    own = tmp_path / ".local" / "state" / "gpupool"
    own.mkdir(parents=True, mode=0o755)
    assert private_home() == own
    assert mode(own) == 0o700
    assert mode(own.parent) == 0o755


@pytest.mark.parametrize("below", ["", "x", "x/y"])
def test_a_place_where_nothing_can_be_made_is_one_sentence(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DirectoryUnusableError, match="file") as caught:
        private_directory(tmp_path / "file" / below)
    assert "\n" not in str(caught.value)
    # Who guards file work guards this too.
    assert isinstance(caught.value, OSError)


def of(mode: int, user: int, group: int) -> os.stat_result:
    return os.stat_result((stat.S_IFREG | mode, 1, 1, 1, user, group, 10, 0, 0, 0))


@pytest.mark.parametrize(
    ("mode", "user", "group", "open_to_others"),
    [
        (0o600, 1000, 1000, False),
        (0o400, 1000, 1000, False),
        (0o640, 1000, 1000, True),
        (0o604, 1000, 1000, True),
        # Root's, for this process's group to read: how Kubernetes hands out a Secret.
        (0o440, 0, 1000, False),
        (0o440, 0, 2000, False),
        (0o440, 0, 7, True),
        (0o460, 0, 1000, True),
        (0o444, 0, 1000, True),
        (0o440, 5, 1000, True),
    ],
)
def test_who_else_can_read_a_secret(
    monkeypatch: pytest.MonkeyPatch, mode: int, user: int, group: int, open_to_others: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "getegid", lambda: 1000)
    monkeypatch.setattr(os, "getgroups", lambda: [2000])
    assert endpoint.is_open_to_others(of(mode, user, group)) == open_to_others


def test_root_itself_has_no_group_to_share_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "getegid", lambda: 0)
    assert endpoint.is_open_to_others(of(0o440, 0, 0))
    assert not endpoint.is_open_to_others(of(0o400, 0, 0))


def test_a_home_is_the_same_from_every_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPOOL_HOME", "state")
    monkeypatch.chdir(tmp_path)
    assert home() == tmp_path / "state"


@pytest.mark.parametrize("address", ["fd00::5:7460", "::1:7460", "tls:fd00::5:7460"])
def test_an_ipv6_address_is_written_in_brackets(address: str) -> None:
    with pytest.raises(EndpointError, match="in brackets"):
        parse_endpoints(address)
    assert parse_endpoints("[fd00::5]:7460") == ("[fd00::5]:7460",)


async def test_a_token_that_was_replaced_is_read_when_the_old_one_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text("first")
    credentials = TokenCredentials(lambda: read_token(file))
    shown = await credentials.metadata()
    assert shown == metadata("first")
    assert not credentials.refused(shown)
    file.write_text("second")
    assert await credentials.metadata() == shown
    assert credentials.refused(shown)
    assert credentials.refused(shown)  # a call beside it, which has shown the old one, too
    assert await credentials.metadata() == metadata("second")
    file.write_text("")
    assert not credentials.refused(metadata("second"))
