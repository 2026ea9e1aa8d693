"""What of a pool server's environment a job may see."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

#: Secrets of a user's server, how it shows itself to a pool, and how a pool opens its database: no concern of an agent.
_KEPT: Final = re.compile(
    r"JUPYTER_TOKEN|JUPYTERHUB_.*|JPY_.*|GPUPOOL_(HUB_IDENTITY|ENDPOINT|TOKEN_FILE|LEDGER)"
    r"|PG(PASSWORD|PASSFILE|SERVICE|SERVICEFILE|USER|HOST|HOSTADDR|PORT|DATABASE|SSL.*)"
)


def for_an_agent(environment: Mapping[str, str]) -> dict[str, str]:
    """All but that."""
    return {name: value for name, value in environment.items() if not _KEPT.fullmatch(name)}
