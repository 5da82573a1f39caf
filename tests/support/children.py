"""Child processes of an engine that answer at once: what a job comes to is the last part of its `out`."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from gossamer.studies.engine.process import ChildProcess

# An error, none, its own end; `options.files` are written.
SCRIPT = """
import json, os, signal, sys, time
for line in sys.stdin:
    told = json.loads(line)
    told.update(told.get("options", {}))
    out = os.path.basename(told.get("come to") or told["out"])
    for name, text in told.get("files", {}).items():
        os.makedirs(os.path.dirname(os.path.join(told["out"], name)), exist_ok=True)
        open(os.path.join(told["out"], name), "w").write(text)
    if out == "dies": os._exit(3)
    if out == "killed": os.kill(os.getpid(), signal.SIGKILL)
    if out == "sleeps": time.sleep(60)
    if out == "talks": print("some words", file=sys.stderr, flush=True)
    print(json.dumps({"error": None if out in ("fine", "talks") else out}), flush=True)
"""


def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(self: ChildProcess) -> Any:
        return subprocess.Popen(
            [sys.executable, "-S", "-c", SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    monkeypatch.setattr(ChildProcess, "_start", start)
