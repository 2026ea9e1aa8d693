"""Dependencies point one way (docs/contributing/architecture.md): jupyter_gpupool → gpupool.client → gRPC, native libraries."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SERVER = ROOT / "server" / "gpupool"
JUPYTER = ROOT / "jupyter_gpupool"


def ran(code: str) -> subprocess.CompletedProcess[str]:
    """What a fresh Python says of a program."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def imports(path: Path, package: str) -> Iterator[tuple[str, int]]:
    """Every absolute module name that `path` imports, relative imports resolved, with its line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = package.split(".")[: len(package.split(".")) - node.level + 1]
                name = ".".join([*base, node.module] if node.module else base)
            else:
                name = node.module or ""
            yield name, node.lineno
            for alias in node.names:
                yield f"{name}.{alias.name}", node.lineno


def sources(folder: Path, root: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(folder.rglob("*.py")):
        if "_pb2" in path.name or "node_modules" in path.parts:
            continue
        parts = path.relative_to(root).with_suffix("").parts
        yield path, ".".join(parts[:-1])


def offenders(folder: Path, root: Path, forbidden: tuple[str, ...]) -> list[str]:
    found = []
    for path, package in sources(folder, root):
        for name, line in imports(path, package):
            if any(name == ban or name.startswith(ban + ".") for ban in forbidden):
                found.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    return found


JUPYTER_NAMES = (
    "jupyter_gpupool",
    "jupyter_server",
    "jupyterlab",
    "jupyter_client",
    "IPython",
    "ipykernel",
    "tornado",
)
SERVER_PARTS = tuple(
    f"gpupool.{part}"
    for part in ("model", "pool", "ledger", "scheduler", "simulation", "node", "engines", "cli")
)
RULES = {
    "the pool side never imports Jupyter": (SERVER, SERVER.parent, JUPYTER_NAMES),
    "the client library imports no server part": (
        SERVER / "client",
        SERVER.parent,
        (*SERVER_PARTS, "sqlalchemy", "typer"),
    ),
    "the Jupyter side imports the client library only": (JUPYTER, ROOT, SERVER_PARTS),
    "the ledger stores what the pool decides and knows nothing of how": (
        SERVER / "ledger",
        SERVER.parent,
        ("gpupool.pool", "gpupool.node", "gpupool.cli"),
    ),
    "the records know neither who decides by them nor who stores them": (
        SERVER / "model",
        SERVER.parent,
        ("gpupool.pool", "gpupool.ledger", "gpupool.node", "gpupool.cli", "sqlalchemy", "grpc", "asyncio"),
    ),
    "the scheduler is pure": (
        SERVER / "scheduler",
        SERVER.parent,
        (
            "time",
            "datetime",
            "asyncio",
            "socket",
            "sqlalchemy",
            "grpc",
            "os",
            "random",
            "gpupool.model",
            "gpupool.pool",
            "gpupool.ledger",
        ),
    ),
    "the kernel side imports no server": (
        JUPYTER / "kernel",
        ROOT,
        (
            "jupyter_server",
            "jupyterlab",
            "tornado",
            "jupyter_gpupool.server",
        ),
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_imports_point_one_way(rule: str) -> None:
    folder, root, forbidden = RULES[rule]
    assert folder.is_dir()
    assert offenders(folder, root, forbidden) == []


def test_the_life_cycle_machine_has_no_clock_and_no_socket() -> None:
    path = SERVER / "pool" / "lifecycle" / "machine.py"
    names = {name for name, _ in imports(path, "gpupool.pool.lifecycle")}
    assert not names & {"time", "asyncio", "socket", "grpc", "sqlalchemy", "random"}


#: The machine of a holder's session: events in, a new record and instructions out.
MACHINE = ("call_message", "events", "notice", "record", "reset", "state", "words")


@pytest.mark.parametrize("module", MACHINE)
def test_the_machine_of_a_session_has_no_clock_and_no_file(module: str) -> None:
    path = SERVER / "client" / "session" / f"{module}.py"
    names = {name for name, _ in imports(path, "gpupool.client.session")}
    pure = {f"gpupool.client.session.{other}" for other in MACHINE}
    pure |= {
        "gpupool.client.granted_size",
        "gpupool.client.reasons",
        "gpupool.client.types",
        "gpupool.sentences",
        "gpupool.shares",
    }
    plain = {"__future__", "collections.abc", "dataclasses", "enum", "math", "typing"}
    allowed = tuple(f"{module}." for module in pure | plain)
    assert [name for name in sorted(names) if not f"{name}.".startswith(allowed)] == []


def test_the_rules_notice_a_wrong_import(tmp_path: Path) -> None:
    package = tmp_path / "scheduler"
    package.mkdir()
    (package / "bad.py").write_text("from ..pool import service\n")
    names = {name for name, _ in imports(package / "bad.py", "gpupool.scheduler")}
    assert "gpupool.pool" in names


def test_the_client_library_loads_without_jupyter_or_server_packages() -> None:
    code = (
        "import sys, gpupool.client.pool, gpupool.client.session_file, gpupool.client.runtime, gpupool.shares;"
        "heavy = {'jupyter_server', 'IPython', 'sqlalchemy', 'typer', 'tornado', 'numba'} & set(sys.modules);"
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    done = ran(code)
    assert done.returncode == 0, done.stderr


def test_the_command_line_starts_without_what_serves() -> None:
    """Commands that ask a pool, and the Tab key, would wait for it."""
    code = (
        "import sys, typer.main;"
        "from gpupool.cli.common.groups import commands_below; from gpupool.cli.main import app;"
        "commands = list(commands_below(typer.main.get_command(app)));"
        "assert len(commands) > 40, commands;"
        "heavy = {'numpy', 'sqlalchemy', 'structlog', 'gpupool.scheduler', 'gpupool.ledger.ledger'} & set(sys.modules);"
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    done = ran(code)
    assert done.returncode == 0, done.stderr


def test_a_command_starts_without_the_others() -> None:
    code = (
        "import sys, typer.main; from gpupool.cli.main import app;"
        "program = typer.main.get_command(app);"
        "program.commands['node'].commands['drain'];"
        "loaded = {name for name in sys.modules if name.startswith('gpupool.cli.')};"
        "others = loaded & {'gpupool.cli.bench', 'gpupool.cli.kernel_packs', 'gpupool.cli.node.start', 'gpupool.cli.top.lab'};"
        "sys.exit(f'loaded: {others}' if others or 'gpupool.cli.node.drain' not in loaded else 0)"
    )
    done = ran(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command", ["run", "smi", "explain", "health", "lease", "gpu", "session", "report", "pool queue"]
)
def test_a_users_command_needs_nothing_of_a_pool_server(command: str) -> None:
    """The extra `jupyter` brings typer and rich, and none of these."""
    code = (
        "import sys;"
        "missing = ('cryptography', 'grpc_health', 'numpy', 'prometheus_client', 'pynvml', 'sqlalchemy', 'stamina', 'structlog');"
        "sys.modules.update(dict.fromkeys(missing));"
        "import gpupool.cli.top.run_command; from gpupool.cli.main import app;"
        f"app({[*command.split(), '--help']})"
    )
    done = ran(code)
    assert done.returncode == 0, done.stderr


def test_where_only_the_kernels_part_is_installed_the_command_says_what_is_missing() -> None:
    code = "import sys; sys.modules['typer'] = None; from gpupool.cli.entry import main; main()"
    done = ran(code)
    assert done.returncode == 1
    assert "pip install 'jupyter-gpupool[jupyter]'" in done.stderr and "Traceback" not in done.stderr
