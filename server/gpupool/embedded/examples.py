"""The example notebooks that come with the package: in a wheel beside the code, in a checkout in ``examples/``."""

from __future__ import annotations

from pathlib import Path
from typing import Final

QUICKSTART: Final = "quickstart.ipynb"


class NoExamplesError(Exception):
    """This installation has no example notebooks."""


def notebooks() -> list[Path]:
    """All of them, by name. Raises NoExamplesError."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_examples", package.parents[1] / "examples"):
        found = sorted(folder.glob("*.ipynb"))
        if found:
            return found
    raise NoExamplesError(
        "This installation of jupyter-gpupool has no example notebooks; install its wheel again."
    )


def copy(source: Path, folder: Path, *, over: bool = False) -> bool:
    """Copies a notebook into a folder; False: one of that name is there already.

    The copy is a new file of the user's: neither read-only nor a link because the installation's is one.
    """
    try:
        with (folder / source.name).open("wb" if over else "xb") as file:
            file.write(source.read_bytes())
    except FileExistsError:
        return False
    return True


def has_notebook(folder: Path) -> bool:
    """Whether a person would see a notebook in this folder."""
    return any(not path.name.startswith(".") for path in folder.glob("*.ipynb"))


def copy_quickstart(folder: Path) -> bool:
    """Puts the quickstart into a folder without notebooks. Raises NoExamplesError and OSError."""
    if has_notebook(folder):
        return False
    return copy(next(path for path in notebooks() if path.name == QUICKSTART), folder)
