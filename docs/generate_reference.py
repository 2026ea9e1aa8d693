"""Writes the pages of the reference that the sources know: `python docs/generate_reference.py [FOLDER]`.

`make docs` runs it before Sphinx reads the pages. The folder, docs/reference/generated, is not kept in version control,
so the pages cannot become out of date.
"""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference" / "generated"


def write(folder: Path = FOLDER) -> None:
    """Writes every page; one that is the same is left alone, so that Sphinx reads only what changed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def pages() -> dict[str, str]:
    """Each page by its file's name."""
    return {
        "cli.md": cli_page(),
        "settings.md": settings_page(),
        "rest.md": rest_page(),
        "grpc.md": grpc_page(),
        "support-matrix.md": support_matrix_page(),
        "math-libraries-coverage.md": math_libraries_page(),
    }


def cell(text: str) -> str:
    """A text for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def literal(text: str) -> str:
    """The same as code; a bar ends the cell even there."""
    return f"`{' '.join(text.split())}`".replace("|", "\\|") if text.strip() else ""


# ------------------------------------------------------------------------------------------------ commands


def cli_page() -> str:
    """All commands from the command line itself: what `--help` prints, as a page."""
    import typer
    from gpupool.cli.main import app

    top = typer.main.get_command(app)
    lines = [
        "# Commands",
        "",
        "This page comes from the program: `gpupool COMMAND --help` prints the same.",
        "[Exit codes](../exit-codes.md) are the same for all commands.",
        "",
    ]
    for path, command in commands("gpupool", top):
        lines += command_section(path, command)
    return "\n".join(lines)


def commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Each command with its whole name, groups before their members."""
    if command.hidden:
        return
    yield path, command
    for name, member in getattr(command, "commands", {}).items():
        yield from commands(f"{path} {name}", member)


def command_section(path: str, command: Any) -> list[str]:
    """Heading, text, examples and the table of options of one command."""
    members = getattr(command, "commands", None)
    lines = [f"{'##' if members or path.count(' ') < 2 else '###'} {path}", ""]
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
        kept = "\b" in paragraph or re.search(r"^\s+\S|^Examples?:", paragraph, re.MULTILINE)
        paragraph = paragraph.replace("\b\n", "").replace("\b", "")
        if kept:
            first, _, rest = paragraph.partition("\n")
            if first.rstrip().endswith(":"):
                lines += [first.strip(), ""]
                paragraph = rest
            lines += ["```console", inspect.cleandoc(paragraph), "```", ""]
        else:
            lines += [" ".join(paragraph.split()).replace("<", "&lt;"), ""]
    if members:
        lines += ["| command | |", "|---|---|"]
        lines += [
            f"| `{path} {name}` | {cell(member.get_short_help_str(200))} |"
            for name, member in members.items()
            if not member.hidden
        ]
        return [*lines, ""]
    rows = []
    for option in command.params:
        if getattr(option, "hidden", False) or option.name == "help":
            continue
        is_argument = option.param_type_name == "argument"
        names = (
            (option.metavar or option.name.upper())
            if is_argument
            else ", ".join((*option.opts, *option.secondary_opts))
        )
        value = "" if is_argument or getattr(option, "is_flag", False) else (option.metavar or "")
        default = getattr(option, "show_default", None)
        text = getattr(option, "help", "") or ""
        named = re.search(r"\s*\[default: ([^\]]+)\]", text)
        shown = default if isinstance(default, str) else named[1] if named else ""
        text = text.replace(named[0], "") if named else text
        if not shown and default is not False and isinstance(option.default, (str, int, float)):
            shown = "" if isinstance(option.default, bool) else str(option.default)
        rows.append(f"| {literal(f'{names} {value}')} | {cell(text)} | {cell(shown)} |")
    if rows:
        lines += ["| option | meaning | default |", "|---|---|---|", *rows, ""]
    return lines


# ------------------------------------------------------------------------------------------------ settings


#: What people may set, of all callers of a pool; an option whose help names another one is an error.
VARIABLES = {
    "GPUPOOL_CA_FILE": "The authority of the pool's certificate (PEM), if this system doesn't know it",
    "GPUPOOL_ENDPOINT": "The pool: `unix:PATH`, `HOST:PORT` or `tls:HOST:PORT`",
    "GPUPOOL_HOME": "The folder of a pool's ledger and socket, and of a node's files: `~/.local/state/gpupool`",
    "GPUPOOL_HUB_IDENTITY": "`1`: the pool knows you by the token of your JupyterHub server",
    "GPUPOOL_LABEL": "The name of a program or kernel in lists, if it asks the pool itself",
    "GPUPOOL_LEDGER": "The ledger in PostgreSQL, in place of the file in `$GPUPOOL_HOME`",
    "GPUPOOL_TOKEN_FILE": "The file with your token",
}


