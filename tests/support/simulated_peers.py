"""The sites of a packed study in one process: the same program over simulated links, whose weather is given."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path

from tests.support.real_peers import Peers
from tests.support.simulated_links import Network

from gossamer.consortium.files import now
from gossamer.consortium.peer import Participation, take_part
from gossamer.training.run import Outcome

WEATHER = "the weather"


def copied(peers: Peers, folder: Path) -> Path:
    """The consortium as it stands, elsewhere: what is spent there is not spent here."""
    shutil.copytree(peers.folder, folder, symlinks=True)
    for name in peers.names:
        site = folder / name / "site.toml"
        site.write_text(site.read_text().replace(str(peers.folder), str(folder)))
    return folder


def simulate(peers: Peers, folder: Path, *, cut: float, window: float, seed: int = 0) -> list[float]:
    """Accuracies of all sites, where every pair is cut in every window of time with this probability."""
    names = list(peers.names)
    network, done = Network([*names, WEATHER]), dict[str, Outcome]()

    def site(name: str) -> None:
        out = folder / name / "simulated"
        out.mkdir()
        found = Participation.open(peers.study, folder / name, out, now())
        done[name] = take_part(found, out, wait=60.0, clock=network.clock, open_links=lambda: network.links(name))

    def weather() -> None:
        pick = random.Random(seed)
        while len(done) < len(names):
            pairs = [pair for pair in itertools.combinations(names, 2) if pick.random() < cut]
            network.cut = {way for a, b in pairs for way in ((a, b), (b, a))}
            network.wait(WEATHER, network.clock() + window)

    network.run({**{name: lambda name=name: site(name) for name in names}, WEATHER: weather})
    return [float(done[name].result["accuracy_mean"]) for name in names]
