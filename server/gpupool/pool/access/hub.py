"""JupyterHub as the judge of who callers are: asked over its HTTP API, believed for a while (`hub_cache`).

Any user of a Hub may send us tokens, true ones and others, so what becomes a question to the Hub is bounded: one at a
time for each token, a number at once, and those that were never seen before so many a second (`newcomers`).
"""

from __future__ import annotations

import asyncio
import http.client
import ipaddress
import math
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, urlsplit

import structlog

from gpupool.pool.access import hub_answer
from gpupool.pool.access.hub_answer import HubAnswerUnusableError, HubUser
from gpupool.pool.access.hub_cache import HubCache, HubTimes, Short, digest_of
from gpupool.pool.access.newcomers import Newcomers

logger = structlog.get_logger(__name__)

#: The Hub has so long for an answer, seconds.
ASK_SECONDS: Final = 5.0
#: Questions to the Hub at once.
_AT_ONCE: Final = 16
#: Callers that wait for one at most.
_MOST_WAITING: Final = 2000
#: A token that the Hub does not know is not asked about again for so long, seconds; so many of them are remembered.
_DENIED_SECONDS: Final = 30.0
_MOST_DENIED: Final = 5000
_LONGEST_TOKEN: Final = 1024
_DENIED: Final = (401, 403)
#: A Hub that did not answer is left alone for so long, seconds: callers must not all wait for its silence.
_PAUSE_SECONDS: Final = 5.0


class HubUrlUnusableError(ValueError):
    """The URL of the Hub's API is none; one sentence."""


class HubDeniedError(Exception):
    """The Hub does not accept the token; one sentence."""


class HubDownError(Exception):
    """The Hub did not say; one sentence."""


class HubBusyError(Exception):
    """Too many ask; one sentence."""


@dataclass(frozen=True, slots=True)
class HubOptions:
    """`api_url`: as in ``JUPYTERHUB_API_URL``, for example https://hub.example.org/hub/api."""

    api_url: str
    times: HubTimes = field(default_factory=HubTimes)


#: Asks the Hub: the HTTP status and the body. May raise OSError and http.client.HTTPException.
Ask = Callable[[str], tuple[int, bytes]]


