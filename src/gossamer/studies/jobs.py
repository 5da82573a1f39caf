"""Jobs of a study on a concurrent.futures.Executor: processes of this machine, or the workers of a Dask scheduler.

A job trains one configuration and leaves a run directory. A process of this machine writes it in place; a worker
elsewhere sends it back as a zip archive. Workers are one operator's machines: what they return is believed.
"""

from __future__ import annotations

import io
import os
import signal
import tempfile
import threading
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gossamer.config.schema import RunConfig
from gossamer.errors import UserError
from gossamer.models.networks import Own
from gossamer.options.sentences import whole_number
from gossamer.results.signatures import KEY

if TYPE_CHECKING:
    from gossamer.training.data import DataCache

K = TypeVar("K")
THREADS = 1  # of each process: as many processes as cores, and the same sums everywhere
_WAIT = 60.0  # seconds without any worker; Dask's setting gossamer.wait says otherwise


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job: an error in one sentence, a traceback for the log, the result where no disk is shared."""

    error: str | None = None
    log: str = ""
    value: Any = None
    died: bool = False  # the process did, and not the job by a mistake


class Engine:
    """`local`, with so many processes, or `dask:ADDRESS`."""

    def __init__(self, text: str = "local", jobs: int | None = None):
        kind, _, self.address = str(text).partition(":")
        self.name = f"--engine {text}"
        self.here = kind == "local"
        known = kind in ("local", "dask") and self.here != bool(self.address)
        if not known or any(map(str.isspace, str(text))):
            raise UserError(f"{self.name} is not known; it can be local or dask:ADDRESS.")
        if jobs is not None and not self.here:
            raise UserError(f"--jobs {jobs} is for --engine local; a cluster has its workers' threads.")
        self.jobs = _cores() if jobs is None else whole_number("--jobs", jobs)
        self._client: Any = None
        self._seen = 0.0  # when a worker was last there

    def refuse(self, config: RunConfig) -> None:
        """Records of the user's own, and code that a configuration names, do not leave this machine."""
        if self.here:
            return
        if config.data.own:
            what = f"data.kind = {config.data.kind!r} is records of your own"
            raise UserError(f"{what}, and {self.name} would carry them elsewhere; use --engine local.")
        if isinstance(config.model, Own):
            what = f"model.path = {config.model.path!r} is code of yours, and {self.name} sends no code"
            remedy = "register the model in a plug-in of the workers (--plugin), or use --engine local"
            raise UserError(f"{what}; {remedy}.")

    def open(self) -> AbstractContextManager[Executor]:
        return self._processes() if self.here else self._workers()

    def check(self) -> None:
        """Is there a scheduler with a worker? Before anything is written."""
        if not self.here:
            with self.open():
                pass

    def run(
        self,
        jobs: Mapping[K, Callable[[], Outcome]],
        log: Path,
        begun: Callable[[K], bool] = lambda key: True,
    ) -> Iterator[tuple[K, Outcome] | None]:
        """Every job's key with its outcome, as they end, and None a few times a second. Tracebacks go to `log`.

        A process that dies takes the executor with it: jobs that had not `begun` are submitted again to a new one.
        """
        left = dict(jobs)
        while left:
            submitted, left = left, {}
            with self.open() as executor:
                waiting = {executor.submit(job): key for key, job in submitted.items()}
                while waiting:
                    yield None
                    for future in wait(waiting, timeout=0.3, return_when=FIRST_COMPLETED)[0]:
                        key = waiting.pop(future)
                        outcome = settled(future, log)
                        if outcome.died and not begun(key) and len(submitted) > 1:
                            left[key] = submitted[key]
                        else:
                            yield key, outcome
                    self._check_workers()
            if len(left) == len(submitted):
                raise UserError("the processes of the study end before they begin; see the messages above.")

    def _check_workers(self) -> None:
        """Raise if there was no worker for as long as at the start, in place of waiting for ever."""
        if self._client is None:
            return
        try:
            there = bool(self._client.scheduler_info(n_workers=1)["workers"])
        except Exception:  # a scheduler that is gone cancels its futures itself
            there = False
        now = time.monotonic()
        self._seen = now if there else self._seen
        if now - self._seen > self._seconds:
            note = "what has arrived is kept, and the same command continues"
            raise UserError(f"{self.name}: no worker for {self._seconds:g} s; {note}.")

    def at_a_time(self, jobs: int) -> str:
        here = f"{min(self.jobs, max(1, jobs))} at a time"
        return here if self.here else f"at the workers of {self.address}"

    @contextmanager
    def _processes(self) -> Iterator[Executor]:
        """Of loky, which does not run a user's script again in its children as multiprocessing does."""
        from joblib.externals.loky import ProcessPoolExecutor

        from gossamer.runtime.launch import environment

        begin = {"initializer": _begin_process, "initargs": (os.getpid(),)}
        executor = ProcessPoolExecutor(self.jobs, env=environment(THREADS), **begin)
        try:
            yield executor
        finally:
            executor.shutdown(wait=True, kill_workers=True)

    @contextmanager
    def _workers(self) -> Iterator[Executor]:
        try:
            import dask

            quiet = dict.fromkeys(("distributed", "distributed.client", "tornado.application"), "critical")
            dask.config.set(logging={**quiet, **(dask.config.get("logging", None) or {})})  # tracebacks of lost workers
            import distributed
        except ImportError:
            raise UserError(f"{self.name} needs Dask; pip install 'gossamer[cluster]' brings it.") from None
        connect: Any = distributed.Client
        self._seconds = float(dask.config.get("gossamer.wait", _WAIT))
        try:
            client = connect(self.address, timeout=10, set_as_default=False, name="gossamer")
            client.wait_for_workers(1, timeout=self._seconds)
        except (OSError, ValueError, TypeError, RuntimeError) as error:  # a TimeoutError is an OSError
            reason = " ".join(str(error).split())[:160]
            how = "start `dask scheduler` and `dask worker`; TLS is set in Dask's configuration"
            raise UserError(f"{self.name}: no scheduler with a worker answers ({reason}); {how}.") from None

        self._client, self._seen = client, time.monotonic()
        try:
            yield client.get_executor(pure=False)
        finally:
            self._client = None
            client.close(timeout=5)  # cancels what this client alone waits for


