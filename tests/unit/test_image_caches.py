"""Where workers keep module images: who shares a folder, and how much all together may take."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from gpupool.engines.image_caches import ImageCaches


@pytest.fixture
def caches(tmp_path: Path) -> ImageCaches:
    return ImageCaches(tmp_path / "images", user_mib=4, total_mib=3)


def folder_in(record: bytes) -> Path:
    lines = dict(line.split(b" ", 1) for line in record.splitlines())
    assert lines[b"image_cache_mib"] == b"4"
    return Path(os.fsdecode(lines[b"image_cache"]))


def fill(folder: Path, mib: int, used: int) -> None:
    (folder / f"{used:064x}").write_bytes(bytes(mib << 20))
    os.utime(folder, (used, used))


def test_a_user_has_one_folder_of_their_own_closed_to_others(caches: ImageCaches) -> None:
    ann, again, bob = (folder_in(caches.start_record(user)) for user in ("ann", "ann", "bob"))
    assert ann == again != bob
    for folder in (ann, bob, ann.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("user", ["../bob", "a/b", "\n", "ü" * 200, "\udce9", "."])
def test_a_users_name_is_never_a_path(caches: ImageCaches, user: str) -> None:
    folder = folder_in(caches.start_record(user))
    assert folder.parent == folder_in(caches.start_record("ann")).parent


def test_without_a_user_there_is_no_cache(caches: ImageCaches) -> None:
    assert caches.start_record("") == b""


def test_a_folder_open_to_others_is_not_handed_out(caches: ImageCaches) -> None:
    folder_in(caches.start_record("ann")).chmod(0o755)
    assert caches.start_record("ann") == b""


def test_whoever_used_theirs_least_recently_goes_first(caches: ImageCaches) -> None:
    folders = {user: folder_in(caches.start_record(user)) for user in ("ann", "bob", "eve")}
    for used, user in enumerate(folders, start=1000):
        fill(folders[user], 2, used)
    caches.start_record("ann")
    assert [folders[user].exists() for user in ("ann", "bob", "eve")] == [True, False, False]


def test_what_fits_stays(caches: ImageCaches) -> None:
    ann, bob = (folder_in(caches.start_record(user)) for user in ("ann", "bob"))
    fill(ann, 1, 1000)
    fill(bob, 1, 2000)
    caches.start_record("eve")
    assert ann.exists()
    assert bob.exists()
