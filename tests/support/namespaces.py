"""Two hosts on one machine, by the example for clusters."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "cluster" / "namespaces.sh"


def no_namespaces() -> str | None:
    if shutil.which("ip") is None:
        return "there is no ip command"
    name = f"gossamer-{os.getpid()}-try"  # of its own: tests that run at the same time must not meet
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"network namespaces are not allowed here: {done.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return None


class Hosts:
    """Hosts of one local network, each a network namespace with an address of its own. Needs root."""

    def __init__(self, count: int):
        self._hub, self.names = (
            f"gossamer-{os.getpid()}-hub",
            [f"gossamer-{os.getpid()}-{k}" for k in range(count)],
        )
        self.addresses = [f"10.79.0.{k + 1}" for k in range(count)]

    def __enter__(self) -> Hosts:
        _ip("netns", "add", self._hub)
        _ip("-n", self._hub, "link", "add", "hub", "type", "bridge")
        _ip("-n", self._hub, "link", "set", "hub", "up")
        for k, (name, address) in enumerate(zip(self.names, self.addresses, strict=True)):
            _ip("netns", "add", name)
            _ip(
                "link",
                "add",
                "cable",
                "netns",
                name,
                "type",
                "veth",
                "peer",
                "name",
                f"port{k}",
                "netns",
                self._hub,
            )
            _ip("-n", self._hub, "link", "set", f"port{k}", "master", "hub", "up")
            _ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
            _ip("-n", name, "link", "set", "cable", "up")
            _ip("-n", name, "link", "set", "lo", "up")
        return self

    def __exit__(self, *error: object) -> None:
        for name in (*self.names, self._hub):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


SPREAD = ["--set", "runtime.blocks=[5,3]", "--set", "privacy.claim=none", "--set", "runtime.timeout=20"]


def rank_in(folder: Path) -> int:
    """The process of a rank that works in that folder, and not the torchrun that started it."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if (entry / "cwd").readlink() == folder and b"--runtime" in words and b"--nnodes" not in words:
                    return int(entry.name)
            except OSError:
                continue
    raise AssertionError(f"no rank works in {folder}")
