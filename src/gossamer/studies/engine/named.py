"""`--engine`: an engine by its name."""

from __future__ import annotations

from collections.abc import Callable

from gossamer.errors import UserError
from gossamer.studies.engine.job import Engine
from gossamer.studies.engine.local import Local


def _local(address: str, jobs: int | None) -> Engine:
    if address:
        raise UserError(f"--engine local:{address} has no address; use --engine local.")
    return Local(jobs)


def _dask(address: str, jobs: int | None) -> Engine:
    from gossamer.studies.engine.cluster import Cluster

    if jobs is not None:
        raise UserError(
            f"--jobs {jobs} is for --engine local; a cluster does as many at a time as its workers have threads."
        )
    return Cluster(address)


ENGINES: dict[str, Callable[[str, int | None], Engine]] = {"local": _local, "dask": _dask}


def find_engine(text: str, jobs: int | None = None) -> Engine:
    """`local`, or `dask:ADDRESS` with the address of a scheduler."""
    kind, _, address = str(text).partition(":")
    if kind not in ENGINES:
        raise UserError(
            f"--engine {text} is not known; it can be local or dask:ADDRESS, for example dask:tls://10.0.0.1:8786."
        )
    return ENGINES[kind](address, jobs)
