"""The protocol table's roles: what they make of cuda.h's prototypes, and what they refuse."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src" / "protocol"))

import coverage_page
import cuda_header
import emit_handler
import emit_messages
import emit_structs
import emit_stub
import emit_wire
import emit_worker
import find_cuda_headers
import kinds
import moves
import roles
import routes
import table


@pytest.fixture(scope="module")
def header() -> cuda_header.CudaHeader:
    return cuda_header.load(find_cuda_headers.find())


def load(header: cuda_header.CudaHeader, directory: Path, text: str) -> table.Table:
    (directory / "rows.toml").write_text(text)
    return table.load(directory, header)


def message(resolved: table.Table, name: str) -> table.Message:
    (found,) = [m for m in resolved.messages if m.name == name]
    return found


def test_the_fingerprint_says_what_messages_mean_too(
    header: cuda_header.CudaHeader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved = load(
        header, tmp_path, '[cuArrayDestroy]\nclass = "post"\nparams = { hArray = "drop:array" }\n'
    )
    before = emit_messages.fingerprint(resolved)
    assert before == emit_messages.fingerprint(resolved)
    (one,) = resolved.messages
    resolved.messages[0] = replace(one, behaviour=replace(one.behaviour, holds_up=not one.behaviour.holds_up))
    assert emit_messages.fingerprint(resolved) != before
    resolved.messages[0] = one
    other = {**kinds.KINDS, "array": replace(kinds.KINDS["array"], number=99)}
    monkeypatch.setattr(emit_messages, "KINDS", other)
    assert emit_messages.fingerprint(resolved) != before


def test_structs_are_known_by_all_their_names(header: cuda_header.CudaHeader) -> None:
    assert "hArray" in header.structs["CUDA_RESOURCE_DESC"]
    assert header.structs["CUDA_RESOURCE_DESC_v1"] == header.structs["CUDA_RESOURCE_DESC"]
    assert "CUresourcetype" not in header.structs
    assert {"CUarray", "CUtexref", "CUhostFn"} <= header.handles
    assert "CUdeviceptr" not in header.handles


def test_every_role_has_its_fields(header: cuda_header.CudaHeader, tmp_path: Path) -> None:
    resolved = load(
        header,
        tmp_path,
        """