def settled(future: Future[Outcome], log: Path) -> Outcome:
    """The outcome of a future that is done; a process that died is an error in a sentence. Tracebacks go to `log`."""
    try:
        outcome = future.result()
    except (BrokenExecutor, OSError) as error:
        reason = " ".join(str(error).split())[:160]
        outcome = Outcome(f"its process ended (out of memory?): {reason}", died=True)
    except Exception as error:
        lost = type(error).__name__ in ("KilledWorker", "FutureCancelledError", "CancelledError")
        outcome = Outcome("the scheduler or every worker that began it is gone." if lost else f"{error}")
    if outcome.log:
        with log.open("a", encoding="utf-8") as file:
            file.write(outcome.log)
    return outcome


# In the process that does the job

_caches: list[DataCache] = []


def train(settings: dict[str, Any], place: Path | None, data_dir: Path | None, *, force: bool, version: str) -> Outcome:
    """One run, into `place`; without one the files of its directory are the value."""

    def work(cache: DataCache) -> bytes | None:
        from gossamer.training.assemble import assemble
        from gossamer.training.plan import Plan
        from gossamer.training.run import execute

        with tempfile.TemporaryDirectory(prefix="gossamer-") as temporary:
            out = Path(temporary) / "run" if place is None else place
            config = RunConfig.model_validate(settings)
            o = Plan.of(config, data_dir=data_dir, cache=cache, force=force)
            execute(assemble(o), out=out)
            return _archive(out) if place is None else None

    return guarded(work, version)


def guarded(work: Callable[[DataCache], Any], version: str) -> Outcome:
    """Call `work` with this process' data cache; a mistake is a sentence, a fault of ours has a traceback."""
    import gossamer
    from gossamer.training.data import DataCache

    if version != gossamer.__version__:
        return Outcome(f"the worker has gossamer {gossamer.__version__}, the study {version}; use the same.")
    if not _caches:
        _caches.append(DataCache())
    try:
        return Outcome(value=work(_caches[0]))
    except UserError as error:
        return Outcome(str(error))
    except Exception as error:
        sentence = f"an error in gossamer: {type(error).__name__}: {error} (see errors.log)"
        return Outcome(sentence, traceback.format_exc())


def _archive(folder: Path) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.name != KEY:
                archive.write(path, path.relative_to(folder))
    return content.getvalue()


def unpack(files: bytes, place: Path) -> None:
    """The files of a run that was trained elsewhere."""
    with zipfile.ZipFile(io.BytesIO(files)) as archive:
        archive.extractall(place)


def _begin_process(parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when it stops
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    import torch

    from gossamer.options.plugins import load_plugins

    load_plugins()
    torch.set_num_threads(THREADS)


def _end_with_parent(parent: int, seconds: float = 0.5) -> None:
    """A job whose study is gone would be run a second time when the study is continued."""
    while os.getppid() == parent:
        time.sleep(seconds)
    os._exit(1)


def _cores() -> int:
    """That this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
