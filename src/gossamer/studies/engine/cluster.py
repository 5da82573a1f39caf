"""`--engine dask:ADDRESS`: jobs at the workers of a Dask scheduler, wherever they are; no disk is shared with them.

Out go a configuration as JSON and, to a worker that lacks one, a public data set by its digest. Back come the files of
a run as bytes, which are data: no pickle of a result is opened, names are checked, and a run is taken only if it is of
the configuration that was sent and its seals hold.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gossamer.config.schema import RunConfig
from gossamer.data import sent
from gossamer.errors import UserError
from gossamer.studies.engine import at_worker
from gossamer.studies.engine.arrival import ARRIVED, begun_elsewhere, refuse_arrived, take_the_marks_place
from gossamer.studies.engine.child import order
from gossamer.studies.engine.job import Job, OnStart
from gossamer.studies.engine.leaving import refuse
from gossamer.studies.engine.parcel import ParcelError, lay_out, unpack
from gossamer.studies.engine.same import code, difference
from gossamer.studies.engine.spoken import open_to_others, plain

ANSWER_SECONDS = 10.0  # for a scheduler to answer
WORKER_SECONDS = 60.0  # without any worker; Dask's setting gossamer.wait says otherwise
FETCH_SECONDS = 60.0  # for a result to come over
PART = 1 << 25  # bytes of a data set that are sent at a time
_LOGGERS = "distributed"
BYTES_ALONE = ["msgpack"]  # how results are read: a pickle among them is refused


class Cluster:
    here = False

    def __init__(self, address: str):
        if not address or any(sign.isspace() for sign in address):
            raise UserError(
                f"--engine dask:{address} names no scheduler; give its address, for example dask:tls://10.0.0.1:8786."
            )
        try:
            import distributed
        except ImportError:
            raise UserError(
                f"--engine dask:{address} needs Dask, which is missing; pip install 'gossamer[cluster]' brings it."
            ) from None
        self._distributed: Any = distributed
        self._address = address

    @property
    def name(self) -> str:
        return f"--engine dask:{self._address}"

    def refuse(self, config: RunConfig) -> None:
        refuse(config, self.name)

    @contextmanager
    def open(self, log: Path, data_dir: Path | None) -> Iterator[Workers]:
        import dask

        seconds = float(dask.config.get("gossamer.wait", WORKER_SECONDS))
        with _silent():
            client = self._connect()
            try:
                self._meet(client, seconds)
                workers = Workers(client, self.name, log, data_dir, seconds)
                try:
                    yield workers
                finally:
                    workers.stop()
            finally:
                with suppress(Exception):
                    client.close(timeout=5)

    def _connect(self) -> Any:
        try:
            # First, for a client that finds nobody leaves threads and tracebacks behind; in a thread of its own, for
            # a notebook's has a loop already.
            with ThreadPoolExecutor(1) as apart:
                apart.submit(lambda: asyncio.run(self._knock())).result()
            return self._distributed.Client(
                self._address,
                timeout=ANSWER_SECONDS,
                set_as_default=False,
                deserializers=BYTES_ALONE,
                name="gossamer",
            )
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            said = " ".join(str(error).split())[:160]
            raise UserError(
                f"{self.name}: no scheduler answers there within {ANSWER_SECONDS:g} s ({said}); start one with "
                "`dask scheduler`, and where it speaks TLS name its certificates in Dask's configuration."
            ) from None

    async def _knock(self) -> None:
        ours = self._distributed.Security().get_connection_args("client")
        found = await self._distributed.comm.connect(self._address, timeout=ANSWER_SECONDS, **ours)
        await found.close()

    def _meet(self, client: Any, seconds: float) -> None:
        """At least one worker, and all of them with our code."""
        try:
            client.wait_for_workers(1, timeout=seconds)
        except (TimeoutError, OSError):
            raise UserError(
                f"{self.name}: no worker within {seconds:g} s; start one with `dask worker {self._address}`, or wait "
                "longer with DASK_GOSSAMER__WAIT=3600."
            ) from None
        here = code()
        for address, said in client.run(at_worker.introduce, on_error="return").items():
            if not isinstance(said, str):
                why = f"{type(said).__name__}: {' '.join(str(said).split())[:120]}"
                raise UserError(
                    f"{self.name}: the worker {address} has no gossamer like this one ({why}); install gossamer "
                    f"{here['version']} there."
                )
            other = difference(here, json.loads(said), address)
            if other is not None:
                raise UserError(f"{self.name}: {other}")


@contextmanager
def _silent() -> Iterator[None]:
    """What Dask logs of lost workers and connections, tracebacks among it, is said in sentences here."""
    loggers = [
        logging.getLogger(name) for name in [*logging.root.manager.loggerDict] if name.startswith(_LOGGERS)
    ]
    levels = [(logger, logger.level) for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in levels:
            logger.setLevel(level)


@dataclass
class _Sent:
    """A job that is out."""

    job: Job
    on_start: OnStart
    future: Future[str | None] = field(default_factory=Future)
    dask: Any = None


class Workers:
    """All that happens to a job's place happens on one thread, in the order in which the scheduler tells it."""

    def __init__(self, client: Any, name: str, log: Path, data_dir: Path | None, seconds: float):
        self._client, self._name, self._log, self._data_dir = client, name, log, data_dir
        self._seconds = seconds
        self._topic = f"gossamer-{secrets.token_hex(8)}"
        self._out: dict[str, _Sent] = {}
        self._given: set[tuple[str, str]] = set()  # worker, public file
        self._over = threading.Event()
        self._hand = ThreadPoolExecutor(1, thread_name_prefix="gossamer-cluster")
        client.subscribe_topic(self._topic, lambda event: self._later(self._begun, event[1]))
        threading.Thread(target=self._watch, daemon=True).start()

    def submit(self, job: Job, on_start: OnStart) -> Future[str | None]:
        key = f"{self._topic}-{len(self._out)}"
        self._out[key] = _Sent(job, on_start)
        self._send(key)
        return self._out[key].future

    def at_a_time(self, jobs: int) -> str:
        known = self._client.scheduler_info()["workers"].values()
        threads = sum(worker["nthreads"] for worker in known)
        many = f"{len(known)} worker{'s' if len(known) != 1 else ''}"
        return f"{min(jobs, threads)} at a time at {many}{open_to_others(self._client.scheduler.address)}"

    def stop(self) -> None:
        if self._over.is_set():
            return
        self._over.set()
        with suppress(Exception):
            self._client.unsubscribe_topic(self._topic)
            left = [one.dask for one in self._out.values() if not one.future.done()]
            self._client.cancel(left, force=True)
        self._hand.shutdown(wait=True, cancel_futures=True)

    def _send(self, key: str, worker: str | None = None) -> None:
        one = self._out[key]
        config = RunConfig.model_validate(one.job.config)
        task = f"{key}-{secrets.token_hex(4)}"  # a job that is sent again is another task
        request = {
            "job": key,
            "task": task,
            "topic": self._topic,
            "code": code(),
            "public": sent.needed(config.data),
            "order": {**order(one.job, one.job.place, None), "out": None},  # paths of ours mean nothing there
        }
        one.dask = self._client.submit(
            at_worker.do,
            json.dumps(request),
            key=task,
            pure=False,
            workers=[worker] if worker else None,
            allow_other_workers=worker is not None,
        )
        one.dask.add_done_callback(lambda found: self._later(self._ended, key, found))

    def _later(self, what: Callable[..., None], *given: Any) -> None:
        with suppress(RuntimeError):  # shut down: nobody waits
            self._hand.submit(self._safely, what, *given)

    def _safely(self, what: Callable[..., None], *given: Any) -> None:
        """Whatever is wrong with what came, somebody is told."""
        if self._over.is_set():
            return
        try:
            what(*given)
        except OSError as error:
            self._give_up(UserError(f"{self._name}: what arrived could not be kept: {error}."))
        except BaseException as error:
            self._give_up(error)

    def _begun(self, said: Any) -> None:
        one = self._out.get(str(said.get("job"))) if isinstance(said, dict) else None
        if one is not None and not one.future.done():
            one.on_start()
            begun_elsewhere(one.job.place, plain(said.get("worker")))

    def _ended(self, key: str, found: Any) -> None:
        one = self._out[key]
        if found is not one.dask or one.future.done():
            return
        if found.status != "finished":
            self._lost(one, found)
            return
        try:
            said, files = unpack(found.result(timeout=FETCH_SECONDS))
        except TimeoutError:  # its worker died with the result, and another begins anew; or the line is slow
            found.add_done_callback(lambda again: self._later(self._ended, key, again))
            return
        except (ParcelError, TypeError) as error:
            one.future.set_result(f"what its worker sent is refused: {error}.")
            return
        found.release()
        if said.get("lacks"):
            self._give(key, said["lacks"], plain(said.get("worker")))
            return
        one.future.set_result(self._arrived(one.job, said, files))

    def _lost(self, one: _Sent, found: Any) -> None:
        if found.status == "cancelled":  # the scheduler is gone, and whatever it knew
            raise UserError(
                f"{self._name}: the scheduler is gone; what has arrived is kept, and the same command goes on."
            )
        error = found.exception()
        said = " ".join(str(error).split())[:160]
        died = type(error).__name__ == "KilledWorker"
        one.future.set_result(
            "every worker that began it died (out of memory?)." if died else f"it could not be sent: {said}."
        )

    def _give(self, key: str, lacking: Any, worker: str) -> None:
        """The public files that a worker lacks, to that worker; then the job again."""
        needed = self._needed(key)
        for name in lacking if isinstance(lacking, list) else [lacking]:
            if name not in needed or (worker, name) in self._given:
                self._out[key].future.set_result(
                    f"the worker {worker} asks for {plain(name)!r}, which it was sent or does not need."
                )
                return
            self._given.add((worker, name))
            content = sent.as_bytes(name, self._data_dir)
            for at in range(0, len(content), PART):
                last = at + PART >= len(content)
                answers = self._client.run(
                    at_worker.take,
                    name,
                    content[at : at + PART],
                    at == 0,
                    last,
                    workers=[worker],
                    on_error="ignore",
                )
                error = answers.get(worker)
                if error is not None:
                    self._out[key].future.set_result(f"at the worker {worker}: {error}")
                    return
        self._send(key, worker)

    def _needed(self, key: str) -> list[str]:
        return sent.needed(RunConfig.model_validate(self._out[key].job.config).data)

    def _arrived(self, job: Job, said: dict[str, Any], files: dict[str, bytes]) -> str | None:
        """The error; where there is none, the job's place holds what was sent, and it is what it says it is."""
        if isinstance(said.get("log"), str) and said["log"]:
            with self._log.open("a", encoding="utf-8") as log:
                log.write(said["log"])
        error = None if said.get("error") is None else plain(said["error"])
        arriving = job.place.with_name(f"{ARRIVED}{job.place.name}")
        shutil.rmtree(arriving, ignore_errors=True)
        try:
            lay_out(files, arriving)
            if error is None:
                refuse_arrived(job, arriving)
        except (UserError, OSError) as wrong:
            shutil.rmtree(arriving, ignore_errors=True)
            return f"what its worker sent is refused: {wrong}"
        take_the_marks_place(arriving, job.place)
        return error

    def _watch(self) -> None:
        """Nobody waits for ever: without a worker, or without the scheduler, there is an end."""
        seen = time.monotonic()
        while not self._over.wait(1.0):
            with suppress(Exception):
                if self._client.scheduler_info(n_workers=1)["workers"]:
                    seen = time.monotonic()
            if time.monotonic() - seen > self._seconds:
                self._later(self._without_workers)
                return

    def _without_workers(self) -> None:
        raise UserError(
            f"{self._name}: no worker for {self._seconds:g} s; what has arrived is kept, and the same command goes on."
        )

    def _give_up(self, error: BaseException) -> None:
        for one in self._out.values():
            if not one.future.done():
                one.future.set_exception(error)
