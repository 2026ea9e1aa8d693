"""Make both ends of the protocol from the table: `generate.py --include DIR --out DIR [--compiler CC]`.

What src/wire includes is made by generate_wire.py.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import coverage_page
import cuda_header
import emit_client
import emit_messages
import emit_moves
import emit_routing
import emit_structs
import emit_worker
import generate_wire
import kinds
import moves
import routes
import table


def files(resolved: table.Table) -> dict[str, str]:
    """Every generated file by name."""
    return {
        "message_ids.h": emit_messages.message_ids(resolved),
        "message_names.cpp": emit_messages.names(resolved),
        "messages.h": emit_messages.messages(resolved),
        "message_routing.h": emit_routing.message_routing(resolved),
        "round_trip_test.cpp": emit_messages.round_trip_tests(resolved),
        "random_bodies.cpp": emit_messages.random_bodies(resolved),
        "reply_decoders.cpp": emit_messages.reply_decoders(resolved),
        "driver_api.h": emit_worker.driver_api(resolved),
        "handlers.h": emit_worker.handlers(resolved),
        "structs.h": emit_structs.structs(resolved),
        "dispatch_table.cpp": emit_worker.dispatch(resolved),
        "move_rules.cpp": emit_moves.move_rules(resolved),
        "client_api.h": emit_client.api(resolved),
        "client_exports.cpp": emit_client.exports(resolved),
        "client_stubs.cpp": emit_client.stubs(resolved),
        "client_refusals.cpp": emit_client.refusals(resolved),
        "proc_addresses.cpp": emit_client.proc_addresses(resolved),
        "error_names.cpp": emit_client.errors(resolved),
        "coverage.md": coverage_page.page(resolved),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--include", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--compiler", default="cc")
    arguments = parser.parse_args()
    header = cuda_header.load(arguments.include, arguments.compiler)
    try:
        resolved = table.load(Path(__file__).parent / "driver", header)
        table.check_decided(resolved)
        moves.check_moves(resolved)
        routes.check_routes(resolved)
    except kinds.TableError as error:
        sys.exit(f"protocol table: {error}")
    generate_wire.write(arguments.out, files(resolved))


if __name__ == "__main__":
    main()
