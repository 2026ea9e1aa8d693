"""The coverage page: what is answered how, from the table."""

from __future__ import annotations

from collections import Counter

from table import Export, Table


def _kind(export: Export, table: Table) -> str:
    return table.exports[export.alias].kind if export.alias else export.kind


def page(table: Table) -> str:
    """Markdown: counts by class, then every export."""
    kinds = {name: _kind(export, table) for name, export in table.exports.items()}
    counts = Counter(kinds.values())
    version = f"{table.header.version // 1000}.{table.header.version % 1000 // 10}"
    supported = len(kinds) - counts["unsupported"]
    lines = [f"# Driver API coverage (cuda.h {version})", ""]
    lines += [
        f"{len(kinds)} exports, {supported} supported ({supported / len(kinds):.1%}); of the others each has a reason.",
        "",
    ]
    lines += ["| class | exports | meaning |", "|---|---|---|"]
    meaning = {
        "local": "answered by the client, or composed there of internal messages",
        "post": "one message, no reply",
        "ask": "one message and its reply",
        "unsupported": "`CUDA_ERROR_NOT_SUPPORTED`, named once in the log",
    }
    lines += [f"| {kind} | {counts[kind]} | {text} |" for kind, text in meaning.items()]
    lines += ["", "| export | class | note |", "|---|---|---|"]
    for name in sorted(kinds):
        export = table.exports[name]
        note = f"as `{export.alias}`" if export.alias else export.reason
        lines.append(f"| `{name}` | {kinds[name]} | {note} |")
    return "\n".join(lines) + "\n"
