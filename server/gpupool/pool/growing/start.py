"""From a file of settings to the loop that makes the pool grow."""

from __future__ import annotations

from pathlib import Path

from gpupool.pool.growing.book import LedgerBook
from gpupool.pool.growing.pool_side import PoolSide
from gpupool.pool.lifecycle.shell import PoolShell
from gpupool.providers.grower import Grower, Pace
from gpupool.providers.kinds import Place, SettingsError
from gpupool.providers.settings import ProviderSettings, changed


def grower(
    pool: PoolShell, settings: list[ProviderSettings], home: Path, socket: Path, timers_scale: float
) -> Grower:
    """The loop, with the jobs of before.

    Raises:
        SettingsError: limits that `gpupool provider scale` has set do not go with the file any more, or nodes would be
            drained so late that their leases have no time to leave.
        ValueError: the ledger holds jobs that are none.
    """
    book = LedgerBook(pool.ledger)
    place = Place(home, f"unix:{socket}", book.pool_id)
    limits = book.limits()
    for one in settings:
        _check_time_to_leave(one, pool.timers.notice)
    providers = {
        one.name: (
            one.open(place),
            changed(
                f"limits of {one.name} set with `gpupool provider scale`", one.scale, limits.get(one.name, {})
            ),
        )
        for one in settings
    }
    pace = Pace(*(seconds * timers_scale for seconds in (5.0, 60.0, 10.0, 60.0)))
    return Grower(book, PoolSide(pool), providers, pace)


def _check_time_to_leave(settings: ProviderSettings, notice: float) -> None:
    """A drained node serves on for the time of the notice; then memory still has to leave it."""
    if settings.scale.drain_before < 2 * notice:
        raise SettingsError(
            f"[{settings.name}]: drain_before is {settings.scale.drain_before:g} s; it must be at least {2 * notice:g} s, "
            f"twice the notice that leases get"
        )
