"""The description of the REST interface: ``python -m jupyter_gpupool.server.rest.document [FILE]``.

Made at build time, with pydantic; a Jupyter server only reads the file. It is never committed, and is written only
where something changed, so that nothing is built again for nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

from gpupool.generated import write_changed
from gpupool.request.forms import schema
from gpupool.request.gpu_request import GpuRequest
from gpupool.request.option import Place
from gpupool.sentences.reasons import REASONS
from pydantic import ConfigDict, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import TypeAliasType, get_original_bases, is_typeddict

from jupyter_gpupool.server.rest import (
    bodies,
    dashboard,
    errors,
    explanations,
    kernel_side,
    kernels,
    pool,
    routes,
    sentences,
    usage,
)
from jupyter_gpupool.server.rest.description import FILE
from jupyter_gpupool.server.rest.route import PATH_PARAMETERS, Query, Route
from jupyter_gpupool.server.rest.routes import ROUTES

_ROOT: Final = Path(__file__).resolve().parents[3]
_SCHEMAS: Final = "#/components/schemas/"
_ANSWERS: Final = (sentences, explanations, usage, kernels, pool, dashboard, kernel_side, errors, routes)
Json = dict[str, Any]


def document() -> Json:
    """The whole description, as JSON."""
    paths: Json = {}
    for route in ROUTES:
        paths.setdefault(f"/{route.path}", {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "GPU pool of a Jupyter server",
            "version": json.loads((_ROOT / "package.json").read_text(encoding="utf-8"))["version"],
            "description": "What the JupyterLab page, the widget and kernels ask of the Jupyter server.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [
            {
                "url": "{base_url}gpupool",
                "variables": {"base_url": {"default": "/", "description": "Of the Jupyter server."}},
            }
        ],
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "user": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": "`token <token>` of the Jupyter server; its login cookie serves as well.",
                },
                "kernel": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": "`gpupool-kernel <kernel id>:<capability>`, with the secret of the kernel's launch.",
                },
            },
        },
    }


def schemas(record: type[GpuRequest] = GpuRequest) -> Json:
    """All shapes, by name. Those of answers are complete: what is not listed in them is never sent."""
    shapes = [*_shapes(_ANSWERS, "forbid"), *_shapes([bodies], "ignore")]
    _, made = TypeAdapter.json_schemas(
        [(shape, "serialization", TypeAdapter(shape)) for shape in shapes],
        ref_template=_SCHEMAS + "{model}",
        schema_generator=_Shapes,
    )
    found: Json = made["$defs"]
    for shape in shapes:
        # A field is explained where it is written; whoever inherits it says the same.
        for name, described in found[shape.__name__].get("properties", {}).items():
            described |= _explained(shape, name, found)
    found["GpuRequest"] = {
        "type": "object",
        "description": "A request for GPUs; what it leaves out is as the server's settings have it.",
        "properties": schema(Place.BODY, record),
    }
    found["AttachOptions"] = {
        "description": "A request that names its share.",
        "allOf": [{"$ref": f"{_SCHEMAS}GpuRequest"}],
        "required": ["share"],
    }
    found["Reason"] = {
        "type": "string",
        "description": "Why a lease or a session ended.",
        "enum": sorted(REASONS),
    }
    for described in found.values():
        # Says the name once more.
        described.pop("title", None)
    return dict(sorted(found.items()))


class _Shapes(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        """A field has its name; a title says it once more."""
        return False


def _shapes(modules: Iterable[ModuleType], extra: Literal["forbid", "ignore"]) -> Iterator[Any]:
    """The shapes that modules define."""
    for module in modules:
        for shape in vars(module).values():
            if getattr(shape, "__module__", None) != module.__name__:
                continue
            if is_typeddict(shape):
                # Said here and not at each shape, so that a Jupyter server needs no pydantic.
                shape.__pydantic_config__ = ConfigDict(extra=extra, use_attribute_docstrings=True)
                yield shape
            elif isinstance(shape, TypeAliasType):
                yield shape


def _explained(shape: Any, name: str, found: Json) -> Json:
    said = found[shape.__name__]["properties"][name].get("description")
    if said is not None:
        return {"description": said}
    for base in get_original_bases(shape):
        if is_typeddict(base) and name in base.__annotations__ and (said := _explained(base, name, found)):
            return dict(said)
    return {}


def _operation(route: Route) -> Json:
    made: Json = {
        "operationId": _name(route),
        "summary": route.does,
        "security": [{"kernel" if route.of_kernel else "user": []}],
        "responses": {
            str(route.status.value): _content(route.media, route.answer, route.status.phrase),
            **{
                str(status.value): _content("application/json", errors.Refusal, status.phrase)
                for status in sorted(route.refusals)
            },
        },
    }
    parameters = [*map(_path_parameter, route.parameters), *map(_query_parameter, route.query)]
    if parameters:
        made["parameters"] = parameters
    if route.body:
        references = [_reference(shape) for shape in route.body]
        shape = references[0] if len(references) == 1 else {"allOf": references}
        made["requestBody"] = {"content": {"application/json": {"schema": shape}}}
    return made


def _name(route: Route) -> str:
    """``post_kernels_attach``: one word for a program."""
    parts = [part for part in route.path.split("/") if not part.startswith("{") and part != "api"]
    return "_".join([route.method.lower(), *parts]).replace(".", "_")


def _content(media: str, shape: Any, says: str) -> Json:
    return {"description": says, "content": {media: {"schema": _reference(shape)}}}


def _reference(shape: Any) -> Json:
    return {"$ref": f"{_SCHEMAS}{shape.__name__}"}


def _path_parameter(name: str) -> Json:
    pattern, says = PATH_PARAMETERS[name]
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": says,
        "schema": {"type": "string", "pattern": f"^{pattern}$"},
    }


def _query_parameter(query: Query) -> Json:
    return {"name": query.name, "in": "query", "description": query.says, "schema": {"type": query.type}}


def write(path: Path = FILE) -> bool:
    """Whether the file had to be written."""
    return write_changed(path, json.dumps(document(), indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:]))
