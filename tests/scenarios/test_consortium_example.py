"""examples/consortium: three sites by the script, the service, the installation."""

from __future__ import annotations

import configparser
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gossamer.runtime.launch import environment

EXAMPLE = Path(__file__).parents[2] / "examples" / "consortium"


@pytest.mark.slow
def test_three_sites_train_by_the_script(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    done = subprocess.run(
        [str(EXAMPLE / "three-sites.sh"), str(tmp_path)], capture_output=True, text=True, timeout=900, check=False,
        env={**environment(1), "PATH": paths, "PORT": str(port)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 certificates, each signed by its site's key, none missing" in done.stdout
    assert re.search(r"round 40 of 40, accuracy 0\.[89]", done.stdout)


def test_the_service_goes_on_after_a_crash_and_ends_when_the_part_is_done() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(EXAMPLE / "gossamer-peer@.service")
    service = unit["Service"]
    assert service["ExecStart"].endswith("gossamer peer run %i.study --site site --out site/%i")
    assert service["Restart"] == "on-failure"
    assert service["SuccessExitStatus"] == "130"  # how a command that was interrupted ends
    assert unit["Unit"]["ConditionPathExists"] == "!/var/lib/gossamer/site/%i/run/certificate.json"


def test_the_installation_makes_a_closed_folder_and_the_service(tmp_path: Path) -> None:
    done = subprocess.run(
        [str(EXAMPLE / "install.sh")], env={**os.environ, "ROOT": str(tmp_path), "WITHOUT_VENV": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "pki join INVITE" in done.stdout
    assert (tmp_path / "var/lib/gossamer").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "etc/systemd/system/gossamer-peer@.service").is_file()
