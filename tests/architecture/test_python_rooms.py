"""The folders of the Python half are its architecture: each is a room that knows which rooms lie below it.

`ROOMS` is that architecture. A new folder, or an import that it does not name, is a decision: make it there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Where packages begin, and which.
PACKAGES = {"gpupool": ROOT / "server", "jupyter_gpupool": ROOT, "benchmarks": ROOT}
#: Packages whose `__init__.py` is a room of its own.
FACES = {"gpupool", "jupyter_gpupool"}
#: What is made by the build, and what belongs to Python.
NOT_ROOMS = {"_native", "labextension", "node_modules", "__pycache__"}
MOST_SIBLINGS = 40

#: Each room and the rooms that it may import, the lowest first: a room may name only rooms above its own line. The
#: packages' own `__init__.py` are the public faces: they load on demand, and are rooms of their own.
ROOMS: Mapping[str, str] = {
    # what everybody needs: shares, names, amounts, filters, and one request for a GPU
    "gpupool": "",
    "gpupool.request": "gpupool",
    "gpupool.sentences": "gpupool",
    "gpupool.proto": "gpupool.sentences",
    # what a holder of a share needs
    "gpupool.client": "gpupool gpupool.sentences gpupool.proto gpupool.request",
    "gpupool.client.on_python_path.jax_plugins": "",
    "gpupool.client.session": "gpupool gpupool.client gpupool.sentences",
    "gpupool.client.program": "gpupool gpupool.client gpupool.client.session gpupool.request",
    "gpupool:face": "gpupool.client",
    # who gets what: pure
    "gpupool.scheduler.fairshare": "gpupool gpupool.sentences",
    "gpupool.scheduler.placement": "gpupool",
    "gpupool.scheduler": "gpupool gpupool.sentences gpupool.scheduler.placement",
    # what the pool knows, and where it is kept
    "gpupool.model": "gpupool gpupool.sentences gpupool.scheduler",
    "gpupool.ledger": "gpupool gpupool.sentences gpupool.model gpupool.scheduler",
    # what runs on a node
    "gpupool.engines": "gpupool.client",
    "gpupool.node": "gpupool gpupool.client gpupool.engines gpupool.proto",
    # where nodes come from
    "gpupool.providers": "gpupool gpupool.sentences",
    "gpupool.providers.kubernetes": "gpupool.providers",
    # the pool server: rules without I/O first
    "gpupool.pool.model": "gpupool gpupool.sentences gpupool.model gpupool.scheduler gpupool.scheduler.placement",
    "gpupool.pool.projects": (
        "gpupool gpupool.sentences gpupool.model gpupool.pool.model gpupool.proto gpupool.scheduler gpupool.scheduler.fairshare"
    ),
    "gpupool.pool.leases": (
        "gpupool gpupool.sentences gpupool.model gpupool.pool.model gpupool.pool.projects"
        " gpupool.scheduler gpupool.scheduler.fairshare"
    ),
    "gpupool.pool.reclaim": (
        "gpupool gpupool.sentences gpupool.model gpupool.pool.leases gpupool.pool.model gpupool.pool.projects"
        " gpupool.scheduler gpupool.scheduler.fairshare"
    ),
    "gpupool.pool.queue": (
        "gpupool gpupool.sentences gpupool.model gpupool.pool.leases gpupool.pool.model gpupool.pool.projects"
        " gpupool.pool.reclaim gpupool.scheduler gpupool.scheduler.fairshare"
    ),
    "gpupool.pool.nodes": (
        "gpupool gpupool.sentences gpupool.client gpupool.model gpupool.node gpupool.pool.leases gpupool.pool.model gpupool.proto"
    ),
    # the pool server: what acts
    "gpupool.pool.lifecycle": (
        "gpupool gpupool.sentences gpupool.ledger gpupool.model gpupool.pool.leases gpupool.pool.model gpupool.pool.nodes"
        " gpupool.pool.projects gpupool.pool.queue gpupool.proto gpupool.scheduler gpupool.scheduler.placement"
    ),
    "gpupool.pool.growing": (
        "gpupool gpupool.sentences gpupool.client gpupool.ledger gpupool.model gpupool.pool.lifecycle gpupool.pool.model"
        " gpupool.providers gpupool.scheduler"
    ),
    "gpupool.pool.access": (
        "gpupool gpupool.sentences gpupool.client gpupool.ledger gpupool.model gpupool.proto gpupool.request"
        " gpupool.scheduler gpupool.scheduler.fairshare"
    ),
    "gpupool.pool.leading": "gpupool.ledger gpupool.pool.access gpupool.proto",
    "gpupool.pool.reporting": (
        "gpupool gpupool.client gpupool.ledger gpupool.model gpupool.pool.access gpupool.pool.lifecycle"
        " gpupool.pool.model gpupool.pool.nodes gpupool.pool.projects gpupool.proto"
        " gpupool.scheduler gpupool.scheduler.fairshare"
    ),
    "gpupool.pool.api": (
        "gpupool gpupool.sentences gpupool.client gpupool.ledger gpupool.model gpupool.node gpupool.pool.access"
        " gpupool.pool.leases gpupool.pool.lifecycle gpupool.pool.model gpupool.pool.nodes gpupool.pool.projects"
        " gpupool.pool.reporting gpupool.proto gpupool.providers gpupool.request gpupool.scheduler gpupool.scheduler.fairshare"
    ),
    "gpupool.pool": (
        "gpupool.client gpupool.ledger gpupool.model gpupool.pool.access gpupool.pool.api gpupool.pool.growing"
        " gpupool.pool.leading gpupool.pool.lifecycle gpupool.pool.model gpupool.pool.projects gpupool.pool.reporting"
        " gpupool.proto gpupool.providers gpupool.scheduler gpupool.scheduler.placement"
    ),
    # what would happen on another pool, and the command line
    "gpupool.simulation": (
        "gpupool gpupool.client gpupool.ledger gpupool.model gpupool.node gpupool.pool.growing gpupool.pool.lifecycle"
        " gpupool.pool.model gpupool.providers gpupool.request"
        " gpupool.scheduler gpupool.scheduler.placement"
    ),
    "gpupool.kernel_packs": "gpupool.client",
    "gpupool.embedded": "gpupool gpupool.client gpupool.providers",
    "gpupool.cli.common": "gpupool gpupool.client gpupool.request",
    "gpupool.cli.pool": (
        "gpupool gpupool.sentences gpupool.cli.common gpupool.client gpupool.ledger gpupool.model gpupool.pool"
        " gpupool.pool.access gpupool.pool.lifecycle gpupool.pool.model gpupool.scheduler.placement gpupool.simulation"
    ),
    "gpupool.cli.node": "gpupool gpupool.cli.common gpupool.client gpupool.node",
    "gpupool.cli.report": "gpupool.cli.common gpupool.client",
    "gpupool.cli.top": (
        "gpupool gpupool.cli.common gpupool.cli.node gpupool.cli.pool gpupool.client gpupool.client.program"
        " gpupool.client.session gpupool.embedded gpupool.node gpupool.request"
    ),
    "gpupool.cli": (
        "gpupool gpupool.cli.common gpupool.cli.node gpupool.cli.pool gpupool.cli.report gpupool.cli.top gpupool.client"
        " gpupool.kernel_packs gpupool.ledger gpupool.model gpupool.pool gpupool.pool.access gpupool.pool.model gpupool.request"
        " gpupool.scheduler.placement gpupool.sentences gpupool.simulation"
    ),
    # Jupyter: in kernels
    "jupyter_gpupool.kernel": "gpupool gpupool.client gpupool.request",
    "jupyter_gpupool.widget": "jupyter_gpupool.kernel",
    # Jupyter: in the server
    "jupyter_gpupool.server.pool": "gpupool gpupool.sentences gpupool.client gpupool.client.session gpupool.embedded",
    "jupyter_gpupool.server.session": (
        "gpupool gpupool.sentences gpupool.client gpupool.client.session gpupool.request jupyter_gpupool.server.pool"
    ),
    "jupyter_gpupool.server.events": "jupyter_gpupool.server.session",
    "jupyter_gpupool.server.kernels": "gpupool.client jupyter_gpupool.kernel",
    "jupyter_gpupool.server.watching": "gpupool.client gpupool.client.session jupyter_gpupool.server.session",
    "jupyter_gpupool.server.rest": "gpupool gpupool.client.session gpupool.request gpupool.sentences",
    "jupyter_gpupool.server.handlers": (
        "gpupool gpupool.client gpupool.client.session gpupool.request gpupool.sentences jupyter_gpupool.kernel"
        " jupyter_gpupool.server.pool jupyter_gpupool.server.rest jupyter_gpupool.server.session jupyter_gpupool.server.watching"
    ),
    "jupyter_gpupool.server": (
        "gpupool gpupool.client gpupool.request jupyter_gpupool.server.events jupyter_gpupool.server.handlers"
        " jupyter_gpupool.server.kernels jupyter_gpupool.server.pool jupyter_gpupool.server.session"
        " jupyter_gpupool.server.watching"
    ),
    "jupyter_gpupool:face": "jupyter_gpupool.kernel jupyter_gpupool.server jupyter_gpupool.widget",
    # what measures: not in the wheel, found in a checkout by the command line when somebody wants it
    "benchmarks.softgpu_kernels": "",
    "benchmarks": (
        "gpupool gpupool.client gpupool.model gpupool.node gpupool.pool.lifecycle gpupool.pool.model gpupool.proto"
        " gpupool.scheduler gpupool.scheduler.placement gpupool.simulation"
    ),
    "benchmarks.notebook": "gpupool:face gpupool.client jupyter_gpupool:face benchmarks",
}

#: Imports upwards that are not there while a module is loaded: of names for the type checker, or on demand.
UPWARDS = {
    ("gpupool.pool.model", "gpupool.pool.queue"): "the queue's memory names the type of a look at the queue",
    (
        "gpupool.providers",
        "gpupool.providers.kubernetes",
    ): "settings open it; its client is an extra, loaded when it is named",
    ("jupyter_gpupool.kernel", "jupyter_gpupool.widget"): "`%gpu widget` loads it when somebody wants it",
    ("jupyter_gpupool.server.handlers", "jupyter_gpupool.server"): "handlers name the extension's type",
    (
        "jupyter_gpupool.server.kernels",
        "jupyter_gpupool.server",
    ): "the provisioner names the extension's type",
}


@dataclass(frozen=True, slots=True)
class Import:
    """One room's use of another.

    Attributes:
        importer: room of the module that imports.
        imported: room of the module that is imported.
        place: `path:line`.
        at_load: whether it happens when the module is loaded: neither in a function nor for the type checker only.
    """

    importer: str
    imported: str
    place: str
    at_load: bool


class Tree:
    """The Python files of packages, each with its module's name.

    Attributes:
        modules: name of each module, and its file.
    """

    def __init__(self, packages: Mapping[str, Path]) -> None:
        self.modules: dict[str, Path] = {}
        self._imports: list[Import] | None = None
        for package, root in packages.items():
            for path in sorted((root / package).rglob("*.py")):
                if not NOT_ROOMS & set(path.relative_to(root).parts) and "_pb2" not in path.name:
                    name = ".".join(path.relative_to(root).with_suffix("").parts)
                    self.modules[name.removesuffix(".__init__")] = path

    def rooms(self) -> dict[str, Path]:
        """The folders that hold Python files."""
        return {self.room(name): path.parent for name, path in self.modules.items()}

    def room(self, module: str) -> str:
        if self.modules[module].name != "__init__.py":
            return module.rpartition(".")[0]
        return module if "." in module or module not in FACES else f"{module}:face"

    def imports(self) -> list[Import]:
        """All imports from one room into another; looked for once."""
        if self._imports is None:
            self._imports = list(self._found())
        return self._imports

    def _found(self) -> Iterator[Import]:
        for module, path in self.modules.items():
            tree = ast.parse(path.read_text())
            for node, at_load in _statements(tree):
                for name in _named(node, module, path.name == "__init__.py"):
                    target = self._module_of(name)
                    if target is not None and self.room(target) != self.room(module):
                        place = f"{path.name}:{getattr(node, 'lineno', 0)} ({module})"
                        yield Import(self.room(module), self.room(target), place, at_load)

    def _module_of(self, name: str) -> str | None:
        """The module that has a name: itself, or the one in which it stands."""
        while name and name not in self.modules:
            if name.startswith("gpupool.proto.gpupool"):
                return "gpupool.proto"
            name = name.rpartition(".")[0]
        return name or None


def _statements(within: ast.AST, at_load: bool = True) -> Iterator[tuple[ast.stmt, bool]]:
    """All statements, and whether each runs when the module is loaded."""
    for node in ast.iter_child_nodes(within):
        if isinstance(node, ast.stmt):
            yield node, at_load
        if isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _statements(node, at_load and not _is_late(node))


def _is_late(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _named(node: ast.AST, module: str, is_package: bool) -> Iterator[str]:
    """Full names that a statement imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = module.split(".") if is_package else module.split(".")[:-1]
        above = base[: len(base) - node.level + 1] if node.level else []
        within = ".".join([*above, *([node.module] if node.module else [])])
        yield from (f"{within}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Assign):
        yield from _places(node.value)


def _places(value: ast.expr) -> Iterator[str]:
    """Modules that a table of commands names: `Row("up", "gpupool.cli.top.up:up")` loads one."""
    for call in ast.walk(value):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Row":
            yield from (str(ast.literal_eval(place)).partition(":")[0] for place in call.args[1:2])


def wrong_imports(tree: Tree) -> list[str]:
    """What the table does not allow."""
    return [
        f"{found.place}: {found.importer} imports {found.imported}"
        for found in tree.imports()
        if found.imported not in ROOMS.get(found.importer, "").split()
        and (found.at_load or (found.importer, found.imported) not in UPWARDS)
    ]


def unknown_rooms(tree: Tree) -> list[str]:
    return sorted(set(tree.rooms()) - set(ROOMS))


def crowded_rooms(tree: Tree) -> list[str]:
    found = []
    for room, folder in tree.rooms().items():
        siblings = [
            path
            for path in folder.iterdir()
            if path.is_file() and path.name not in ("__init__.py", "README.md")
        ]
        if len(siblings) > MOST_SIBLINGS:
            found.append(f"{room}: {len(siblings)} files")
    return found


@pytest.fixture(scope="module")
def tree() -> Tree:
    return Tree(PACKAGES)


class TestTheHouse:
    def test_every_folder_is_a_known_room_and_every_room_is_there(self, tree: Tree) -> None:
        assert unknown_rooms(tree) == []
        assert sorted(set(ROOMS) - set(tree.rooms())) == []

    def test_rooms_import_only_rooms_below_them(self, tree: Tree) -> None:
        assert wrong_imports(tree) == []

    def test_the_table_has_no_circle(self) -> None:
        lower: set[str] = set()
        for room, below in ROOMS.items():
            assert set(below.split()) <= lower, f"{room} names a room that is not above its line"
            lower.add(room)

    def test_the_table_allows_nothing_that_nobody_does(self, tree: Tree) -> None:
        done = {(found.importer, found.imported) for found in tree.imports()}
        allowed = {(room, below) for room, names in ROOMS.items() for below in names.split()} | set(UPWARDS)
        assert sorted(allowed - done) == []

    def test_no_room_is_crowded(self, tree: Tree) -> None:
        assert crowded_rooms(tree) == []

    def test_every_room_says_what_it_is(self, tree: Tree) -> None:
        lacking = [str(folder) for folder in tree.rooms().values() if not (folder / "README.md").is_file()]
        assert lacking == []


class TestMistakesAreNoticed:
    def made(self, root: Path, module: str, text: str = "") -> Tree:
        """A house with three rooms and one module more."""
        for known in ("gpupool.shares", "gpupool.pool.model.step", "gpupool.pool.queue.queue_pass", module):
            path = root.joinpath(*known.split(".")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text if known == module else "")
        return Tree({"gpupool": root})

    @pytest.mark.parametrize(
        "text",
        [
            "from gpupool.pool.queue.queue_pass import QueuePass",
            "from gpupool.pool.queue import queue_pass",
            "import gpupool.pool.queue.queue_pass as look",
            "from ..queue.queue_pass import QueuePass",
            "from ..queue import queue_pass",
            "rows = (Row('look', 'gpupool.pool.queue.queue_pass:look'),)",
        ],
    )
    def test_an_import_upwards(self, tmp_path: Path, text: str) -> None:
        found = wrong_imports(self.made(tmp_path, "gpupool.pool.model.bad", text))
        assert found == ["bad.py:1 (gpupool.pool.model.bad): gpupool.pool.model imports gpupool.pool.queue"]

    def test_an_import_within_a_function_unless_the_table_has_a_reason_for_it(self, tmp_path: Path) -> None:
        text = "def look():\n    from gpupool.pool.queue import queue_pass\n"
        assert wrong_imports(self.made(tmp_path / "known", "gpupool.pool.model.late", text)) == []
        assert len(wrong_imports(self.made(tmp_path / "not", "gpupool.ledger.late", text))) == 1

    def test_an_import_downwards_is_none(self, tmp_path: Path) -> None:
        text = "from gpupool.pool.model.step import Step"
        assert wrong_imports(self.made(tmp_path, "gpupool.pool.queue.good", text)) == []

    def test_a_folder_that_nobody_knows(self, tmp_path: Path) -> None:
        tree = self.made(tmp_path, "gpupool.pool.helpers.things", "from gpupool import shares")
        assert unknown_rooms(tree) == ["gpupool.pool.helpers"]
        assert len(wrong_imports(tree)) == 1

    def test_a_crowded_folder(self, tmp_path: Path) -> None:
        tree = self.made(tmp_path, "gpupool.names")
        for number in range(MOST_SIBLINGS):
            (tmp_path / "gpupool" / f"more_{number}.py").touch()
        assert crowded_rooms(tree) == ["gpupool: 42 files"]
