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


SPREAD = ["--set", "runtime.blocks=[5,3]", "--set", "privacy.claim=none", "--set", "runtime.timeout=20"]


def rank_in(folder: Path) -> int:
    """The process of a rank that works in that folder."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if (entry / "cwd").readlink() == folder and b"--runtime" in words and b"run" in words:
                    return int(entry.name)
            except OSError:
                continue
    raise AssertionError(f"no rank works in {folder}")
