"""Inputs that nobody meant: configurations, `--set` strings, data files and messages, made from the schema itself.

`tries` runs one of them under a watchdog. A sentence for people is right, being accepted is right; any other exception,
and anything that takes longer than `SECONDS`, is a finding. Findings are kept in fuzz_corpus.jsonl and tried again first.
"""

from __future__ import annotations

import io
import json
import signal
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import strategies as st

from gossamer.config.layers import parse_overrides, resolve
from gossamer.config.reference import as_data
from gossamer.data.load import datasets, load
from gossamer.errors import UserError
from gossamer.training.plan import Plan

SECONDS = 10
LONGEST = 2500  # characters of a sentence; the longest list all kinds of a table
CORPUS = Path(__file__).with_name("fuzz_corpus.jsonl")
# Cheap to plan: full lots and a fixed multiplier have closed forms.
BASE: dict[str, Any] = {
    "name": "fuzz", "nodes": 3, "rounds": 2,
    "data": {"kind": "synthetic-classification", "n": 30, "features": 4, "test": 6},
    "model": {"kind": "softmax"},
    "topology": {"kind": "ring"},
    "algorithm": {"kind": "dp-dsgd", "lr": 0.5},
    "privacy": {
        "epsilon": 8.0, "delta": 1e-3, "sampling": {"kind": "full"}, "clip": {"kind": "constant", "bound": 1.0},
        "noise": {"multiplier": 50.0, "schedule": {"kind": "constant"}},
    },
}  # fmt: skip
ODD = [
    "[1]", "1", "5", "-1", "0", "true", "''", "{}", "{kind=1}", "{kind=[1]}", "[]", "[[]]", "[[1]]", "nan", "inf", "-inf",
    "1e400", "-0.0", "0.5", "3", "1e-11", "1e-320", "1e300", "2147483648", "9223372036854775808", "1000000000000000000",
    "9" * 5000, "0x" + "f" * 5000, "1" * 400, "[" * 3000, "{a=" * 2000, "1979-05-27", "12:00:00", "'\\u0000'", "'é\\t'",
    "{x=[1]}", "'auto'", "[1,'a']", "['a','b']", "[0.1,0.2,0.3]", "[1,1,1]", "{a=[0,1]}", "{kind='x'}", "1\nrounds = 3",
    "' '", "'../..'", "'/dev/null'", "'/'", "'{node}'", "none", "sound", "paper",
]  # fmt: skip


class HangError(BaseException):
    """Not an Exception: nobody may swallow it."""


@contextmanager
def watched(seconds: int = SECONDS) -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise HangError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def tries(action: Callable[[], Any]) -> bool:
    """Was it accepted? A refusal must be one sentence; anything else comes out as it is."""
    with watched():
        try:
            action()
        except UserError as error:
            said = str(error)
            assert 0 < len(said) <= LONGEST, f"a sentence of {len(said)} characters"
            assert "\n" not in said.strip(), "more than one line"
            return False
    return True


def kept(kind: str) -> list[Any]:
    """Earlier findings of this kind."""
    lines = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines() if line]
    return [line["input"] for line in lines if line["kind"] == kind]


# --- configurations -------------------------------------------------------------------------------------------------


def _tables() -> tuple[list[str], list[str]]:
    """Every dotted key, and settings that choose a kind."""
    keys, kinds = (
        {"paper", "paper.rounds", "topology.seed", "a.b.c", "..", "data.", "privacy.clip.bound.x"},
        [],
    )
    for table in as_data():
        before = f"{table['table']}." if table["table"] else ""
        keys |= {table["table"], f"{before}kind"} if before else set()
        keys |= {before + option["name"] for option in table["options"]}
        for kind in table["kinds"]:
            # Public sets of half a million rows are not tried here.
            if table["table"] != "data" or datasets[kind["kind"]].origin is None:
                kinds.append(f"{before}kind={kind['kind']!r}")
            keys |= {before + option["name"] for option in kind["options"]}
    return sorted(keys), kinds


def settings() -> st.SearchStrategy[list[str]]:
    """One to four `--set` strings: kinds of the schema, and keys of the schema with values they may not be made for."""
    keys, kinds = _tables()
    numbers = st.one_of(st.integers(-5, 5), st.integers(), st.floats()).map(str)
    values = st.one_of(
        st.sampled_from(ODD), numbers, st.text(max_size=12), st.text("[]{}='\".,-e0123456789", max_size=20)
    )
    odd = st.builds("{}={}".format, st.sampled_from(keys), values)
    return st.lists(st.one_of(odd, odd, st.sampled_from(kinds), st.text(max_size=20)), min_size=1, max_size=4)


@cache
def _imported() -> None:
    """What is imported at first use is no hang of an input."""
    Plan.of(resolve(BASE, {"algorithm.kind": "dp-dkm", "model.kind": "linear", "loss": {"kind": "logistic"}}))


def configuration(texts: list[str]) -> bool:
    """Read and plan it; is it accepted? On a machine of two gigabytes: more would let through what takes long to make."""
    _imported()
    with patch("gossamer.training.estimate.free_memory", lambda: 2e9):
        return tries(lambda: Plan.of(resolve(BASE, parse_overrides(texts))))


# --- data files -----------------------------------------------------------------------------------------------------


def tables(rng: np.random.Generator) -> tuple[str, bytes]:
    """(kind of file, its bytes): sound ones, sound ones with bytes changed, and files that lie about themselves."""
    kind = str(rng.choice(["csv", "parquet", "npz"]))
    made = {"csv": _csv, "parquet": _parquet, "npz": _npz}[kind](rng)
    return kind, _damaged(made, rng)


