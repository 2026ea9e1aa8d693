"""One request, however it is written: the record carries the table, and every way to ask is made from it."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import gpupool
import pytest
import typer
from gpupool.cli.common.request_options import takes_request
from gpupool.client import convert
from gpupool.client.types import LeaseRequest
from gpupool.pool.access import validate
from gpupool.proto.gpupool.v1 import pool_pb2 as pb
from gpupool.request import forms
from gpupool.request.gpu_request import SPELLINGS, AttachOptions, GpuRequest, table
from gpupool.request.option import EVERYWHERE, Place, RequestError, option, options_of
from gpupool.request.typescript import typescript, write
from gpupool.request.values import Switch, Whole
from gpupool.shares import Share
from typer.testing import CliRunner

from jupyter_gpupool.kernel.arguments import parse_cell, usage
from jupyter_gpupool.kernel.errors import GpuUsageError
from jupyter_gpupool.server.rest.document import schemas

#: A request that says something of everything.
FULL = GpuRequest(
    Share.parse("0.5"),
    count=2,
    nodes="any",
    wait_seconds=600.0,
    hold=True,
    duration_seconds=7200.0,
    strict=True,
    project="research/vision",
    kind="preemptible",
    priority=60,
    filters=("name=*H100*", "memory>=40GiB"),
    pools=("fast", "slow"),
    no_isolation=True,
)


@dataclass(frozen=True, slots=True)
class Imaginary(GpuRequest):
    """Requests as they would be with one option more."""

    spot: bool = option(False, Switch(), "a GPU that may vanish", "--spot")
    mig_slices: int = option(0, Whole(1, 7, unset=0), "slices of the GPU", "--mig-slices", metavar="N")


class TestTheTable:
    def test_each_field_has_a_row_and_its_own_default(self) -> None:
        assert [row.field for row in options_of(GpuRequest)] == [one.name for one in fields(GpuRequest)]
        assert all(getattr(GpuRequest(), row.field) == row.default for row in options_of(GpuRequest))

    @pytest.mark.parametrize("attribute", ["name", "key", "keyword"])
    def test_no_two_rows_are_called_the_same(self, attribute: str) -> None:
        names = [getattr(row, attribute) for row in (*options_of(GpuRequest), *SPELLINGS)]
        named = [name for name in names if name]
        assert len(named) == len(set(named))

    def test_the_message_of_the_pool_has_a_field_for_each_row_but_for_what_clients_do(self) -> None:
        known = pb.RequestLease.DESCRIPTOR.fields_by_name
        assert [row.field for row in options_of(GpuRequest) if row.field not in known] == ["share", "hold"]

    def test_type_checkers_know_the_keywords_of_attach(self) -> None:
        keywords = {row.keyword for row in table(Place.CODE)}
        assert set(AttachOptions.__annotations__) | {"share"} == keywords
        assert next(iter(inspect.signature(gpupool.attach).parameters)) == "share"

    def test_what_only_some_may_write_is_nobody_elses(self) -> None:
        flags = {place: {row.flag for row in table(place)} for place in Place}
        assert "--hold" not in flags[Place.LINE] | flags[Place.AUTO] | flags[Place.COMMAND]
        assert "--for" not in flags[Place.AUTO]
        assert "--no-isolation" not in flags[Place.CELL]


class TestOneRequestEveryWay:
    def test_as_json_and_back(self) -> None:
        assert forms.of_body(forms.body_of(FULL)) == FULL
        assert forms.of_body({**forms.body_of(FULL), "scope": "of somebody else"}) == FULL
        assert forms.body_of(GpuRequest(Share.parse("20%")), short=True) == {"share": "20%"}

    def test_null_and_nothing_are_as_by_default(self) -> None:
        assert forms.of_body(dict.fromkeys(forms.body_of(FULL))) == GpuRequest() == forms.of_body({})

    def test_as_a_message_and_back(self) -> None:
        message = convert.lease_request(LeaseRequest.of(FULL), 600.0)
        assert forms.of_message(message) == forms.of_body({**forms.body_of(FULL), "hold": None})
        event = validate.request(message, "ann", 0.0)
        assert (event.milli, event.count, event.isolated, event.wait) == (500, 2, False, 600.0)

    def test_as_a_line_of_a_cell_and_as_keywords(self) -> None:
        line = (
            "0.5 -n 2 --nodes any --wait 10m --hold --for 2h --strict --project research/vision --kind preemptible "
            "--priority 60 --type H100 --filter 'memory >= 40GiB' --node-pool fast --node-pool slow"
        )
        body = forms.body_of(FULL)
        assert forms.body_of(parse_cell(line)) == {**body, "no_isolation": False}
        code = forms.of_keywords(
            {
                "share": 0.5,
                "n": 2,
                "nodes": "any",
                "wait": "10m",
                "duration": 7200,
                "strict": True,
                "project": "research/vision",
                "type": "H100",
                "kind": "preemptible",
                "priority": 60,
                "filters": ["memory>=40GiB"],
                "node_pools": ("fast", "slow"),
            }
        )
        assert forms.body_of(code) == {**body, "no_isolation": False, "hold": False}

    def test_as_options_of_the_command(self) -> None:
        assert forms.command_line(GpuRequest(Share(mib=2048))) == "-m 2048MiB"
        words = forms.command_line(FULL)
        assert words.startswith("-p 0.5 -n 2 --nodes any --wait 600 --for 7200 --strict")
        assert words.endswith("--node-pool fast --node-pool slow --no-isolation")

    @pytest.mark.parametrize(
        ("key", "value", "named", "reason"),
        [
            ("share", "1.7", "1.7", "bad-share"),
            ("count", 9, "9", "bad-share"),
            ("nodes", "all", "'all'", "bad-request"),
            ("wait", -3, "-3", "bad-request"),
            ("for", 1e9, "1000000000", "bad-request"),
            ("strict", "yes", "'yes'", "bad-request"),
            ("project", "a//b", "a//b", "unknown-project"),
            ("kind", "urgent", "urgent", "bad-request"),
            ("priority", 1001, "1001", "bad-request"),
            ("filters", ["fast"], "fast", "bad-request"),
            ("node_pools", ["a b"], "a b", "bad-request"),
            ("no_isolation", 1, "1", "bad-request"),
        ],
    )
    def test_what_makes_no_sense_is_named(self, key: str, value: object, named: str, reason: str) -> None:
        with pytest.raises(RequestError) as refused:
            forms.of_body({key: value})
        assert named in str(refused.value)
        assert refused.value.reason == reason

    @pytest.mark.parametrize("key", ["share", "count", "priority", "wait", "for"])
    @pytest.mark.parametrize("digits", [400, 5000])  # larger than any double; than Python writes in decimal
    def test_a_number_beyond_all_bounds_is_refused(self, key: str, digits: int) -> None:
        for number in (10**digits, -(10**digits)):
            with pytest.raises(RequestError):
                forms.of_body({key: number})

    @pytest.mark.parametrize(
        ("key", "value", "line"),
        [
            ("count", 9, "-n 9"),
            ("nodes", "all", "--nodes all"),
            ("kind", "urgent", "--kind urgent"),
            ("priority", 1001, "--priority 1001"),
            ("project", "a//b", "--project a//b"),
            ("filters", ["size=3"], "--filter size=3"),
            ("node_pools", ["a b"], "--node-pool 'a b'"),
        ],
    )
    def test_it_is_wrong_everywhere(self, key: str, value: object, line: str) -> None:
        keyword = {row.key: row.keyword for row in table(Place.CODE)}[key]
        for ask in (
            lambda: forms.of_body({key: value}),
            lambda: forms.of_keywords({keyword: value}),
            lambda: parse_cell(line),
        ):
            with pytest.raises((RequestError, GpuUsageError)):
                ask()


class TestOneOptionMore:
    """A field with its row is all that an option needs; here for two that nobody else has heard of."""

    def test_the_magic_takes_it(self) -> None:
        assert parse_cell("0.2 --spot --mig-slices 3", record=Imaginary) == Imaginary(
            Share.parse("0.2"), spot=True, mig_slices=3
        )
        assert "[--spot] [--mig-slices N]" in usage(record=Imaginary)
        with pytest.raises(
            GpuUsageError, match="--mig-slices needs a whole number from 1 to 7, '8' is not one"
        ):
            parse_cell("--mig-slices 8", record=Imaginary)

    def test_the_command_line_takes_it(self) -> None:
        app, seen = typer.Typer(), []

        @app.command()
        @takes_request(record=Imaginary)
        def ask(asked: GpuRequest) -> None:
            seen.append(asked)

        done = CliRunner().invoke(app, ["-p", "0.2", "--spot", "--mig-slices", "3"])
        assert done.exit_code == 0, done.output
        assert seen == [Imaginary(Share.parse("0.2"), spot=True, mig_slices=3)]
        wrong = CliRunner().invoke(app, ["-p", "0.2", "--mig-slices", "8"])
        assert (wrong.exit_code, "'8'" in wrong.output) == (2, True)

    def test_code_and_json_take_it(self) -> None:
        asked = forms.of_keywords({"share": 0.2, "spot": True}, Imaginary)
        assert asked == Imaginary(Share.parse("0.2"), spot=True)
        body = forms.body_of(asked, short=True, record=Imaginary)
        assert body == {"share": "0.2", "spot": True}
        assert forms.of_body(body, Imaginary) == asked

    def test_its_schema_says_what_it_takes(self) -> None:
        properties: dict[str, Any] = dict(forms.schema(Place.BODY, Imaginary))
        assert properties["spot"] == {"type": "boolean", "description": "A GPU that may vanish."}
        assert (properties["mig_slices"]["minimum"], properties["mig_slices"]["maximum"]) == (0, 7)

    def test_the_page_has_its_type_and_its_schema(self, tmp_path: Path) -> None:
        text = typescript(Imaginary)
        options = json.loads(text.partition("REQUEST_OPTIONS = ")[2].partition(" as const")[0])
        assert options["spot"] == {"type": "boolean", "description": "A GPU that may vanish."}
        assert "spot" not in typescript()
        described = schemas(Imaginary)["GpuRequest"]["properties"]
        assert described["spot"] == {"type": "boolean", "description": "A GPU that may vanish."}
        made = tmp_path / "request.ts"
        assert (write(made, Imaginary), write(made, Imaginary)) == (True, False)

    def test_the_command_line_of_a_help_has_it(self) -> None:
        asked = Imaginary(Share.parse("0.2"), spot=True)
        assert forms.command_line(asked, Imaginary) == "-p 0.2 --spot"

    def test_a_message_that_has_the_field_carries_it(self) -> None:
        known = {**pb.RequestLease.DESCRIPTOR.fields_by_name, "spot": None}
        assert forms.message_fields(Imaginary(spot=True), known, Imaginary)["spot"] is True

    def test_it_may_be_written_everywhere_unless_its_row_says_less(self) -> None:
        row = next(row for row in options_of(Imaginary) if row.name == "spot")
        assert row.where == EVERYWHERE