[struct.CUDA_RESOURCE_DESC]
valid = "s.flags == 0"
handles = [
  { field = "res.array.hArray", kind = "array", when = "s.resType == CU_RESOURCE_TYPE_ARRAY" },
  { field = "res.mipmap.hMipmappedArray", kind = "mipmapped_array" },
]
[cuTexObjectCreate]
class = "ask"
params = { pTexObject = "new:texture_object", pResDesc = "struct", pTexDesc = "struct", pResViewDesc = "struct?" }
[cuMipmappedArrayGetLevel]
class = "ask"
params = { pLevelArray = "get:array", hMipmappedArray = "in:mipmapped_array" }
[cuArrayDestroy]
class = "post"
params = { hArray = "drop:array" }
[cuArrayCreate_v2]
class = "ask"
params = { pHandle = "new:array", pAllocateArray = "struct" }
[cuStreamBatchMemOp_v2]
class = "post"
work = "stream"
params = { stream = "in:stream", paramArray = "null" }
[cuDeviceGetP2PAtomicCapabilities]
class = "ask"
context = "any"
params = { capabilities = "out[count]", operations = "data[count]", srcDevice = "device", dstDevice = "device" }
[cuGraphAddDependencies]
class = "post"
params = { hGraph = "in:graph", from = "in:graph_node[numDependencies]", to = "in:graph_node[numDependencies]" }
""",
    )

    def packed(fields: tuple[roles.Field, ...]) -> dict[str, str]:
        return {f.name: f.packed for f in fields}

    texture = message(resolved, "cuTexObjectCreate")
    assert packed(texture.fields) == {
        "pResDesc": "raw:CUDA_RESOURCE_DESC",
        "pTexDesc": "raw:CUDA_TEXTURE_DESC",
        "has_pResViewDesc": "u8",
        "pResViewDesc": "raw:CUDA_RESOURCE_VIEW_DESC",
    }
    assert packed(texture.reply) == {"pTexObject": "u64"}
    level = message(resolved, "cuMipmappedArrayGetLevel")
    assert packed(level.fields) == {"pLevelArray": "u64", "hMipmappedArray": "u64", "level": "u32"}
    assert packed(level.reply) == {"pLevelArray": "u64"}
    atomics = message(resolved, "cuDeviceGetP2PAtomicCapabilities")
    assert packed(atomics.fields)["operations"] == "bytes"
    assert packed(atomics.reply) == {"capabilities": "bytes"}
    assert atomics.any_context
    handler = "\n".join(emit_handler.handler(atomics, resolved))
    assert "take_elements(m.operations, static_cast<std::size_t>(m.count), operations)" in handler
    assert "make_elements(static_cast<std::size_t>(m.count), capabilities)" in handler
    nodes = "\n".join(emit_handler.handler(message(resolved, "cuGraphAddDependencies"), resolved))
    assert "find_elements(x.handles, wire::Kind::graph_node, m.from" in nodes
    create = "\n".join(emit_stub.stub(resolved.exports["cuArrayCreate_v2"], resolved))
    assert "messages::cuArrayDestroy end;" in create, (
        "what was made ends when the program hears of an earlier error"
    )
    structs = emit_structs.structs(resolved)
    assert "if (!(s.flags == 0)) return CUDA_ERROR_INVALID_VALUE;" in structs
    assert "if (s.resType == CU_RESOURCE_TYPE_ARRAY) {" in structs


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[cuArrayDestroy]\nclass="post"\nparams={hArray="drop"}', "needs a kind of handle"),
        ('[cuArrayDestroy]\nclass="post"\nparams={hArray="drop:array?"}', "unknown role"),
        ('[cuArrayDestroy]\nclass="post"\nparams={hArray="drop?:array"}', "cannot be optional"),
        (
            '[cuSurfObjectCreate]\nclass="ask"\nparams={pSurfObject="new:surface_object", pResDesc="struct"}',
            "hArray",
        ),
        ('[struct.CUDA_RESOURCE_DESC]\nvalid="true"', "Declare handles, null or addresses"),
        ('[struct.CUnothing]\nvalid="true"', "is not in cuda.h"),
        ('[cuDeviceGetCliqueInfo]\nclass="ask"\nparams={cliqueInfo="data"}', "data must"),
        ('[cuDeviceGetLuid]\nclass="unsupported"', "cuDeviceGetLuid is unsupported without a reason"),
        ('[cuDeviceGetLuid]\nclass="unsupported"\nreason=" "', "unsupported without a reason"),
        ('[cuDeviceGetLuid]\nclass="local"\nreason="Windows"', "a reason is for what is unsupported"),
    ],
)
def test_contradictions_are_build_errors(
    header: cuda_header.CudaHeader, tmp_path: Path, text: str, complaint: str
) -> None:
    with pytest.raises(kinds.TableError, match=complaint):
        load(header, tmp_path, text)


def test_an_export_without_a_row_is_a_build_error(header: cuda_header.CudaHeader, tmp_path: Path) -> None:
    rows = Path(table.__file__).parent / "driver"
    for path in rows.glob("*.toml"):
        text = path.read_text()
        if path.name == "device.toml":
            text = text.replace('[cuDeviceGetName]\nclass = "local"\n', "")
        (tmp_path / path.name).write_text(text)
    with pytest.raises(kinds.TableError, match=r"without a row in driver/\*\.toml: cuDeviceGetName$"):
        table.check_decided(table.load(tmp_path, header))


def test_what_is_unsupported_says_why_and_the_pages_count_it(header: cuda_header.CudaHeader) -> None:
    resolved = table.load(Path(table.__file__).parent / "driver", header)
    table.check_decided(resolved)
    unsupported = [e for e in resolved.exports.values() if e.kind == "unsupported"]
    assert all(e.reason for e in unsupported)
    percent = 100 * (1 - len(unsupported) / len(resolved.exports))
    counts = f"{len(resolved.exports)} exports, {len(resolved.exports) - len(unsupported)} supported ({percent:.1f}%)"
    assert counts in coverage_page.page(resolved)
    limits = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "limits" / "cuda.md").read_text()
    assert f"{len(unsupported)} of {len(resolved.exports)} exports are unsupported" in " ".join(
        limits.split()
    )


def test_a_kind_with_objects_needs_a_hand_written_client(
    header: cuda_header.CudaHeader, tmp_path: Path
) -> None:
    resolved = load(
        header,
        tmp_path,
        '[cuGraphClone]\nclass="ask"\nparams={phGraphClone="new:graph", originalGraph="in:graph"}',
    )
    with pytest.raises(kinds.TableError, match="object of its own"):
        emit_stub.check_stub(resolved.exports["cuGraphClone"])


def given(name: str, resolved: table.Table) -> str:
    return message(resolved, name).behaviour.stream_given


def test_the_rows_say_what_becomes_of_streams_and_events(header: cuda_header.CudaHeader) -> None:
    resolved = table.load(Path(table.__file__).parent / "driver", header)
    quiet = [
        m.name
        for m in resolved.messages
        if any(f.handle == "stream" for f in m.fields) and not m.behaviour.stream_given
    ]
    # They create or end the stream, wait until it is complete, or only ask.
    assert set(quiet) == {
        *("CopyArrayToHost", "CopyRowsToHost", "CopyToHost", "WatchStream"),
        *("cuGreenCtxStreamCreate", "cuStreamCreate", "cuStreamCreateWithPriority", "cuStreamDestroy_v2"),
        *("cuStreamIsCapturing", "cuStreamQuery", "cuStreamSynchronize"),
    }
    assert all(m.behaviour.stream_given for m in resolved.messages if m.work and not m.waits)
    assert given("cuMemsetD8_v2", resolved) == "0"
    assert given("cuStreamCopyAttributes", resolved) == "dstStream"
    handed_out = {m.name: m.behaviour.event_given for m in resolved.messages if m.behaviour.event_given}
    assert handed_out["cuCtxRecordEvent"] == handed_out["cuGreenCtxRecordEvent"] == "hEvent"
    assert handed_out["ImportEvent"] == handed_out["ExportEvent"] == "event"
    assert "cuEventRecord" not in handed_out


def test_the_rows_become_traits(header: cuda_header.CudaHeader, tmp_path: Path) -> None:
    resolved = load(
        header,
        tmp_path,
        """
