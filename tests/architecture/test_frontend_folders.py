"""The folders of the front end import one another in one direction (labextension/src/README.md)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parent.parent.parent / "labextension" / "src"

#: Each folder after those that it may import, so that no two can import each other.
FOLDERS: dict[str, frozenset[str]] = {
    "api": frozenset(),
    "figures": frozenset({"api"}),
    "text": frozenset({"api", "figures"}),
    "ui": frozenset(),
    "widget": frozenset({"api", "figures", "text"}),
    "model": frozenset({"api", "figures"}),
    "commands": frozenset({"api", "figures", "text", "ui", "model"}),
    "notebook": frozenset({"api", "figures", "text", "widget", "model", "commands"}),
    "dashboard": frozenset({"api", "figures", "text", "ui"}),
    "components": frozenset({"api", "figures", "text", "ui", "model", "commands"}),
    "plugins": frozenset(
        {"api", "figures", "text", "ui", "widget", "model", "commands", "notebook", "dashboard", "components"}
    ),
    "index.ts": frozenset({"api", "model", "plugins"}),
}

#: `from './x'`, `import './x'`, `import('./x')`, `require('./x')`; of types, too.
_IMPORT = re.compile(r"""(?:\bfrom|\bimport|\bimport\(|\brequire\()\s*['"](\.[^'"]*)['"]""")


def sources(root: Path) -> Iterator[tuple[str, Path]]:
    """Every source file with the folder that it belongs to; tests may import what they like."""
    for path in sorted(root.rglob("*.ts*")):
        first = path.relative_to(root).parts[0]
        if first != "__tests__":
            yield first, path


def imports(root: Path, path: Path) -> Iterator[str]:
    """What `path` imports of the front end, relative to `root`."""
    for target in _IMPORT.findall(path.read_text()):
        yield os.path.relpath(path.parent / target, root)


def offenders(root: Path, folders: Mapping[str, frozenset[str]]) -> list[str]:
    found = []
    for folder, path in sources(root):
        name = path.relative_to(root).as_posix()
        if folder not in folders:
            found.append(f"{name} is in no known folder")
            continue
        for target in imports(root, path):
            first = target.split("/")[0]
            if first != folder and first not in folders[folder]:
                found.append(f"{name} imports {target}")
    return found


def test_each_folder_imports_only_folders_below_it() -> None:
    assert offenders(SOURCES, FOLDERS) == []


def test_the_allowed_imports_have_no_cycle() -> None:
    known: set[str] = set()
    for folder, below in FOLDERS.items():
        assert below <= known, f"{folder} may import {sorted(below - known)}, which stands after it"
        known.add(folder)


def test_the_sidebar_knows_commands_by_their_names_only() -> None:
    taken = {
        target
        for folder, path in sources(SOURCES)
        if folder == "components"
        for target in imports(SOURCES, path)
        if target.startswith("commands/")
    }
    assert taken == {"commands/ids"}


def test_each_folder_exists_and_says_what_it_holds() -> None:
    there = {path.name for path in SOURCES.iterdir() if path.is_dir() and path.name != "__tests__"}
    assert there == {name for name in FOLDERS if "." not in name}
    table = (SOURCES / "README.md").read_text()
    for name in sorted(there):
        lines = (SOURCES / name / "README.md").read_text().splitlines()
        assert 5 <= len(lines) <= 15, name
        assert f"`{name}/`" in table, name


def test_the_table_of_the_folders_says_what_is_checked_here() -> None:
    rows = re.findall(r"^\| `([\w.]+)/?` \|.*\| (.*) \|$", (SOURCES / "README.md").read_text(), re.MULTILINE)
    every = frozenset(name for name in FOLDERS if name not in {"plugins", "index.ts"})
    said = {
        name: every if cell == "everything below" else frozenset(re.findall(r"`(\w+)`", cell))
        for name, cell in rows
    }
    assert said == FOLDERS


@pytest.mark.parametrize(
    ("path", "line", "offence"),
    [
        ("figures/a.ts", "import { word } from '../text/words';", "figures/a.ts imports text/words"),
        ("model/a.ts", "import type { Menu } from '../commands/menu';", "model/a.ts imports commands/menu"),
        (
            "api/a.ts",
            "export {\n  one,\n  two\n} from '../model/tokens';",
            "api/a.ts imports model/tokens",
        ),
        ("dashboard/a.tsx", "const a = import('../plugins/a');", "dashboard/a.tsx imports plugins/a"),
        ("text/deep/a.ts", "import '../../ui/jsx';", "text/deep/a.ts imports ui/jsx"),
        ("components/a.ts", "import main from '..';", "components/a.ts imports ."),
        ("misc/a.ts", "", "misc/a.ts is in no known folder"),
        ("loose.ts", "", "loose.ts is in no known folder"),
    ],
)
def test_a_wrong_import_is_noticed(tmp_path: Path, path: str, line: str, offence: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(f"import type {{ X }} from '@lumino/widgets';\n{line}\n")
    assert offenders(tmp_path, FOLDERS) == [offence]


def test_a_right_import_and_one_within_a_folder_are_none(tmp_path: Path) -> None:
    (tmp_path / "text" / "deep").mkdir(parents=True)
    (tmp_path / "__tests__").mkdir()
    (tmp_path / "text" / "deep" / "a.ts").write_text(
        "import { a } from '../../api/types';\nimport { b } from '../format';\n"
    )
    (tmp_path / "__tests__" / "a.spec.ts").write_text("import { Sidebar } from '../components/Sidebar';\n")
    assert offenders(tmp_path, FOLDERS) == []
