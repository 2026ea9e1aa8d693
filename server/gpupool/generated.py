"""Files that the build makes from tables. Imports nothing but the standard library: the build has nothing else yet."""

from __future__ import annotations

from pathlib import Path


def write_changed(path: Path, text: str) -> bool:
    """Writes a file where it is not as it should be, so that nothing is built again for nothing.

    Returns:
        Whether the file had to be written.
    """
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return False
    path.write_text(text, encoding="utf-8")
    return True