[message.Launch]
class = "post"
work = "stream"
holds_up = false
shown_as = "cuLaunchKernel"
fields = { stream = "in:stream" }
[message.ReadPages]
class = "ask"
waits = true
again = "reads"
own_accord = true
bulk = "reply"
fields = { device = "device", address = "address", size = "u64" }
[message.CopyToHostAsync]
class = "post"
refused_by_push = true
fields = { address = "address", size = "u64", ticket = "u64" }
[cuCtxRecordEvent]
class = "post"
event = "handed_out"
params = { hCtx = "in:context", hEvent = "in:event" }
""",
    )

    def section(text: str, name: str) -> str:
        return text[text.index(f"MessageId::{name};") :].split("};")[0]

    text = emit_messages.messages(resolved)
    launch = section(text, "Launch")
    assert "holds_up = false;" in launch and "own_accord = false;" in launch
    assert "stream_given() const { return stream; }" in launch
    assert "own_accord = true;" in section(text, "ReadPages")
    assert "holds_up = true;" in section(text, "ReadPages")
    assert "event_given() const { return hEvent; }" in section(text, "cuCtxRecordEvent")
    dispatch = emit_worker.dispatch(resolved)
    assert "&run_ReadPages>, true, true, false, true, Again::reads, false}" in dispatch
    assert "&run_CopyToHostAsync>, true, false, false, false, Again::never, true}" in dispatch
    assert '{"Launch", "cuLaunchKernel"},' in emit_messages.names(resolved)
    assert '{"CopyToHostAsync", "CopyToHostAsync"},' in emit_messages.names(resolved)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('class="post"\nfields={a="in:stream", b="in:stream"}', r"which of \['a', 'b'\].* Say `stream`"),
        ('class="post"\nfields={stream="in:stream"}', "Say `stream`"),
        ('class="post"\nstream="flags"\nfields={stream="in:stream", flags="u32"}', "Say `stream`"),
        ('class="post"\nwork="stream"\nstream="asked"\nfields={stream="in:stream"}', "say already"),
        ('class="post"\nwork="size"\nfields={size="u64"}', "which is no stream"),
        ('class="post"\nfields={event="in:event"}', "Say `event`"),
        ('class="post"\nevent="lost"\nfields={event="in:event"}', "unknown event 'lost'"),
        ('class="post"\nevent="handed_out"\nfields={a="in:event", b="in:event"}', "which of its events"),
        ('class="post"\nfields={stream="u64"}', "is stream a number"),
        ('class="post"\nfields={other_event="u64"}', "is other_event a number"),
        ('class="post"\nfields={graph="u64"}', "is graph a number"),
        ('class="post"\nfields={device="i32"}', "is device a number"),
        ('class="post"\nfields={thing="in:thing"}', "thing needs a kind of handle"),
        ('class="post"\nfields={thing="u128"}', "unknown packed type"),
        ('class="ask"\nwaits=true', "Say `again`"),
        ('class="ask"\nwaits=true\nagain="often"', "Say `again`"),
        ('class="post"\nagain="waits"', "Say `again`"),
        ('class="post"\nshown_as="cuNothing"', "cuNothing is not an export"),
        ('class="post"\nrefused_by_push=true', "a push refuses a post"),
        ('class="ask"\nrefused_by_push=true\nfields={ticket="u64"}', "a push refuses a post"),
        ('class="post"\nholds_up="no"', "holds_up is true or false"),
        ('class="post"\nhold_up=false', r"unknown keys \['hold_up'\]"),
    ],
)
def test_undecided_behaviour_is_a_build_error(
    header: cuda_header.CudaHeader, tmp_path: Path, text: str, complaint: str
) -> None:
    with pytest.raises(kinds.TableError, match=rf"Odd.*{complaint}"):
        load(header, tmp_path, f"[message.Odd]\n{text}\n")


def test_a_refusal_by_push_is_one_rows(header: cuda_header.CudaHeader, tmp_path: Path) -> None:
    row = 'class = "post"\nrefused_by_push = true\nfields = { ticket = "u64" }\n'
    with pytest.raises(kinds.TableError, match=r"which of \['One', 'Two'\]"):
        load(header, tmp_path, f"[message.One]\n{row}[message.Two]\n{row}")


def test_keys_that_mean_nothing_are_build_errors(header: cuda_header.CudaHeader, tmp_path: Path) -> None:
    with pytest.raises(kinds.TableError, match=r"cuCtxGetId: unknown keys \['holds_up'\]"):
        load(header, tmp_path, '[cuCtxGetId]\nclass = "local"\nholds_up = false\n')


def test_the_rows_say_where_messages_go(header: cuda_header.CudaHeader) -> None:
    resolved = table.load(Path(table.__file__).parent / "driver", header)
    routes.check_routes(resolved)
    assert message(resolved, "cuMemsetD8Async").routes == "memory"
    assert message(resolved, "cuStreamWriteValue32_v2").routes == "context"
    assert message(resolved, "cuDevSmResourceSplit").routes == "one_worker"
    assert routes.named(message(resolved, "CreateContext")) == ([], ["device"], [])
    assert routes.named(message(resolved, "MapMemory")) == ([], ["device"], [])
    assert routes.named(message(resolved, "CopyRowsOnDevice")) == (
        [("stream", "stream")],
        [],
        ["destination", "source"],
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('[message.Odd]\nclass="post"\nfields={target="address"}', "to where target is"),
        ('[message.Odd]\nclass="post"\nroutes="somewhere"', "unknown routes 'somewhere'"),
        ('[message.Odd]\nclass="post"\nroutes="memory"', "is for what names memory"),
        (
            '[cuGreenCtxGetId]\nclass="ask"\nparams={greenCtx="in:green_context", greenCtxId="out"}',
            "cuGreenCtxGetId: a green_context is a number of one worker",
        ),
    ],
)
def test_undecided_routes_are_build_errors(
    header: cuda_header.CudaHeader, tmp_path: Path, text: str, complaint: str
) -> None:
    with pytest.raises(kinds.TableError, match=complaint):
        routes.check_routes(load(header, tmp_path, text))


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ({"client": "plain"}, "kind thing: it is not decided how its objects move"),
        ({"client": "plain", "move": "somehow"}, "kind thing: it is not decided how its objects move"),
        ({"move": "replay"}, "kind thing: what does the client have"),
        ({"client": "plain", "move": "replay", "size": 3}, r"kind thing: unknown keys \['size'\]"),
    ],
)
def test_an_undecided_kind_is_a_build_error(entry: dict[str, object], complaint: str) -> None:
    with pytest.raises(kinds.TableError, match=complaint):
        kinds.parse({"kind": {"thing": entry}})


def test_kinds_have_the_numbers_of_their_rows() -> None:
    text = emit_wire.kinds()
    for number, name in enumerate(kinds.KINDS, 1):
        assert f"  {name} = {number},\n" in text


def test_it_is_decided_for_every_message_how_its_effect_moves(
    header: cuda_header.CudaHeader, tmp_path: Path
) -> None:
    driver = Path(table.__file__).parent / "driver"
    moves.check_moves(table.load(driver, header))
    with pytest.raises(kinds.TableError, match="without a `move`: cuCtxSetLimit"):
        moves.check_moves(load(header, tmp_path, '[cuCtxSetLimit]\nclass = "ask"\n'))
    with pytest.raises(kinds.TableError, match="unknown move 'somehow'"):
        moves.check_moves(load(header, tmp_path, '[cuCtxSetLimit]\nclass = "ask"\nmove = "somehow"\n'))
    with pytest.raises(kinds.TableError, match="no fields"):
        moves.check_moves(
            load(header, tmp_path, '[cuCtxSetLimit]\nclass = "ask"\nmove = "replay"\nsame = ["x"]\n')
        )


def test_roles_say_how_most_effects_move(header: cuda_header.CudaHeader, tmp_path: Path) -> None:
    resolved = load(
        header,
        tmp_path,
        """
[cuStreamCreate]
class = "post"
params = { phStream = "new:stream" }
[cuEventDestroy_v2]
class = "post"
params = { hEvent = "drop:event" }
[cuGraphCreate]
class = "ask"
params = { phGraph = "new:graph" }
[cuCtxGetLimit]
class = "ask"
params = { pvalue = "out" }
[cuMemsetD8_v2]
class = "post"
work = "null"
""",
    )
    effects = {m.name: moves.decide(m) for m in resolved.messages}
    assert effects["cuStreamCreate"] == moves.Move("replay", ("phStream",), "phStream")
    others = [move for name, move in effects.items() if name != "cuStreamCreate"]
    assert others == [moves.Move("none")] * 4
