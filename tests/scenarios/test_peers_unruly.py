"""Real peers, impostors at the address of one of them, and then a member who sends what no site should."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
import torch
from tests.support.real_peers import CONSTANT, Peers
from tests.support.sites import Authority, member, wait_up
from tests.support.spoilt_frames import changed, mutated
from tests.support.unruly import Unruly, writes

pytest.importorskip("grpc")
from tests.support.traced import total

from gossamer.consortium.authority import issue, make_site_key, pem
from gossamer.consortium.files import now
from gossamer.consortium.folders import KEY, Coordinator, Site
from gossamer.consortium.frames import Frame, Place, unpack
from gossamer.consortium.grpc_links import GrpcLinks, Identity
from gossamer.consortium.roster import Member
from gossamer.consortium.study import Study
from gossamer.results.signatures import private_pem

pytestmark = pytest.mark.slow

WEIGHT = 0.25
FUZZED = 6400


class Elm:
    """The fourth site, in this process: whatever its key and certificate, and whatever it says."""

    def __init__(self, peers: Peers):
        self.peers, self.name = peers, "elm"
        self.site = Site.read(peers.folder / "elm")
        self.members = dict(self.site.roster().members())
        study = Study.read(peers.study)
        self.study = study.digest
        authority = self.site.roster().authority.encode()
        self.identity = Identity(
            "elm",
            authority,
            self.site.roster().site("elm").certificate.encode(),
            self.site.file(KEY).read_bytes(),
        )

    def impostor(self, identity: Identity) -> GrpcLinks:
        """Listens at elm's address with this identity, and would take everybody in."""
        own = member(identity, "somewhere:1")
        others = [member for name, member in self.members.items() if name not in ("elm", identity.name)]
        return GrpcLinks(identity, [own, *others], self.site.listener)

    def twin(self) -> Identity:
        """A certificate of the consortium's authority in elm's name, for another key: issued by mistake."""
        key = make_site_key()
        coordinator = Coordinator(self.peers.folder / "authority")
        made = issue(coordinator.authority, "demo", "elm", key.public_key(), now())
        return Identity("elm", self.identity.authority, pem(made).encode(), private_pem(key))


def lines(peers: Peers, name: str, words: str) -> list[str]:
    return [line for line in peers.log(name).splitlines() if words in line]


def memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_impostors_and_an_unruly_member_are_refused_in_one_sentence_each(tmp_path: Path) -> None:
    with Peers(tmp_path, 4, 500, deadline=2.0, tick=0.2, wait=400.0, changes=CONSTANT) as peers:
        elm, honest = Elm(peers), peers.names[:3]
        peers.start(*honest)
        peers.until(lambda: all("waits for" in peers.said(name) for name in honest), 180)

        impostors(peers, elm)

        links = GrpcLinks(elm.identity, elm.members.values(), elm.site.listener)
        try:
            frame = greet(peers, elm, links)
            refused(peers, elm, links, frame)
            grown = fuzz(peers, links, frame)
        finally:
            links.close()
        said = oversized(peers, elm)
        peers.finish(300)
        masses = honest_masses(peers, honest)
        x, w = total(masses)
        print(f"\nΣw of three honest sites {float(w):.12f}; {said}; memory grew by {grown / 1e6:.1f} MB")
        assert abs(float(w) - (3 + WEIGHT)) <= 1e-9  # its one good parcel, once, though it was sent three times
        assert bool(torch.isfinite(x).all())
        for name in honest:
            ran = {place.round for place in peers.record(name).steps}
            assert peers.certificate(name)["rounds"] == len(ran) > 400
        assert not any("Traceback" in peers.said(name) + peers.log(name) for name in honest)


def honest_masses(peers: Peers, honest: tuple[str, ...]) -> list:  # type: ignore[type-arg]
    from gossamer.consortium.mass import Mass

    found = [peers.held(name) for name in honest]
    return [Mass.restore(held.meta, held.tensors, late=4) for held in found if held.meta is not None]


def impostors(peers: Peers, elm: Elm) -> None:
    """At elm's address, before elm comes; nobody waits for them, and nobody sends them a parcel."""
    other = Authority("demo").site("elm")  # the same names, another authority
    cedar = Site.read(peers.folder / "cedar")
    named = Identity(
        "cedar",
        elm.identity.authority,
        cedar.roster().site("cedar").certificate.encode(),
        cedar.file(KEY).read_bytes(),
    )
    for identity, words in (
        (other, "no link to 'elm'.*its certificate is not the one in the roster"),
        (named, "no link to 'elm'.*its certificate is not the one in the roster"),
        (elm.twin(), "no link to 'elm'.*its certificate is not the one in the roster"),
    ):
        false = elm.impostor(identity)
        try:
            start, end = words.split(".*")
            peers.until(lambda s=start, e=end: any(e in line for line in lines(peers, "alder", s)), 60)
            assert false.receive(time.monotonic()) is None
        finally:
            false.close()
    alder = elm.members["alder"]
    assert alder.address is not None
    Unruly(elm.twin(), alder.address, alder).do(writes())  # and as one who dials
    peers.until(lambda: bool(lines(peers, "alder", "is not in the roster")), 30)


