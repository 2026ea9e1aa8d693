"""Token files for nodes that see the pool's home."""

from __future__ import annotations

from pathlib import Path

from gpupool.pool.growing.node_tokens import token_file


class _Tokens:
    def __init__(self) -> None:
        self.live: dict[str, str] = {}

    def is_good(self, token: str, node: str) -> bool:
        return self.live.get(token) == node

    def create(self, node: str) -> str:
        token = f"token{len(self.live)}"
        self.live[token] = node
        return token


def test_a_token_is_made_once_for_each_provider(tmp_path: Path) -> None:
    tokens = _Tokens()
    first = token_file(tokens, tmp_path, "lab")
    assert token_file(tokens, tmp_path, "lab") == first
    other = token_file(tokens, tmp_path, "slurm")
    assert [first.read_text(), other.read_text()] == ["token0\n", "token1\n"]
    assert tokens.live == {"token0": "lab", "token1": "slurm"}
    assert first.stat().st_mode & 0o777 == 0o600


def test_one_that_is_revoked_or_of_another_ledger_is_replaced(tmp_path: Path) -> None:
    tokens = _Tokens()
    file = token_file(tokens, tmp_path, "lab")
    tokens.live["token0"] = "other"
    assert token_file(tokens, tmp_path, "lab").read_text() == "token1\n"
    file.write_bytes(b"\xff\xfe")
    assert token_file(tokens, tmp_path, "lab").read_text() == "token2\n"
