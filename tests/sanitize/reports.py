"""Where sanitizers write what they find."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

SUPPRESSIONS = Path(__file__).with_name("suppressions.txt")


@dataclass(frozen=True, slots=True)
class Reports:
    """Reports of all processes that are started with :meth:`environment`, in one folder."""

    folder: Path

    def environment(self) -> dict[str, str]:
        """The sanitizers' options of this process, and the reports' place."""
        place = f"log_path={self.folder / 'report'}"
        made = {}
        # Our runtime API is preloaded ahead of the sanitizer's runtime, which the program itself brings.
        own = {"ASAN": "verify_asan_link_order=0", "UBSAN": "", "TSAN": f"suppressions={SUPPRESSIONS}"}
        for name, option in own.items():
            given = os.environ.get(f"{name}_OPTIONS", "").replace(" ", ":")
            made[f"{name}_OPTIONS"] = ":".join(part for part in (place, option, given) if part)
        return made

    def found(self) -> str:
        """Everything that was reported."""
        return "\n".join(path.read_text(errors="replace") for path in self.folder.glob("report*"))
