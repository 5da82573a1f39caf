"""Small consortia in memory and on disk, with a clock that stands still."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gossamer.consortium.authority import issue, make_authority, make_site_key, pem
from gossamer.consortium.folders import Coordinator, accept, join
from gossamer.consortium.roster import Joined, Member, Roster, sign_roster

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass
class Clock:
    """A clock that goes on when it is told to."""

    now: datetime = START

    def __call__(self) -> datetime:
        return self.now

    def wait(self, **time: float) -> None:
        self.now += timedelta(**time)


@dataclass
class Consortium:
    """One authority with its versions so far, and the keys of its sites."""

    name: str = "north"
    authority: object = None
    versions: list[Roster] = field(default_factory=list)
    keys: dict[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, *sites: str, name: str = "north") -> Consortium:
        made = cls(name, make_authority(name, START))
        made.versions.append(sign_roster(made.authority, name, [], START))
        if sites:
            made.next([made.site(site) for site in sites])
        return made

    @property
    def newest(self) -> Roster:
        return self.versions[-1]

    def site(self, name: str, *, address: str | None = None, records: int = 100, at_round: int = 0) -> Member:
        key = self.keys.setdefault(name, make_site_key())
        certificate = pem(issue(self.authority, self.name, name, key.public_key(), START))
        joined = Joined(version=self.newest.version + 1, at_round=at_round)
        return Member(name=name, certificate=certificate, address=address, records=records, joined=joined)

    def next(self, sites: list[Member]) -> Roster:
        self.versions.append(sign_roster(self.authority, self.name, sites, START, self.newest))
        return self.newest


def on_disk(folder: Path, *sites: str, clock: Clock | None = None, records: int = 100) -> Coordinator:
    """A consortium in folder/north, its sites in folder/SITE, each with the newest roster."""
    clock = clock or Clock()
    made = Coordinator.init("north", folder / "north", clock)
    for site in sites:
        invite = made.invite(site)
        request, _ = join(
            invite, listen="none", records=records, folder=folder / site, data=str(folder / site / "records.csv"),
            cap=8.0, clock=clock,
        )  # fmt: skip
        made.approve(site, request.read_bytes(), str(request))
    for site in sites:
        accepted(folder / site, made, clock)
    return made


def accepted(folder: Path, coordinator: Coordinator, clock: Clock) -> Roster:
    content = coordinator.roster_file.read_bytes()
    return accept(folder / "site.toml", content, "the roster", lambda changes: True, clock)[0]


RECIPE = {
    "name": "readmission",
    "nodes": 2,
    "rounds": 4,
    "data": {"kind": "csv", "path": "site-{node}.csv", "label": "y", "classes": 2},
    "model": {"kind": "softmax"},
    "topology": {"kind": "complete"},
    "algorithm": {"kind": "dyn-d2p"},
    "privacy": {"epsilon": 4.0, "delta": 1e-4, "sampling": {"kind": "poisson", "rate": 0.25}},
}


def rows(path: Path, count: int, order: str = "aby", start: int = 0) -> Path:
    """A CSV file with the columns a, b and the label y, in this order."""
    lines = [",".join(order)]
    for k in range(start, start + count):
        values = {"a": (k * 37 % 101) / 50 - 1, "b": (k * 53 % 97) / 48 - 1}
        values["y"] = int(values["a"] + values["b"] > 0)
        lines.append(",".join(str(values[name]) for name in order))
    path.write_text("\n".join(lines) + "\n")
    return path
