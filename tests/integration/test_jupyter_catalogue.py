"""``GET api/catalogue``: the words of sentences, which the page renders itself and its browser keeps."""

from __future__ import annotations

import json

import pytest
from gpupool.sentences.render import catalogue
from tornado.httpclient import HTTPResponse

from tests.support.jupyter import JupyterInProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def asked_with(jupyter: JupyterInProcess, tag: str) -> HTTPResponse:
    """The answer to a browser that has the words of `tag`."""
    headers = {"Authorization": f"token {jupyter.token}", "If-None-Match": tag}
    return await jupyter.fetch("GET", "gpupool/api/catalogue", headers=headers)


async def test_the_page_gets_the_words_of_all_sentences(jupyter: JupyterInProcess) -> None:
    answer = await jupyter.fetch("GET", "gpupool/api/catalogue")
    assert answer.code == 200
    assert answer.headers["Content-Type"].startswith("application/json")
    assert json.loads(answer.body) == catalogue()


async def test_a_browser_that_has_them_gets_no_other_copy(jupyter: JupyterInProcess) -> None:
    first = await jupyter.fetch("GET", "gpupool/api/catalogue")
    assert "no-store" not in first.headers["Cache-Control"]
    again = await asked_with(jupyter, first.headers["Etag"])
    assert (again.code, again.body) == (304, b"")
    other = await asked_with(jupyter, '"of another version"')
    assert (other.code, other.body) == (200, first.body)


async def test_nobody_gets_them_without_a_token(jupyter: JupyterInProcess) -> None:
    answer = await jupyter.fetch("GET", "gpupool/api/catalogue", headers={})
    assert answer.code == 403
