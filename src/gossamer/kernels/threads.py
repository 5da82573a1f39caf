"""Where kernels run: on compiled loops or torch's operations, and on one pool of threads that they share.

The pool has a thread per core, each with a single torch thread of its own, so kernels that run side by side never ask
for more cores than there are. Work for it must release the GIL: torch operators, AES and numba's nogil functions do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier, Lock
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

_lock = Lock()
_pool: ThreadPoolExecutor | None = None


def runs_compiled(values: Tensor) -> bool:
    """May loops compiled for the processor read and write these values? On "cuda" or "meta" torch's own must."""
    return values.device.type == "cpu"


@contextmanager
def full_precision() -> Iterator[None]:
    """Products of float32 are of float32 here, although the caller allowed bfloat16 (autocast, or its faster products).

    What rounding may do to a sum is bounded for float32: a record could move it by 1% more than its clip otherwise.
    """
    library: Any = torch.backends.mkldnn
    products = [getattr(library, name) for name in ("matmul", "conv") if hasattr(library, name)]
    allowed = [of.fp32_precision for of in products]
    if all(own in ("none", "ieee") for own in allowed) and not torch.is_autocast_enabled("cpu"):
        yield
        return
    for of in products:
        of.fp32_precision = "ieee"
    try:
        with torch.autocast("cpu", enabled=False):
            yield
    finally:
        for of, own in zip(products, allowed, strict=True):
            of.fp32_precision = own


def cores() -> int:
    """As many as torch may use, so that OMP_NUM_THREADS and torch.set_num_threads hold for us too."""
    return torch.get_num_threads()


def run_all(work: Callable[[T], object], parts: Iterable[T]) -> None:
    """Do all parts, side by side, and raise what any of them raises; a single one in this thread."""
    parts = list(parts)
    if len(parts) == 1:
        work(parts[0])
        return
    pool = _started()
    for done in [pool.submit(work, part) for part in parts]:
        done.result()


def even_slices(length: int, parts: int, multiple: int = 1) -> list[slice]:
    """0 … length cut into at most `parts` slices of about equal size, cut at multiples."""
    step = max(1, -(-length // (parts * multiple))) * multiple
    return [slice(at, min(at + step, length)) for at in range(0, length, step)]


def _started() -> ThreadPoolExecutor:
    global _pool  # noqa: PLW0603
    with _lock:
        if _pool is None:
            size = cores()
            _pool = ThreadPoolExecutor(size, "gossamer", initializer=torch.set_num_threads, initargs=(1,))
            # It holds for the thread that sets it, but is also the default of threads to come: put it back.
            started = Barrier(size + 1)
            for _ in range(size):
                _pool.submit(started.wait)
            started.wait()
            torch.set_num_threads(size)
        return _pool


def _forget() -> None:
    global _pool  # noqa: PLW0603
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)  # threads do not survive a fork