def settings_page() -> str:
    """Settings of the Jupyter server and of the page, and the variables that commands read."""
    import typer
    from gpupool.cli.main import app

    from jupyter_gpupool.server.extension import GpuPoolExtension

    lines = [
        "# Settings",
        "",
        "## The Jupyter server",
        "",
        "Set these in `jupyter_server_config.py`. "
        "[Configure the Jupyter server](../../how-to/jupyter-settings.md) explains them.",
        "",
        "| setting | default | meaning |",
        "|---|---|---|",
    ]
    for name, trait in sorted(GpuPoolExtension.class_own_traits(config=True).items()):
        help_ = " ".join((trait.help or "").split())
        said = re.search(r" Default: (.+)\.$", help_)  # one that depends on the server is told in words
        static = "" if trait.default_value in ("", None) else literal(repr(trait.default_value))
        default = said[1] if said else static
        help_ = help_.removesuffix(said[0]) if said else help_
        lines.append(f"| `c.GpuPoolExtension.{name}` | {cell(default)} | {cell(help_)} |")
    schema = json.loads((ROOT / "labextension" / "schema" / "plugin.json").read_text())
    lines += [
        "",
        "## JupyterLab",
        "",
        "These are in *Settings → GPU Pool*.",
        "",
        "| setting | default | meaning |",
        "|---|---|---|",
    ]
    for value in schema["properties"].values():
        lines.append(
            f"| {cell(value.get('title', ''))} | {cell(literal(json.dumps(value.get('default'))))} "
            f"| {cell(value.get('description', ''))} |"
        )
    options: dict[str, set[str]] = {name: set() for name in VARIABLES}
    for _, command in commands("gpupool", typer.main.get_command(app)):
        for option in command.params:
            default = re.search(r"\[default: ([^\]]+)\]", getattr(option, "help", "") or "")
            for name in re.findall(r"\$(GPUPOOL_[A-Z_]+)", default[1] if default else ""):
                options[name].add(option.opts[0])
    lines += [
        "",
        "## Environment variables",
        "",
        "Commands use these if you don't give the option. Some have no option. Those of the software GPU are in "
        "[its reference](../software-gpu.md#variables).",
        "",
        "| variable | meaning | option |",
        "|---|---|---|",
    ]
    for name, meaning in VARIABLES.items():
        lines.append(
            f"| `{name}` | {meaning} | {', '.join(f'`{option}`' for option in sorted(options[name]))} |"
        )
    return "\n".join([*lines, ""])


# ------------------------------------------------------------------------------------------------ REST


def rest_page() -> str:
    """Every route, with its body and answer, from the description that the server also serves."""
    from jupyter_gpupool.server.rest.document import document
    from jupyter_gpupool.server.rest.routes import ROUTES

    described = document()
    lines = [
        "# REST routes",
        "",
        "Paths are below `<base_url>/gpupool/`. [The interface](../rest.md) describes tokens and refusals.",
        "",
    ]
    for title, prefix in (("For people and programs", "api/"), ("For kernels", "self/")):
        lines += [f"## {title}", "", "| method | path | effect |", "|---|---|---|"]
        lines += [
            f"| `{route.method}` | `{route.path}` | {route.does} |"
            for route in ROUTES
            if route.path.startswith(prefix)
        ]
        lines.append("")
    lines += ["## Shapes", "", "A question mark means that the field may be missing.", ""]
    for name, schema in sorted(described["components"]["schemas"].items()):
        lines += [f"### {name}", ""]
        if text := schema.get("description"):
            lines += [cell(text), ""]
        if not schema.get("properties"):
            lines += [literal(kind_of(schema)), ""]
            continue
        lines += ["| field | type | meaning |", "|---|---|---|"]
        required = schema.get("required", [])
        for field, value in schema["properties"].items():
            missing = "" if field in required else "?"
            lines.append(
                f"| `{field}{missing}` | {cell(literal(kind_of(value)))} | {cell(value.get('description', ''))} |"
            )
        lines.append("")
    return "\n".join(lines)


def kind_of(schema: dict[str, Any]) -> str:
    """The type of a value in one line."""
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema["enum"])
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " or ".join(kind_of(one) for one in schema[several])
    if schema.get("type") == "array":
        return f"list of {kind_of(schema.get('items', {}))}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {kind_of(schema['additionalProperties'])}"
    return str(schema.get("type", "any"))


# ------------------------------------------------------------------------------------------------ gRPC


