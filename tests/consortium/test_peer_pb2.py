"""What is checked in is what peer.proto generates."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gossamer.consortium import peer_pb2

FOLDER = Path(peer_pb2.__file__).parent
PROTO = "gossamer/consortium/peer.proto"


def normal(text: str) -> str:
    """Without the versions of the compiler, which differ between machines."""
    text = re.sub(r"Protobuf Python Version: .*", "", text)
    return re.sub(r"(Domain\.PUBLIC,)\s+\d+,\s+\d+,\s+\d+", r"\1", text)


def test_the_generated_code_is_that_of_the_proto(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(FOLDER.parents[1])]
    outs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi")]
    subprocess.run([*command, *outs, PROTO], check=True, timeout=60)
    made = sorted((tmp_path / PROTO).parent.glob("*"))
    assert [file.name for file in made] == ["peer_pb2.py", "peer_pb2.pyi"]
    for file in made:
        assert normal(file.read_text()) == normal((FOLDER / file.name).read_text()), file.name


def test_the_field_numbers_never_change() -> None:
    """Sites of different versions meet: a number once given is never given again."""
    frame = {field.name: field.number for field in peer_pb2.Frame.DESCRIPTOR.fields}
    assert frame == {"hello": 1, "proof": 2, "chunk": 3, "taken": 4, "beat": 5}
    chunk = {field.name: field.number for field in peer_pb2.Chunk.DESCRIPTOR.fields}
    assert chunk == {"number": 1, "size": 2, "offset": 3, "data": 4}
