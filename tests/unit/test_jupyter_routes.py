"""What holds for every route of the extension."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from gpupool.client.session.state import State
from openapi_spec_validator import validate
from tornado import web
from traitlets.traitlets import DefaultHandler

from jupyter_gpupool.server.extension import GpuPoolExtension
from jupyter_gpupool.server.handlers import base, routes
from jupyter_gpupool.server.rest import description
from jupyter_gpupool.server.rest.document import document, write
from jupyter_gpupool.server.rest.route import pattern_of
from jupyter_gpupool.server.rest.routes import ROUTES
from tests.support.rest_answers import shape_error, wrong_answer

DOCS = Path(__file__).resolve().parents[2] / "docs"
METHODS = ("get", "head", "post", "delete", "patch", "put")


def served(handler: type[Any]) -> set[str]:
    """Methods that a handler has of its own."""
    return {name for name in METHODS if getattr(handler, name) is not getattr(web.RequestHandler, name)}


@pytest.mark.parametrize(("pattern", "handler"), routes())
def test_a_read_is_no_activity_of_the_user(pattern: str, handler: type[Any]) -> None:
    """Pages repeat every read: one that counts keeps a server alive that a Hub should cull."""
    if "get" in served(handler):
        assert handler._track_activity is False, pattern


class TestTheTable:
    def test_what_is_served_is_what_is_described(self) -> None:
        there = {(pattern, method) for pattern, handler in routes() for method in served(handler)}
        assert there == {(pattern_of(route.path), route.method.lower()) for route in ROUTES}

    def test_every_handler_has_a_route(self) -> None:
        def below(kind: type[Any]) -> list[type[Any]]:
            return [kind, *(found for child in kind.__subclasses__() for found in below(child))]

        serving = {kind for kind in below(base.GpupoolHandler) if served(kind)}
        assert serving == {handler for _, handler in routes()}

    @pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
    def test_a_pattern_finds_its_path_and_no_other(self, route: Any) -> None:
        path = "/gpupool/" + route.path.replace("{kernel_id}", "0a-b_C")
        found = [pattern for pattern, _ in routes() if re.fullmatch(pattern, path)]
        assert found == [pattern_of(route.path)]
        assert re.fullmatch(pattern_of(route.path), path + "/more") is None
        assert re.fullmatch(pattern_of(route.path), path.replace(".", "x")) is None or "." not in path

    def test_the_documentation_lists_the_routes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.syspath_prepend(str(DOCS))
        page = importlib.import_module("generate_reference").rest_page()
        rows = re.findall(r"^\| `([A-Z]+)` \| `([^`]+)` \| (.+?) \|$", page, re.MULTILINE)
        assert rows == [(route.method, route.path, route.does) for route in ROUTES]


class TestThePageOfSettings:
    @pytest.fixture
    def page(self, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.syspath_prepend(str(DOCS))
        text: str = importlib.import_module("generate_reference").settings_page()
        return text

    def test_a_default_that_depends_on_the_server_is_told_in_words(self, page: str) -> None:
        dynamic = {
            one.trait_name for one in vars(GpuPoolExtension).values() if isinstance(one, DefaultHandler)
        }
        traits = GpuPoolExtension.class_own_traits(config=True)
        shown = dict(re.findall(r"^\| `c\.GpuPoolExtension\.(\w+)` \| (.*?) \| ", page, re.MULTILINE))
        assert shown.keys() == traits.keys()
        for name in dynamic:
            assert shown[name] not in ("", f"`{traits[name].default_value!r}`"), name
        assert shown["idle_seconds"] == "`600.0`"

    def test_it_has_the_variables_that_guides_name(self, page: str) -> None:
        guides = [*(DOCS / "how-to").glob("*.md"), *(DOCS / "tutorial").glob("*.md")]
        named = {name for guide in guides for name in re.findall(r"\bGPUPOOL_[A-Z_]+\b", guide.read_text())}
        rows = set(re.findall(r"^\| `(GPUPOOL_[A-Z_]+)` \|", page, re.MULTILINE))
        elsewhere = re.compile(
            r"GPUPOOL_SOFTGPU_|GPUPOOL_\w+_PYTHON$"
        )  # of the software GPU, and of `make examples`
        assert {name for name in named if not elsewhere.match(name)} <= rows

    def test_an_option_stands_beside_the_variable_that_is_its_default(self, page: str) -> None:
        (home,) = re.findall(r"^\| `GPUPOOL_HOME` \| .* \| (.*) \|$", page, re.MULTILINE)
        assert "`--socket`" in home and "--tls-self-signed" not in home


class TestTheDescription:
    def test_it_is_openapi(self) -> None:
        validate(document())

    def test_every_operation_has_an_id_of_its_own(self) -> None:
        ids = [way["operationId"] for ways in document()["paths"].values() for way in ways.values()]
        assert sorted(set(ids)) == sorted(ids)

    def test_the_built_one_is_that_of_the_sources(self) -> None:
        assert json.loads(description.description()) == document()

    def test_it_is_written_only_when_something_changed(self, tmp_path: Path) -> None:
        made = tmp_path / "openapi.json"
        assert (write(made), write(made)) == (True, False)

    def test_states_are_those_of_the_machine(self) -> None:
        assert document()["components"]["schemas"]["State"]["enum"] == [str(state) for state in State]

    def test_a_field_that_is_inherited_is_explained_as_where_it_is_written(self) -> None:
        schemas = document()["components"]["schemas"]
        said = schemas["Session"]["properties"]["software"]["description"]
        assert said
        for heir in ("Kernel", "OwnKernel", "AttachedLine", "UsageAnswer"):
            assert schemas[heir]["properties"]["software"]["description"] == said


class TestMistakesAreNoticed:
    SHARE: Final = {"milli": 200, "mib": 1587, "count": 1}

    def test_the_right_one_is_right(self) -> None:
        assert shape_error("Share", self.SHARE) is None

    @pytest.mark.parametrize(
        ("change", "where"),
        [
            (lambda share: share | {"colour": "red"}, "colour"),
            (lambda share: {"milli": 200, "mib": 1587}, "count"),
            (lambda share: share | {"mib": None}, "$.mib"),
            (lambda share: share | {"mib": 0.5}, "$.mib"),
        ],
    )
    def test_a_field_more_or_less_or_of_another_kind(self, change: Callable[[Any], Any], where: str) -> None:
        assert where in (shape_error("Share", change(self.SHARE)) or "")

    def test_every_shape_of_an_answer_is_complete(self) -> None:
        """A field that is not described would be refused in each of them."""
        schemas = document()["components"]["schemas"]
        sent = {name for name in schemas if not name.endswith("Body")}
        for name in sent - {"GpuRequest", "AttachOptions", "QuotaChange", "Description"}:
            shape = schemas[name]
            assert "properties" not in shape or shape["additionalProperties"] is False, name

    @pytest.mark.parametrize(
        ("method", "path", "status", "media", "body"),
        [
            ("GET", "/api/nowhere", 200, "application/json", b"{}"),
            ("PUT", "/api/pool", 200, "application/json", b"{}"),
            ("GET", "/api/pool", 418, "application/json", b"{}"),
            ("GET", "/api/pool", 200, "text/html", b"{}"),
            ("GET", "/api/pool", 200, "application/json", b"{}"),
            (
                "POST",
                "/self/attach",
                200,
                "application/x-ndjson",
                b'{"event": "waiting"}\n{"event": "bored"}\n',
            ),
        ],
    )
    def test_an_answer_that_is_not_described(
        self, method: str, path: str, status: int, media: str, body: bytes
    ) -> None:
        assert wrong_answer(method, path, status, media, body) is not None

    def test_lines_are_compared_each(self) -> None:
        lines = b'{"event": "waiting"}\n{"event": "refused", "reason": "full", "message": "No."}\n'
        assert wrong_answer("POST", "/self/attach", 200, "application/x-ndjson", lines) is None
