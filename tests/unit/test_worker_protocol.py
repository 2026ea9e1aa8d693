"""The version of what workers say: the same in C++ and Python, and stored with each worker."""

from __future__ import annotations

import json
import re
from pathlib import Path

from gpupool.engines.records import WORKER_PROTOCOL
from gpupool.engines.state_file import FILE_NAME, StoredWorker

ROOT = Path(__file__).resolve().parents[2]


def test_the_agent_knows_the_version_that_its_workers_are_built_with() -> None:
    hello = (ROOT / "src/wire/hello.h").read_text()
    assert re.findall(r"protocol_version = (\d+);", hello) == [str(WORKER_PROTOCOL)]


def test_it_is_stored_with_each_worker_and_unknown_for_those_of_before(tmp_path: Path) -> None:
    stored = StoredWorker("5e", 1, "running", (), "boot")
    stored.write(tmp_path)
    assert StoredWorker.read(tmp_path).protocol == WORKER_PROTOCOL
    values = json.loads((tmp_path / FILE_NAME).read_text())
    del values["protocol"]
    (tmp_path / FILE_NAME).write_text(json.dumps(values))
    assert StoredWorker.read(tmp_path).protocol == 0
