"""A real scheduler and its workers, as processes of this machine on loopback."""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


class Cluster:
    """`folder` holds what its processes write; GOSSAMER_DATA of this process is not theirs."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None, protocol: str = "tcp"):
        self.folder, self._protocol = folder, protocol
        folder.mkdir(parents=True, exist_ok=True)
        self._environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("GOSSAMER_")},
            "PYTHONPATH": os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")])),
            "OMP_WAIT_POLICY": "PASSIVE",
            "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "false",
            **(environment or {}),
        }
        self.workers: list[subprocess.Popen[bytes]] = []
        file = folder / "scheduler.json"
        options = ["--port", "0", "--no-dashboard", "--no-show", "--scheduler-file", str(file)]
        self.scheduler = self._start("scheduler", [*options, "--host", "127.0.0.1", "--protocol", protocol])
        limit = time.monotonic() + 300
        while not file.is_file() or not file.read_text():
            assert self.scheduler.poll() is None, (folder / "scheduler-0.log").read_text()
            assert time.monotonic() < limit, "no scheduler within 300 s"
            time.sleep(0.05)
        self.address: str = json.loads(file.read_text())["address"]

    @property
    def engine(self) -> str:
        return f"dask:{self.address}"

    def add_worker(self, *, threads: int = 1, **environment: str) -> subprocess.Popen[bytes]:
        number = len(self.workers)
        own = self.folder / f"worker-{number}"
        options = ["--nthreads", str(threads), "--no-nanny", "--no-dashboard", "--local-directory", str(own)]
        options += ["--protocol", self._protocol, "--host", "127.0.0.1", "--memory-limit", "0"]
        worker = self._start("worker", [self.address, *options], environment)
        self.workers.append(worker)
        return worker

    def _start(
        self, what: str, options: list[str], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        number = len(list(self.folder.glob(f"{what}-*.log")))
        with (self.folder / f"{what}-{number}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{what}", *options],
                cwd=self.folder,
                env={**self._environment, **(environment or {})},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def close(self) -> None:
        for process in [*self.workers, self.scheduler]:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def cluster(folder: Path, workers: int, **how: object) -> Iterator[Cluster]:
    started = Cluster(folder, **how)  # type: ignore[arg-type]
    try:
        for _ in range(workers):
            started.add_worker()
        yield started
    finally:
        started.close()


def certificates(folder: Path) -> dict[str, str]:
    """An authority and one certificate for all; returns Dask's settings for them, as variables."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    folder.mkdir()
    now = datetime.datetime.now(datetime.UTC)
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("ca", "peer")}
    names = {k: x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{folder.name} {k}")]) for k in keys}
    for name, key in keys.items():
        made = (
            x509.CertificateBuilder()
            .subject_name(names[name])
            .issuer_name(names["ca"])
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=name == "ca", path_length=None), critical=True)
            .sign(keys["ca"], hashes.SHA256())
        )
        (folder / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "peer.key").write_bytes(
        keys["peer"].private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    tls = "DASK_DISTRIBUTED__COMM__TLS"
    settings = {f"{tls}__CA_FILE": "ca.pem"}
    for role in ("SCHEDULER", "WORKER", "CLIENT"):
        settings |= {f"{tls}__{role}__CERT": "peer.pem", f"{tls}__{role}__KEY": "peer.key"}
    return {name: str(folder / file) for name, file in settings.items()} | {
        "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true"
    }
