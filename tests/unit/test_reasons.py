"""Why a lease or a session ends: the ids stand once, each has words, and the page has the same."""

from __future__ import annotations

import re
from pathlib import Path

from gpupool.client.reasons import COMES_BACK, SESSION_ENDS
from gpupool.sentences import typescript
from gpupool.sentences.reasons import REASONS
from gpupool.sentences.render import catalogue


def test_each_reason_has_words_and_no_other_id_has_those_of_a_reason() -> None:
    worded = {code.removeprefix("reason.") for code in catalogue() if code.startswith("reason.")}
    assert worded == {*REASONS, "idle-after"}  # as long as it was idle
    for part in ("because.", "ended.", "gone."):
        assert {code.removeprefix(part) for code in catalogue() if code.startswith(part)} < {*REASONS}, part


def test_what_follows_from_a_reason_follows_from_one_of_them() -> None:
    assert {*REASONS} > COMES_BACK | SESSION_ENDS


def test_the_page_has_the_same_reasons(tmp_path: Path) -> None:
    typescript.write(tmp_path / "reasons.ts")
    kind, values = re.findall(r"^export .*= (.*);$", (tmp_path / "reasons.ts").read_text(), re.MULTILINE)
    assert re.findall(r"'([\w-]+)'", kind) == re.findall(r"'([\w-]+)'", values) == [*REASONS]


def test_the_pages_file_is_written_only_where_something_changed(tmp_path: Path) -> None:
    path = tmp_path / "reasons.ts"
    assert typescript.write(path)
    assert not typescript.write(path)
    assert typescript.write(path, [*REASONS, "new"])
    assert "'new'" in path.read_text()
