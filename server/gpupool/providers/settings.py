"""The file that says which engines may lend nodes: TOML, a table for each provider.

[lab]
kind = "slurm"
maximum = 4
idle = "10m"
pool = "tls:login1:7460"
token_file = "/shared/gpupool/node.token"
partition = "gpu"
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpupool.durations import DurationError, parse_duration
from gpupool.providers.contract import Provider
from gpupool.providers.elasticity import Scale
from gpupool.providers.kinds import KINDS, Opening, Place, SettingsError
from gpupool.providers.offer import offer_of

_NAME: Final = re.compile(r"[a-z][a-z0-9]{0,15}", re.ASCII)
_MOST_BYTES: Final = 256 * 1024
_MOST_JOBS: Final = 1000
#: Keys of every provider, and what they must be.
_SCALE: Final = {"minimum": int, "maximum": int, "devices": int, "device_memory_mib": int, "node_pool": str}
_OFFER: Final = {"device_type": str}
_TIMES: Final = ("idle", "drain_before", "replace_before", "start")
_AGENT: Final = {"command": list, "node_options": list, "pool": str, "token_file": str}
_WORDS: Final = {int: "a whole number", str: "a text", list: "a list of texts", dict: "a table of texts"}


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """A table of the file, checked."""

    name: str
    kind: str
    scale: Scale
    agent: Mapping[str, Any]
    own: Mapping[str, Any]

    @property
    def elsewhere(self) -> bool:
        """Whether its agents are on other machines, and the table does not say what they dial."""
        return KINDS[self.kind].elsewhere and "pool" not in self.agent

    def needs_token(self, place: Place) -> bool:
        """Whether its agents need a token, and the table names none: the pool makes it then."""
        kind = KINDS[self.kind]
        gets_one = kind.elsewhere or (kind.token_is_handed and "existing_secret" not in self.own)
        named = "token_file" in self.agent
        return gets_one and not named and not self._endpoint(place).startswith("unix:")

    def open(self, place: Place, token_file: Path | None = None) -> Provider:
        """The provider.

        Args:
            place: where the pool is.
            token_file: a token that the pool made, see `needs_token`.

        Raises:
            SettingsError: values that do not go together, or a package that is missing.
        """
        kind = KINDS[self.kind]
        agent = [*self.agent.get("command", kind.command), "node", "start"]
        agent += ["--node-pool", self.scale.node_pool, "--pool", self._endpoint(place)]
        if place.leave_after is not None:
            agent += ["--leave-after", f"{place.leave_after:g}s"]
        agent += self.agent.get("node_options", ())
        token = self.agent.get("token_file", None if token_file is None else str(token_file))
        shared = kind.elsewhere and "token_file" not in self.agent
        return kind.open(Opening(self.name, place, agent, token, self.own, home_is_shared=shared))

    def _endpoint(self, place: Place) -> str:
        """What its agents dial. Raises SettingsError: nothing is known that they could."""
        if not self.elsewhere:
            return str(self.agent.get("pool", place.endpoint))
        if not place.reached_at:
            raise SettingsError(
                f"[{self.name}]: the nodes are on other machines, and the pool listens on this one alone; start it with "
                "--listen HOST:PORT, or name what they dial: pool"
            )
        return place.reached_at


def read(path: Path) -> list[ProviderSettings]:
    """All providers of a file.

    Raises:
        SettingsError: it cannot be read, or something in it is wrong.
    """
    found, wrong = read_each(path)
    for why in wrong.values():
        raise SettingsError(why)
    return found


def read_each(path: Path) -> tuple[list[ProviderSettings], dict[str, str]]:
    """The providers of a file that can be used; by name, what is wrong with the others.

    Raises:
        SettingsError: the file as a whole cannot be used.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise SettingsError(f"{path} is larger than {_MOST_BYTES // 1024} KiB")
        tables = tomllib.loads(text.decode())
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path} is no TOML: {error}") from error
    found, wrong = [], {}
    for name, table in tables.items():
        try:
            found.append(_provider(path, name, table))
        except SettingsError as error:
            wrong[name] = str(error)
    if not tables:
        raise SettingsError(f'{path} names no provider; write a table such as [lab] with kind = "slurm"')
    return found, wrong