def data_file(path: Path, kind: str, content: bytes, rng: np.random.Generator | None = None) -> bool:
    path.write_bytes(content)
    chosen = rng or np.random.default_rng(0)
    options: dict[str, Any] = {"path": str(path), **({} if kind == "npz" else {"label": "y"})}
    if chosen.random() < 0.5:
        options["classes"] = 2
    if chosen.random() < 0.2:
        options["owner"] = "site"
    if chosen.random() < 0.2:
        options["task"] = str(chosen.choice(["regression", "classification"]))
    return tries(lambda: load(kind, **options))


def _csv(rng: np.random.Generator) -> bytes:
    cells = [
        "1",
        "0",
        "2.5",
        "",
        "x",
        "nan",
        "inf",
        "1e400",
        "-0",
        "é",
        '"',
        "'",
        "\x00",
        "9" * 400,
        "true",
        "2020-01-01",
    ]
    plain = ["0", "1", "2", "0.5"]
    columns = int(rng.integers(1, 5))
    names = [str(rng.choice(["a", "b", "site", "y", "é", "", "1", "a b"])) for _ in range(columns)] + ["y"]
    odd = rng.random() < 0.6
    if not odd:  # a sound one
        lines = [f"{rng.normal():.3f},{rng.integers(5)},{i % 2},{i % 2}" for i in range(int(rng.integers(2, 8)))]
        return "\n".join(["a,b,site,y", *lines, ""]).encode()
    rows = [
        ",".join(str(rng.choice(cells if odd and rng.random() < 0.2 else plain)) for _ in names)
        for _ in range(int(rng.integers(0, 8)))
    ]
    text = str(rng.choice(["\n", "\r\n", "\r"])).join([",".join(names), *rows, ""])
    return text.encode(str(rng.choice(["utf-8", "latin-1", "utf-16"])), errors="replace")


def _parquet(rng: np.random.Generator) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    rows = int(rng.integers(0, 6))
    made = {
        "whole": lambda: pa.array(range(rows)),
        "list": lambda: pa.array([[1, 2]] * rows, pa.list_(pa.int64())),
        "struct": lambda: pa.array([{"q": 1}] * rows, pa.struct([("q", pa.int64())])),
        "words": lambda: pa.array(["x", "y"] * rows)[:rows],
        "bytes": lambda: pa.array([b"\xff\xfe"] * rows, pa.binary()),
        "nulls": lambda: pa.nulls(rows),
        "some": lambda: pa.array([None, 1.5] * rows, pa.float64())[:rows],
        "time": lambda: pa.array([0] * rows, pa.timestamp("us")),
        "decimal": lambda: pa.array(range(rows)).cast(pa.decimal128(30, 2)),
        "half": lambda: pa.array(np.ones(rows, np.float16)),
        "huge": lambda: pa.array([2**64 - 1] * rows, pa.uint64()),
        "dictionary": lambda: pa.array(["x"] * rows).dictionary_encode(),
    }
    names = [*(["a", "b", "site"][: int(rng.integers(0, 4))]), "y"]
    kinds = list(made)
    table = pa.table({name: made[kinds[int(rng.integers(len(kinds)))]]() for name in names})
    buffer = io.BytesIO()
    parquet.write_table(table, buffer)
    return buffer.getvalue()


def _npz(rng: np.random.Generator) -> bytes:
    rows = int(rng.integers(0, 6))
    shapes = [
        (rows, 3),
        (rows,),
        (rows, 0),
        (rows, 2, 2),
        (rows, 2, 2, 3),
        (rows, 1, 1, 1, 1),
        (),
        (0, 3),
        (rows + 1, 3),
    ]
    kinds: list[Any] = [
        np.float32,
        np.float64,
        np.int64,
        np.uint8,
        np.bool_,
        np.complex64,
        "U3",
        "S2",
        "M8[s]",
        np.float16,
    ]
    buffer = io.BytesIO()
    names = [
        str(rng.choice(["x", "x_train", "q"])),
        str(rng.choice(["y", "y_train"])),
        "site",
        "x_test",
        "y_test",
    ]
    arrays = {}
    for name in names[: int(rng.integers(1, 6))]:
        shape = (
            shapes[int(rng.integers(len(shapes)))] if rng.random() < 0.4 else ((rows, 3) if "x" in name else (rows,))
        )
        kind = kinds[int(rng.integers(len(kinds)))] if rng.random() < 0.4 else np.float32
        arrays[name] = np.zeros(shape).astype(kind)
    np.savez(buffer, **arrays)
    if rng.random() < 0.2:  # a header that promises more than there is
        lying = b"\x93NUMPY\x01\x00"
        shape = str(rng.choice(["(1000000000000,)", "(-1, 3)", "(10**9,)", "(99999999, 99999999)", "()", "(True,)"]))
        header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("x.npy", lying + len(header).to_bytes(2, "little") + header.encode() + b"\0" * 24)
            archive.writestr("y.npy", lying + len(header).to_bytes(2, "little") + header.encode())
    return buffer.getvalue()


def _damaged(content: bytes, rng: np.random.Generator) -> bytes:
    way = rng.random()
    if way < 0.6 or not content:
        return content
    if way < 0.7:
        return content[: int(rng.integers(len(content)))]
    changed = bytearray(content)
    for _ in range(int(rng.integers(1, 6))):
        changed[int(rng.integers(len(changed)))] = int(rng.integers(256))
    return bytes(changed)
