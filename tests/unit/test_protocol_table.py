"""The protocol table's roles: what they make of cuda.h's prototypes, and what they refuse."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src" / "protocol"))

import coverage_page
import cuda_header
import emit_handler
import emit_messages
import emit_structs
import emit_stub
import find_cuda_headers
import moves
import roles
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
    with pytest.raises(roles.TableError, match=complaint):
        load(header, tmp_path, text)


def test_an_export_without_a_row_is_a_build_error(header: cuda_header.CudaHeader, tmp_path: Path) -> None:
    rows = Path(table.__file__).parent / "driver"
    for path in rows.glob("*.toml"):
        text = path.read_text()
        if path.name == "device.toml":
            text = text.replace('[cuDeviceGetName]\nclass = "local"\n', "")
        (tmp_path / path.name).write_text(text)
    with pytest.raises(roles.TableError, match=r"without a row in driver/\*\.toml: cuDeviceGetName$"):
        table.check_decided(table.load(tmp_path, header))


def test_what_is_unsupported_says_why_and_the_pages_count_it(header: cuda_header.CudaHeader) -> None:
    resolved = table.load(Path(table.__file__).parent / "driver", header)
    table.check_decided(resolved)
    unsupported = [e for e in resolved.exports.values() if e.kind == "unsupported"]
    assert all(e.reason for e in unsupported)
    percent = 100 * (1 - len(unsupported) / len(resolved.exports))
    counts = f"{len(resolved.exports)} exports, {len(resolved.exports) - len(unsupported)} supported ({percent:.1f}%)"
    assert counts in coverage_page.page(resolved)
    limits = (Path(__file__).resolve().parents[2] / "docs" / "limits.md").read_text()
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
    with pytest.raises(roles.TableError, match="object of its own"):
        emit_stub.check_stub(resolved.exports["cuGraphClone"])


def progress(m: table.Message) -> str:
    return "\n".join(emit_messages._progress(m))


def test_a_message_that_names_a_stream_counts_as_its_work(header: cuda_header.CudaHeader) -> None:
    resolved = table.load(Path(table.__file__).parent / "driver", header)
    quiet = [
        m.name
        for m in resolved.messages
        if any("stream" in f.name.lower() for f in m.fields) and "given_to_stream = true" not in progress(m)
    ]
    # They create or end the stream, wait until it is complete, or only ask.
    assert set(quiet) == {
        *("CopyArrayToHost", "CopyRowsToHost", "CopyToHost", "WatchStream"),
        *("cuGreenCtxStreamCreate", "cuStreamCreate", "cuStreamCreateWithPriority", "cuStreamDestroy_v2"),
        *("cuStreamIsCapturing", "cuStreamQuery", "cuStreamSynchronize"),
    }
    for m in resolved.messages:
        if m.work and not m.waits:
            assert "given_to_stream = true" in progress(m), m.name
    for name in ("cuCtxRecordEvent", "cuGreenCtxRecordEvent"):
        assert "event_given() const { return hEvent; }" in progress(message(resolved, name))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            '[message.Two]\nclass="post"\nfields={first_stream="u64", second_stream="u64"}',
            "which of its streams",
        ),
        ('[message.Odd]\nclass="post"\nwork="size"\nfields={size="u64"}', "which is no stream"),
        ('[message.Both]\nclass="post"\nfields={event="u64", other_event="u64"}', "which of its events"),
    ],
)
def test_unclear_work_is_a_build_error(
    header: cuda_header.CudaHeader, tmp_path: Path, text: str, complaint: str
) -> None:
    with pytest.raises(roles.TableError, match=complaint):
        emit_messages.messages(load(header, tmp_path, text))


def test_it_is_decided_for_every_message_how_its_effect_moves(
    header: cuda_header.CudaHeader, tmp_path: Path
) -> None:
    driver = Path(table.__file__).parent / "driver"
    moves.check_moves(table.load(driver, header))
    with pytest.raises(roles.TableError, match="without a `move`: cuCtxSetLimit"):
        moves.check_moves(load(header, tmp_path, '[cuCtxSetLimit]\nclass = "ask"\n'))
    with pytest.raises(roles.TableError, match="unknown move 'somehow'"):
        moves.check_moves(load(header, tmp_path, '[cuCtxSetLimit]\nclass = "ask"\nmove = "somehow"\n'))
    with pytest.raises(roles.TableError, match="no fields"):
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