def greet(peers: Peers, elm: Elm, links: GrpcLinks) -> Frame:
    """Until alder trains and has said where it is; a frame from elm that it would take."""
    size = len(peers.first())
    assert wait_up(links, time.monotonic() + 60)
    hello = Frame(
        kind="hello", study=elm.study, epoch=0, sender="elm", receiver="", place=Place(0, -1), incarnation=1,
        made=Place(0, -1),
    )  # fmt: skip
    end, found = time.monotonic() + 120, None
    while found is None and time.monotonic() < end:
        for name in ("alder", "birch", "cedar"):
            links.send(name, changed(hello, receiver=name).pack(), time.monotonic() + 5)
        while (arrival := links.receive(time.monotonic() + 0.5)) is not None:
            heard = unpack(arrival.message, sender=arrival.sender, receiver="elm", study=elm.study)
            hello = changed(hello, place=heard.place, made=heard.place)  # it is where they are
            if arrival.sender == "alder" and heard.place.round >= 1:  # it trains
                found = heard
                break
    assert found is not None
    content = (torch.zeros(size), torch.full((1,), WEIGHT, dtype=torch.float64))
    return changed(
        hello,
        kind="share",
        receiver="alder",
        place=found.place,
        made=found.place,
        following=1,
        content=content,
    )


def refused(peers: Peers, elm: Elm, links: GrpcLinks, good: Frame) -> None:
    for _ in range(3):  # replayed: a parcel that is right counts once
        links.send("alder", good.pack(), time.monotonic() + 5)
    for_birch = changed(good, receiver="birch").pack()
    x, w = good.content
    cases = {
        "it cannot be decoded (SafetensorError)": good.pack()[:-20],
        "made by or for another site": for_birch,
        "it belongs to another study": changed(good, study="ab" * 32).pack(),
        "it holds NaN": changed(good, content=(torch.full_like(x, torch.nan), w)).pack(),
        "its weight is 0": changed(good, content=(x, torch.zeros_like(w))).pack(),
        "its weight is -1": changed(good, content=(x, -torch.ones_like(w))).pack(),
        "its weight is 99": changed(good, content=(x, torch.full_like(w, 99.0))).pack(),
        "not those of this exchange": changed(good, content=(torch.zeros(10 * x.numel()), w)).pack(),
        "it cannot be decoded (error)": b"GSP1",
        "the study has 500": changed(
            good, kind="hello", content=(), place=Place(1 << 60, 0), made=Place(1 << 60, 0)
        ).pack(),
        "no model is above": changed(good, content=(torch.full_like(x, 3.3e38), w)).pack(),
        "are more than all sites have": changed(
            good, content=(x, torch.full_like(w, 4.0)), sequence=1, following=2
        ).pack(),
    }
    before = len(lines(peers, "alder", "a frame of elm was refused"))
    for words, raw in cases.items():
        links.send("alder", raw, time.monotonic() + 5)
        peers.until(lambda words=words: len(lines(peers, "alder", words)) == 1, 30)
    assert len(lines(peers, "alder", "a frame of elm was refused")) == before + len(cases)


def fuzz(peers: Peers, links: GrpcLinks, good: Frame) -> int:
    """Frames without end over the real link; how much memory alder has gained."""
    pick, pid = random.Random(3), peers.children["alder"].pid
    hello = changed(good, kind="hello", content=()).pack()
    sent, after_some = 0, 0
    while sent < FUZZED:
        for _ in range(16):  # small ones: as many as a link keeps
            raw = mutated(hello, pick) or b"x"
            links.send("alder", raw, time.monotonic() + 5)
            sent += 1
        outbox = links._links["alder"].outbox
        peers.until(lambda outbox=outbox: not outbox._queue, 20)
        if sent == 1600:
            after_some = memory(pid)
        while links.receive(0.0) is not None:
            pass
    grown = memory(pid) - after_some
    assert peers.children["alder"].poll() is None
    assert len(lines(peers, "alder", "frame of elm")) < 300  # the log is not filled
    assert grown < 30e6
    return grown


def oversized(peers: Peers, elm: Elm) -> str:
    """A message of a megabyte in a study of 650 parameters: gRPC does not read it."""
    alder: Member = elm.members["alder"]
    assert alder.address is not None
    code, details = Unruly(elm.identity, alder.address, alder).do(writes(bytes(1 << 20)))
    return f"{code.name}: {details}"