class Hub:
    """One JupyterHub. For the event loop of the server.

    `settle`: seconds in which those who were there before the start of the server show their tokens again.

    Raises:
        HubUrlUnusableError: the URL is none of http or https.
    """

    def __init__(self, options: HubOptions, ask: Ask | None = None, *, settle: float = 0.0) -> None:
        self._url = _checked(options.api_url)
        self._ask = ask or self._ask_over_http
        self._cache = HubCache(options.times)
        now = time.monotonic()
        self._new = Newcomers(now, now + settle)
        #: Until when tokens count as unknown, by their hash; the latest last.
        self._denied: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        # Of its own: a Hub that hangs must not take the threads in which the server asks whether it leads.
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="hub")
        self._asking: dict[bytes, asyncio.Task[Short]] = {}
        self._problem = ""
        self._failed_at = -math.inf
        if self._url.scheme == "http" and not _is_loopback(self._url.hostname or ""):
            logger.warning("tokens of JupyterHub's users are sent to it unencrypted", url=options.api_url)

    async def exchange(self, token: str, place: str = "") -> Short:
        """A short-lived token for the user whose JupyterHub token this is. `place`: where the caller is (`newcomers`).

        Raises:
            HubDeniedError, HubDownError, HubBusyError: there is none.
        """
        if not token or len(token) > _LONGEST_TOKEN or not token.isascii() or not token.isprintable():
            raise HubDeniedError("that is not a token of JupyterHub")
        digest, now = digest_of(token), time.monotonic()
        fresh = self._cache.fresh(digest, now)
        if fresh is not None:
            return fresh
        if now - self._failed_at < _PAUSE_SECONDS:
            return self._without_the_hub(digest)
        task = self._asking.get(digest)
        if task is None:
            self._refuse_denied(digest, now)
            if len(self._asking) >= _MOST_WAITING or not (
                self._cache.is_known(digest) or self._new.admits(place, now)
            ):
                raise HubBusyError("too many users ask the pool who they are; try again in a few seconds")
            task = self._asking[digest] = asyncio.create_task(self._judge(token, digest))
            task.add_done_callback(lambda done: self._judged(digest, done))
        # One caller who leaves must not take the answer from the others.
        return await asyncio.shield(task)

    def who(self, short: str) -> tuple[str, HubUser] | None:
        """Id and user of a short-lived token; None: it is not good (any more)."""
        return self._cache.who(short, time.monotonic())

    def is_live(self, entry_id: str) -> bool:
        """Whether who had this id a while ago is still good."""
        return self._cache.is_live(entry_id, time.monotonic())

    def _judged(self, digest: bytes, done: asyncio.Task[Short]) -> None:
        self._asking.pop(digest, None)
        if not done.cancelled():
            done.exception()  # told to those who wait, if there are any left

    async def _judge(self, token: str, digest: bytes) -> Short:
        try:
            async with self._at_once:
                if time.monotonic() - self._failed_at < _PAUSE_SECONDS:
                    # It has failed for another caller while this one waited for its turn.
                    return self._without_the_hub(digest)
                loop = asyncio.get_running_loop()
                status, body = await loop.run_in_executor(self._threads, self._ask, token)
            if status in _DENIED:
                raise self._deny(
                    digest, "JupyterHub does not know this token (any more); restart the server from the Hub"
                )
            if status != http.client.OK:
                raise OSError(f"it answers HTTP {status}")
            user = hub_answer.read(body)
        except HubAnswerUnusableError as error:
            self._cache.denied(digest)
            raise HubDeniedError(str(error)) from None
        except (OSError, http.client.HTTPException) as error:
            self._note_silence(error)
            return self._without_the_hub(digest)
        if self._problem:
            self._problem, self._failed_at = "", -math.inf
            logger.info("JupyterHub answers again")
        return self._cache.confirmed(digest, user, time.monotonic())

    def _deny(self, digest: bytes, why: str) -> HubDeniedError:
        self._cache.denied(digest)
        self._denied[digest] = time.monotonic() + _DENIED_SECONDS, why
        if len(self._denied) > _MOST_DENIED:
            self._denied.popitem(last=False)
        return HubDeniedError(why)

    def _refuse_denied(self, digest: bytes, now: float) -> None:
        until, why = self._denied.get(digest, (now, ""))
        if now < until:
            raise HubDeniedError(why)
        self._denied.pop(digest, None)

    def _note_silence(self, error: Exception) -> None:
        detail = (
            "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        )
        if not self._problem:
            logger.warning("JupyterHub does not answer; users who are known go on for a while", detail=detail)
        self._problem, self._failed_at = detail[:200], time.monotonic()

    def _without_the_hub(self, digest: bytes) -> Short:
        short = self._cache.unanswered(digest, time.monotonic())
        if short is None:
            raise HubDownError(
                f"JupyterHub does not answer ({self._problem}), so the pool cannot find out who you are; try again later"
            )
        return short

    def _ask_over_http(self, token: str) -> tuple[int, bytes]:
        """In a thread. Follows no redirect and knows no proxy: the token is for this one server."""
        host, port = self._url.hostname or "", self._url.port
        connection: http.client.HTTPConnection
        if self._url.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(host, port, timeout=ASK_SECONDS, context=context)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=ASK_SECONDS)
        try:
            headers = {"Authorization": f"token {token}", "Accept": "application/json"}
            connection.request("GET", f"{self._url.path.rstrip('/')}/user", headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read(hub_answer.MOST_BYTES + 1)
        finally:
            connection.close()


def _checked(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username
        parts.port  # noqa: B018 (raises ValueError when it is none)
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment:
        raise HubUrlUnusableError(
            f"{url[:120]!r} is no URL of a JupyterHub's API, such as https://hub.example.org/hub/api"
        )
    return parts


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
