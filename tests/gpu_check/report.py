"""What a check found: printed, and in a file that is whole after every part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.network import SAME_RACK
from tests.gpu_check.programs_run import Found

#: What earlier findings in the file must have in common with this run to stay there.
_SAME: Final = ("commit", "driver", "level", "gpu", "share")


class Report:
    """The report in ``file``. What an earlier run of the same things found in other parts stays.

    Args:
        file: written anew after every part.
        head: what was measured, and where.
    """

    def __init__(self, file: Path, head: Found) -> None:
        self._file = file
        self._parts: Found = _earlier(file, head)
        self._head = head
        self.failed: list[str] = []

    def record(self, name: str, found: Found) -> None:
        """``found`` has ``left_out``, or says whether it is ``ok``."""
        self._parts[name] = found
        if not found.get("ok", "left_out" in found):
            self.failed.append(name)
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps({**self._head, "parts": self._parts}, indent=1) + "\n")
        new.replace(self._file)
        print("\n".join(lines(name, found)), flush=True)


def _earlier(file: Path, head: Found) -> Found:
    try:
        before: Found = json.loads(file.read_text())
        parts: Found = dict(before["parts"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return parts if all(before.get(key) == head.get(key) for key in _SAME) else {}


def lines(name: str, part: Found) -> Iterator[str]:
    """What people read of one part."""
    if "left_out" in part:
        yield f"  --     {name}: {part['left_out']}"
        return
    version = f" {part['version']}" if part.get("version") else ""
    yield f"  {'ok    ' if part['ok'] else 'FAILED'} {name}{version}: {_summary(part)} ({part.get('seconds', 0)} s)"
    if part.get("network_ratios"):
        yield f"         over {SAME_RACK.round_trip_us} us, {SAME_RACK.mbit} Mbit/s: {_times(part['network_ratios'])}"
    for side in ("local", "remote"):
        if error := part.get(side, {}).get("error"):
            yield f"         {side}: {error.strip()[-600:]}"
        for what, problem in part.get(side, {}).get("problems", {}).items():
            yield f"         {side}: {what}: {problem}"
    if "remote" in part and not part["same"]:
        local, remote = (part[side].get("result") for side in ("local", "remote"))
        if isinstance(local, dict) and isinstance(remote, dict):
            keys = [key for key in local | remote if local.get(key) != remote.get(key)]
            local, remote = ({key: each.get(key) for key in keys} for each in (local, remote))
        yield f"         results: {json.dumps({'local': local, 'remote': remote})[:2400]}"
        if part["limit"]:
            yield f"         known: {part['limit']}"


def _times(ratios: Found) -> str:
    return ", ".join(f"{key} x{value}" for key, value in ratios.items())


def _summary(part: Found) -> str:
    if part.get("said"):
        return str(part["said"])
    if "local" in part:
        of_sides = f"local {part['local'].get('seconds')} s, remote {part['remote'].get('seconds')} s"
        note = f"{part['note']}: " if part.get("note") else ""
        return f"{note}{of_sides}{', ' if part['ratios'] else ''}{_times(part['ratios'])}"
    figures = {key: value for key, value in part.items() if key not in ("ok", "seconds", "logs")}
    return json.dumps(figures)[:1200] if figures else "done"
