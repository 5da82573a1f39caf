"""Real peers, one of them on a disk that is full for a while."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest
from tests.support.real_peers import CONSTANT, Peers

pytest.importorskip("grpc")
pytestmark = pytest.mark.slow


def test_a_full_disk_is_one_sentence_and_the_site_resumes(tmp_path: Path) -> None:
    with Peers(tmp_path, 3, 120, deadline=2.0, wait=200.0, changes=CONSTANT) as peers:
        peers.start()
        peers.until(lambda: peers.round("birch") >= 3, 180)
        birch = peers.children["birch"]
        size = (peers.part("birch") / "journal").stat().st_size
        resource.prlimit(birch.pid, resource.RLIMIT_FSIZE, (size + 20_000, size + 20_000))
        end = time.monotonic() + 120
        while birch.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.1)
        assert birch.returncode == 2
        said = peers.said("birch")
        assert "Traceback" not in said + peers.log("birch")
        assert str(peers.part("birch") / "journal") in said
        assert "the same command resumes" in said.splitlines()[-1]
        peers.start("birch")
        peers.finish(300)
        peers.released_once()
        peers.verified()
