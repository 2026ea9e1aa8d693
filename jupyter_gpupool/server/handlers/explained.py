"""Why a request waits, as front ends show it: the pool's explanation, its advice as requests that can be made."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import asdict
from typing import Any, NoReturn

from gpupool.client.types import Explanation, Help


class _Unreadable(Exception):
    """Not an advice that this version understands."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Unreadable(message)


def _parser() -> argparse.ArgumentParser:
    """The options of ``gpupool request`` that make an attach request."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("-p", "--partial", dest="share")
    parser.add_argument("-m", "--memory", dest="memory")
    parser.add_argument("-n", "--num-gpus", dest="count", type=int)
    parser.add_argument("--nodes")
    parser.add_argument("--strict", action="store_true", default=None)
    parser.add_argument("--project")
    parser.add_argument("--kind")
    parser.add_argument("--priority", type=int)
    parser.add_argument("--filter", dest="filters", action="append")
    parser.add_argument("--node-pool", dest="node_pools", action="append")
    return parser


def attach_body(arguments: str) -> dict[str, Any] | None:
    """The body of the attach request that ``arguments`` of ``gpupool request`` write; None: there is none."""
    if not arguments.strip():
        return None
    try:
        given = vars(_parser().parse_args(shlex.split(arguments)))
    except (_Unreadable, ValueError):
        return None
    body = {key: value for key, value in given.items() if value is not None}
    memory = body.pop("memory", None)
    if memory is not None:
        body["share"] = f"{memory}MiB" if memory.isdecimal() else memory
    return body if "share" in body else None


def explanation_view(explanation: Explanation | None) -> dict[str, Any] | None:
    if explanation is None:
        return None
    return {
        **asdict(explanation),
        "said": explanation.said.as_json(),
        "facts": dict(explanation.facts),
        "helps": [_help_view(item) for item in explanation.helps],
    }


def _help_view(item: Help) -> dict[str, Any]:
    """``ask``: the attach request that would be granted now; None: it is not a matter of asking otherwise."""
    return {
        "action": item.action,
        "sentence": item.sentence,
        "said": item.said.as_json(),
        "ask": attach_body(item.arguments),
    }