def grpc_page() -> str:
    """Services and messages with the comments of the proto file."""
    from google.protobuf import descriptor_pb2

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "pool.binpb"
        subprocess.run(
            [
                sys.executable, "-m", "grpc_tools.protoc", "-I", "server", "--include_source_info",
                f"--descriptor_set_out={out}", "gpupool/proto/gpupool/v1/pool.proto",
            ],
            cwd=ROOT,
            check=True,
        )  # fmt: skip
        (file,) = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    said = {
        tuple(place.path): " ".join(f"{place.leading_comments} {place.trailing_comments}".split())
        for place in file.source_code_info.location
    }
    lines = [
        "# gRPC interface",
        "",
        f"Package `{file.package}`. The Jupyter server, `gpupool run`, the command line and nodes call the pool by it. "
        "Quantities are milli-GPU (1 to 1000 of one device) and MiB.",
        "",
    ]
    for number, service in enumerate(file.service):
        lines += [f"## {service.name}", "", said.get((6, number), ""), ""]
        lines += ["| call | request | answer | effect |", "|---|---|---|---|"]
        for at, method in enumerate(service.method):
            asked = ("stream of " if method.client_streaming else "") + method.input_type.rsplit(".", 1)[-1]
            answer = ("stream of " if method.server_streaming else "") + method.output_type.rsplit(".", 1)[-1]
            lines.append(
                f"| `{method.name}` | `{asked}` | `{answer}` | {cell(said.get((6, number, 2, at), ''))} |"
            )
        lines.append("")
    lines += ["## Messages", ""]
    kinds = descriptor_pb2.FieldDescriptorProto
    for number, message in enumerate(file.message_type):
        lines += [f"### {message.name}", "", said.get((4, number), ""), ""]
        if message.field:
            lines += ["| field | type | meaning |", "|---|---|---|"]
        for at, field in enumerate(message.field):
            kind = field.type_name.rsplit(".", 1)[-1] or kinds.Type.Name(field.type)[5:].lower()
            many = "repeated " if field.label == kinds.LABEL_REPEATED else ""
            lines.append(f"| `{field.name}` | `{many}{kind}` | {cell(said.get((4, number, 2, at), ''))} |")
        lines.append("")
    for number, kind in enumerate(file.enum_type):
        lines += [f"### {kind.name}", "", said.get((5, number), ""), "", "| value | meaning |", "|---|---|"]
        lines += [
            f"| `{value.name}` | {cell(said.get((5, number, 2, at), ''))} |"
            for at, value in enumerate(kind.value)
        ]
        lines.append("")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines))


# ------------------------------------------------------------------------------------------------ support


def support_matrix_page() -> str:
    """Versions from pyproject.toml, and how much of each CUDA interface there is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = {
        re.split(r"[><=~\[;]", text)[0].strip(): text
        for text in (*project["dependencies"], *extras["jupyter"], *extras["pool"])
    }
    lines = [
        "# Support matrix",
        "",
        "Some programs ran on [one H200](../../measurements/2026-11-27-h200.md); [limits](../limits/index.md#which-programs) "
        "lists them. Everything else was tested on software GPUs only.",
        "",
        "## Versions",
        "",
        "| part | version |",
        "|---|---|",
        "| system | Linux on x86-64 |",
        f"| Python | {project['requires-python']} |",
    ]
    for name in ("jupyterlab", "notebook", "jupyter-server", "ipykernel", "ipython", "anywidget", "grpcio"):
        lines.append(f"| {name} | {literal(needed[name].removeprefix(name))} |")
    lines += [
        "| NVIDIA's driver | 550 or newer; 570 to move parked memory, 580 to resume on another device |",
        "| CUDA runtime API | 12 and 13 |",
        "",
        "## CUDA interfaces",
        "",
        "| interface | exported | supported |",
        "|---|---|---|",
        driver_row(),
    ]
    for name, total, carried in library_counts():
        lines.append(f"| `{name}` | {total} | {carried} |")
    lines += ["", "[Math libraries: functions](math-libraries-coverage.md) has the reasons for the rest.", ""]
    return "\n".join(lines)


def driver_row() -> str:
    """The driver API, counted in the table that makes both ends of the protocol."""
    folder = ROOT / "src" / "protocol"
    sys.path.insert(0, str(folder))
    try:
        import cuda_header
        import find_cuda_headers
        import table

        exports = table.load(folder / "driver", cuda_header.load(find_cuda_headers.find())).exports
    finally:
        sys.path.remove(str(folder))
    supported = sum(export.kind != "unsupported" for export in exports.values())
    return f"| driver API (`libcuda.so.1`) | {len(exports)} | {supported} |"


def _library_coverage() -> Any:
    folder = ROOT / "src" / "libraries"
    sys.path.insert(0, str(folder))
    try:
        import library_coverage

        return library_coverage
    finally:
        sys.path.remove(str(folder))


def library_counts() -> list[tuple[str, int, int]]:
    """Of each math library: its name, its functions, those that are carried."""
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (\d+) \|", _library_coverage().page(), re.MULTILINE)
    return [(name, int(total), int(carried)) for name, total, carried in rows]


def math_libraries_page() -> str:
    """What of each math library is carried, from its table."""
    return str(_library_coverage().page())


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
