"""From a file of settings to the loop that makes the pool grow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from gpupool.pool.growing.book import LedgerBook
from gpupool.pool.growing.node_tokens import Tokens, token_file
from gpupool.pool.growing.pool_side import PoolSide
from gpupool.pool.lifecycle.shell import PoolShell
from gpupool.providers.grower import Grower
from gpupool.providers.kinds import Place, SettingsError
from gpupool.providers.provided import Pace
from gpupool.providers.settings import ProviderSettings

logger = structlog.get_logger(__name__)

#: Agents end so long after a pool that took its nodes' lives with it, seconds: it may only be starting again.
_LEAVE_AFTER: Final = 120.0


@dataclass(frozen=True, slots=True)
class Grounds:
    """What the server tells about itself.

    Attributes:
        home: its directory.
        socket: where it listens on this machine.
        reached_at: what other machines dial; empty: they cannot.
        ca_file: the authority of the certificate there, if only this pool knows it.
        return_nodes: nodes live no longer than this server.
        timers_scale: all times this; for tests.
        tokens: of nodes.
    """

    home: Path
    socket: Path
    tokens: Tokens
    reached_at: str = ""
    ca_file: Path | None = None
    return_nodes: bool = False
    timers_scale: float = 1.0


def grower(
    pool: PoolShell,
    settings: list[ProviderSettings],
    grounds: Grounds,
    unusable: dict[str, str] | None = None,
) -> Grower:
    """The loop, with the jobs of before.

    Args:
        pool: that grows.
        settings: of the providers.
        grounds: what the server is.
        unusable: providers that cannot be used, with the reason: those found here are added, and the loop does without
            them. None: one is enough to raise.

    Raises:
        OSError: a token cannot be written.
        SettingsError: a provider cannot be opened, or nodes would be drained so late that their leases have no time to
            leave.
        ValueError: the ledger holds jobs that are none.
    """
    book = LedgerBook(pool.ledger)
    place = Place(
        grounds.home, f"unix:{grounds.socket}", book.pool_id, grounds.reached_at, grounds.ca_file,
        _LEAVE_AFTER * grounds.timers_scale if grounds.return_nodes else None,
    )  # fmt: skip
    providers = {}
    for one in settings:
        try:
            _check_time_to_leave(one, pool.timers.notice)
            providers[one.name] = one.open(place, _token(one, place, grounds)), one.scale
        except (SettingsError, OSError) as error:
            if unusable is None:
                raise
            unusable[one.name] = str(error)
    _warn_of_unnamed(book, {*providers, *(unusable or ())})
    pace = Pace(*(seconds * grounds.timers_scale for seconds in (5.0, 60.0, 10.0, 60.0)))
    return Grower(book, PoolSide(pool), providers, pace, unusable=unusable or ())


def check_usable(settings: list[ProviderSettings], home: Path, reached_at: str, notice: float) -> None:
    """Raises SettingsError: a server that leads could not use one of them; nothing is started or asked."""
    for one in settings:
        _check_time_to_leave(one, notice)
        # What marks the pool's jobs is in its ledger; nothing is looked for by it here.
        one.open(Place(home, "unix:", "standby", reached_at))


def with_jobs(pool: PoolShell) -> set[str]:
    """Providers that have jobs in the ledger, named in the settings or not. Raises ValueError: some are none."""
    return {job.provider for job in LedgerBook(pool.ledger).jobs().values()}


def _warn_of_unnamed(book: LedgerBook, names: set[str]) -> None:
    """Jobs of a provider that was renamed or taken out of the file: no provider ends them."""
    living = [job for job in book.jobs().values() if job.phase != "over"]
    for name in {job.provider for job in living} - names:
        logger.warning(
            "the settings do not name a provider that has jobs; end them in its engine",
            provider=name,
            jobs=[job.id for job in living if job.provider == name],
        )


def _token(settings: ProviderSettings, place: Place, grounds: Grounds) -> Path | None:
    if not settings.needs_token(place):
        return None
    return token_file(grounds.tokens, grounds.home / "providers", settings.name)


def _check_time_to_leave(settings: ProviderSettings, notice: float) -> None:
    """A drained node serves on for the time of the notice; then memory still has to leave it."""
    if settings.scale.drain_before < 2 * notice:
        raise SettingsError(
            f"[{settings.name}]: drain_before is {settings.scale.drain_before:g} s; it must be at least {2 * notice:g} s, "
            f"twice the notice that leases get"
        )
