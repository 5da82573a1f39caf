"""Sites that run different versions of this program are told so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.peer_studies import said

import gossamer
from gossamer.consortium.demo import prepare
from gossamer.runtime.launch import end as stop
from gossamer.runtime.launch import environment

pytest.importorskip("grpc")

OTHER = "9.8.7"
# The program as it is, but for its number.
_AS_OTHER = f"import gossamer, gossamer.cli; gossamer.__version__ = {OTHER!r}; gossamer.cli.main()"


def test_a_study_that_another_version_packed_is_told(
    packed_study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("peer", "check", str(packed_study), "--site", str(tmp_path / "mercy"), "--seconds", "0")
    assert "packed by gossamer" not in said(*words)
    monkeypatch.setattr(gossamer, "__version__", OTHER)
    assert f"and this site runs {OTHER}" in said(*words).replace("\n", " ")


@pytest.mark.slow
def test_a_site_of_another_version_is_named_in_the_log_and_by_check(tmp_path: Path) -> None:
    study = prepare(tmp_path, ("alder", "birch"), 3)
    part = [str(study), "--site", str(tmp_path / "birch"), "--out", str(tmp_path / "birch" / "part")]
    other = subprocess.Popen(
        [sys.executable, "-P", "-c", _AS_OTHER, "peer", "run", *part, "--wait", "300"],
        env=environment(1), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        site = ("--site", str(tmp_path / "alder"))
        words = said("peer", "check", str(study), *site, "--seconds", "60").replace("\n", " ")
        assert f"link to birch: up, gossamer {OTHER} (here {gossamer.__version__})" in words
        subprocess.run(
            [sys.executable, "-P", "-m", "gossamer", "peer", "run", str(study), *site, "--out", str(tmp_path / "a")],
            env=environment(1), check=True, capture_output=True, timeout=300,
        )  # fmt: skip
        assert other.wait(60) == 0
    finally:
        stop([other])
    here = gossamer.__version__
    assert f"'birch' runs gossamer {OTHER} and this site {here}" in (tmp_path / "a" / "log").read_text()
    assert f"'alder' runs gossamer {here} and this site {OTHER}" in (tmp_path / "birch" / "part" / "log").read_text()