def _provider(path: Path, name: str, table: Any) -> ProviderSettings:
    if not _NAME.fullmatch(name) or not isinstance(table, dict):
        raise SettingsError(
            f"{path}: {name[:40]!r} is no provider; names are up to 16 letters a-z and digits, in a table"
        )
    where = f"{path}, [{name}]"
    values = dict(table)
    named = values.pop("kind", None)
    if not isinstance(named, str) or named not in KINDS:
        raise SettingsError(f"{where}: kind is {str(named)[:40]!r}; it must be one of {', '.join(KINDS)}")
    kind = KINDS[named]
    times = {key: _time(where, key, values.pop(key)) for key in _TIMES if key in values}
    known = {**_SCALE, **_OFFER, **_AGENT, **kind.keys}
    for key, value in values.items():
        if key not in known:
            raise SettingsError(
                f"{where}: {key[:40]!r} is not known; known are {', '.join(sorted([*known, *_TIMES]))}"
            )
        _check(where, key, value, known[key])
    own = {key: value for key, value in values.items() if key in kind.keys}
    own |= {key: _time(where, key, own[key]) for key in kind.times if key in own}
    for key, what in kind.required.items():
        if key not in values:
            raise SettingsError(f"{where}: {key} is missing: {what}")
    sizes: dict[str, Any] = {key: value for key, value in values.items() if key in _SCALE}
    if "device_memory_mib" in sizes:
        sizes["device_mib"] = sizes.pop("device_memory_mib")
    offer = offer_of(values.get("device_type", ""), values.get("node_options", ()))
    scale = Scale(**{**sizes, **times}, offer=offer)
    check_scale(where, scale)
    limit = own.get("time_limit")
    if limit is not None and limit <= scale.lead:
        raise SettingsError(
            f"{where}: time_limit is {limit:g} s; it must be longer than drain_before ({scale.drain_before:g} s) and "
            f"replace_before ({scale.replace_before:g} s) together"
        )
    agent = {key: value for key, value in values.items() if key in _AGENT}
    return ProviderSettings(name, named, scale, agent, own)


def check_scale(where: str, scale: Scale) -> None:
    """Raises SettingsError unless the figures make sense together."""
    if not 0 <= scale.minimum <= scale.maximum <= _MOST_JOBS:
        raise SettingsError(
            f"{where}: minimum {scale.minimum} and maximum {scale.maximum} must be 0 <= minimum <= maximum <= {_MOST_JOBS}"
        )
    if not 1 <= scale.devices <= 64 or scale.device_mib < 1:
        raise SettingsError(f"{where}: devices must be 1..64, and device_memory_mib at least 1")


def changed(where: str, scale: Scale, limits: Mapping[str, float]) -> Scale:
    """With what `gpupool provider scale` has set: `minimum`, `maximum`, `idle`.

    The file and what was set may change without each other; a minimum counts no more than the maximum then.

    Raises:
        SettingsError: the figures make no sense together.
    """
    maximum = int(limits.get("maximum", scale.maximum))
    new = dataclasses.replace(
        scale,
        minimum=min(int(limits.get("minimum", scale.minimum)), maximum),
        maximum=maximum,
        idle=float(limits.get("idle", scale.idle)),
    )
    check_scale(where, new)
    return new


def _check(where: str, key: str, value: Any, kind: type) -> None:
    good = isinstance(value, kind) and not isinstance(value, bool)
    if kind is list and good:
        good = all(isinstance(item, str) for item in value)
    if kind is dict and good:
        good = all(isinstance(item, str) for item in value.values())
    if not good:
        raise SettingsError(f"{where}: {key} is {str(value)[:40]!r}; it must be {_WORDS[kind]}")
    text = [*value, *value.values()] if kind is dict else value if kind is list else [value]
    if kind is not int and key != "prolog" and any("\n" in item or "\0" in item for item in text):
        raise SettingsError(f"{where}: {key} may not hold a line break")


def _time(where: str, key: str, value: Any) -> float:
    try:
        return parse_duration(str(value))
    except DurationError as error:
        raise SettingsError(f"{where}: {key}: {error}") from None
