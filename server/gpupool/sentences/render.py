"""The words of a sentence, by the templates of `catalogue.json`. The page renders the same (`labextension/src/text/sentence.ts`).

A template names its parameters: ``{device}``, or ``{free:left}`` with a style. One that depends on a number has two forms:
``{"by": "count", "one": …, "other": …}``. A parameter that is not there is nothing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from gpupool.sentences.param import Param
from gpupool.sentences.sentence import Sentence
from gpupool.shares import WHOLE_DEVICE_MILLI, format_milli, format_share, offered_milli

CATALOGUE: Final = Path(__file__).with_name("catalogue.json")
_PLACE: Final = re.compile(r"\{(\w+)(?::(\w+))?\}")
#: What stands between the items of a list, by style.
_BETWEEN: Final = {"": ", ", "clauses": "; ", "and": " and ", "words": " "}
_ANOTHER: Final = "another user"


@cache
def catalogue() -> Mapping[str, str | Mapping[str, str]]:
    """Templates, by id."""
    found: dict[str, str | Mapping[str, str]] = json.loads(CATALOGUE.read_text(encoding="utf-8"))
    return found


def render(sentence: Sentence) -> str:
    """The words. A user's name that was left out becomes ``another user``; of an unknown id, the id stands for itself."""
    if not sentence:
        return ""
    template = catalogue().get(sentence.code, sentence.code)
    if not isinstance(template, str):
        template = template["one" if sentence.params[template["by"]].value == 1 else "other"]
    return _PLACE.sub(lambda place: _shown(sentence.params.get(place[1]), place[2] or ""), template)


def _shown(param: Param | None, style: str) -> str:
    return "" if param is None else _SHOWN[param.kind](param, style)


def _milli(param: Param, style: str) -> str:
    text = _ROUNDED[style](param.value)
    if style in ("short", "least", "written"):
        return text
    if style == "gpus":
        return f"{text} GPU" if param.value == WHOLE_DEVICE_MILLI else f"{text} GPUs"
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction:0<2}"


def _up(milli: int) -> str:
    return format_milli(milli if milli < 10 else -(-milli // 10) * 10)


#: Two decimals at most. Room is rounded down and what is lacking up, so that what is asked then fits; what somebody has
#: written or set is as it was written.
_ROUNDED: Final[Mapping[str, Callable[[int], str]]] = {
    "": format_share,
    "short": format_share,
    "gpus": format_share,
    "left": lambda milli: format_milli(offered_milli(milli)),
    "lacking": _up,
    "least": _up,
    "set": format_milli,
    "written": format_milli,
}


def _mib(param: Param, style: str) -> str:
    value: int = param.value
    if style == "bare":
        return str(value)
    if style == "share":
        return f"{value}MiB"
    if style == "memory" and value >= 1024:
        tenths = (value * 10 + 512) // 1024
        return f"{tenths // 10}.{tenths % 10} GiB"
    return f"{value} MiB"


def _seconds(param: Param, style: str) -> str:
    whole = _rounded(param.value)
    if style == "exact":
        return f"{_exact(param.value)} s"
    if style == "tenths":
        tenths = _rounded(param.value * 10)
        return f"{tenths // 10}.{tenths % 10} s"
    if style != "long" or whole < 120:
        return f"{whole} s"
    minutes = -(-whole // 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def _number(param: Param, style: str) -> str:
    if style == "gpu_time":
        return _gpu_time(param.value)
    return str(_rounded(param.value))


def _gpu_time(gpu_seconds: float) -> str:
    whole = _rounded(gpu_seconds)
    if whole < 120:
        return "1 GPU second" if whole == 1 else f"{whole} GPU seconds"
    if whole < 7200:
        return f"{_rounded(whole / 60)} GPU minutes"
    tenths = _rounded(whole / 360)
    return f"{tenths // 10}.{tenths % 10} GPU hours" if tenths % 10 else f"{tenths // 10} GPU hours"


def _user(param: Param, style: str) -> str:
    name = param.value or _ANOTHER
    return f"user {name}" if style == "named" and param.value else name


def _list(param: Param, style: str) -> str:
    return _BETWEEN[style].join(shown for item in param.value if (shown := _shown(item, "")))


def _rounded(value: float) -> int:
    return math.floor(value + 0.5)


def _exact(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.6g}"


def _as_it_is(param: Param, _: str) -> str:
    return str(param.value)


#: How a parameter is shown, by its kind.
_SHOWN: Final[Mapping[str, Callable[[Param, str], str]]] = {
    "milli": _milli,
    "mib": _mib,
    "seconds": _seconds,
    "number": _number,
    "count": _as_it_is,
    "user": _user,
    "device": _as_it_is,
    "node": _as_it_is,
    "project": _as_it_is,
    "text": _as_it_is,
    "sentence": lambda param, _: render(param.value),
    "list": _list,
}
