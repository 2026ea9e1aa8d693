"""What a JupyterHub says of the owner of a token, checked: nothing in it is taken as it comes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpupool.pool.access import validate

#: Longest answer that is read.
MOST_BYTES: Final = 1024 * 1024
#: Groups of one user.
MOST_GROUPS: Final = 1000


class HubAnswerUnusableError(ValueError):
    """The answer is not what a JupyterHub says, or names somebody who cannot be a user here; one sentence."""


@dataclass(frozen=True, slots=True)
class HubUser:
    """The owner of a JupyterHub token. `groups`: sorted; those whose names cannot be a member are left out."""

    name: str
    groups: tuple[str, ...] = ()
    admin: bool = False


def read(body: bytes) -> HubUser:
    """The answer of ``GET /hub/api/user``.

    Raises:
        HubAnswerUnusableError: it is out of bounds, or the token is not one of a user's own servers.
    """
    if len(body) > MOST_BYTES:
        raise HubAnswerUnusableError(f"JupyterHub's answer has more than {MOST_BYTES} bytes")
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        raise HubAnswerUnusableError("JupyterHub's answer is not JSON") from None
    if not isinstance(said, dict):
        raise HubAnswerUnusableError("JupyterHub's answer describes nobody")
    if said.get("kind", "user") != "user":
        raise HubAnswerUnusableError(
            f"the token is of a {str(said['kind'])[:20]!r}; only those of users are accepted"
        )
    name = said.get("name")
    if not isinstance(name, str) or not validate.is_person(name):
        raise HubAnswerUnusableError(
            f"JupyterHub's user {str(name)[:40]!r} cannot be a user here (1..128 characters, no spaces, neither @… nor *)"
        )
    _check_scopes(said, name)
    groups = said.get("groups", [])
    if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
        raise HubAnswerUnusableError(f"JupyterHub names no list of groups for {name}")
    if len(groups) > MOST_GROUPS:
        raise HubAnswerUnusableError(
            f"JupyterHub says that {name} is in {len(groups)} groups, more than {MOST_GROUPS}"
        )
    usable = sorted({group for group in groups if validate.is_group(group)})
    return HubUser(name, tuple(usable), said.get("admin") is True)


def _check_scopes(said: Mapping[str, Any], name: str) -> None:
    """A token that a service got from the user to know who they are must not let it act as the user here."""
    scopes = said.get("scopes")
    if not isinstance(scopes, list):
        raise HubAnswerUnusableError(
            "JupyterHub does not say what the token may do; version 2 or newer is needed"
        )
    whole = ("access:servers", f"access:servers!user={name}")
    if not any(scope in whole or str(scope).startswith(f"access:servers!server={name}/") for scope in scopes):
        raise HubAnswerUnusableError(
            f"this token of {name} is none of their own servers' (it does not say access:servers)"
        )
