"""The RAND Health Insurance Experiment: the publisher's table → integers → numbers, by declared columns.

Families at six sites were given insurance plans at random, from 1974 to 1982, and every visit to a doctor was counted.
The table is in the public domain, as statsmodels says, which brings it along; a row is a year of a person.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from gossamer.data.arrays import Array
from gossamer.data.columns import Boolean, Categorical, Column, Numeric, encoded, number_names
from gossamer.data.dataset import Dataset
from gossamer.data.decode import Raw
from gossamer.data.source import Facts, Source, datasets
from gossamer.data.sources import Origin, pypi

FILE = "randhie.csv"
NAMES = (
    "plan", "site", "coins", "tookphys", "year", "zper", "black", "income", "xage", "female", "educdec", "time",
    "outpdol", "drugdol", "suppdol", "mentdol", "inpdol", "meddol", "totadm", "inpmis", "mentvis", "mdvis", "notmdvis",
    "num", "mhi", "disea", "physlm", "ghindx", "mdeoff", "pioff", "child", "fchild", "lfam", "lpi", "idp", "logc",
    "fmde", "hlthg", "hlthf", "hlthp", "xghindx", "linc", "lnum", "lnmeddol", "binexp",
)  # fmt: skip
# What was known of a person before the year. By definition: the plans' rates, the rules (nobody above 62 at
# its start, five years at most, offers up to 1,000 dollars), indices from 0 to 100; incomes and sizes by round numbers.
SCHEMA: Mapping[str, Column] = {
    "coins": Categorical(levels=[0, 25, 50, 95, 100]),
    "idp": Boolean(),
    "mdeoff": Numeric(range=[0.0, 1000.0], missing=True),
    "year": Categorical(levels=[1, 2, 3, 4, 5]),
    "time": Numeric(range=[0.0, 1.0]),
    "tookphys": Boolean(),
    "xage": Numeric(range=[0.0, 67.0]),
    "female": Boolean(),
    "child": Boolean(),
    "fchild": Boolean(),
    "black": Numeric(range=[0.0, 1.0]),
    "income": Numeric(range=[0.0, 30_000.0]),
    "educdec": Numeric(range=[0.0, 25.0], missing=True),
    "num": Numeric(range=[1.0, 15.0]),
    "mhi": Numeric(range=[0.0, 100.0]),
    "disea": Numeric(range=[0.0, 60.0]),
    "physlm": Numeric(range=[0.0, 1.0]),
    "ghindx": Numeric(range=[0.0, 100.0], missing=True),
    "hlthg": Boolean(),
    "hlthf": Boolean(),
    "hlthp": Boolean(),
}
NUMBERS = tuple(number_names(SCHEMA))
FREQUENT = 3  # visits to a doctor in a year
_UNIT, _NOTHING = 10**7, np.iinfo(np.int64).min  # the table has seven digits behind the point


def table(path: Path) -> Raw:
    """All of the publisher's columns as whole numbers of ten-millionths, the visits as labels; no hold-out yet."""
    head, *lines = path.read_text(encoding="ascii").splitlines()
    if tuple(head.split(",")) != NAMES:
        raise ValueError("its columns are not those of the experiment's table")
    values = np.array([[cell or "nan" for cell in line.split(",")] for line in lines], dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != len(NAMES):
        raise ValueError("its lines have not all the same number of columns")
    missing = np.isnan(values)
    x = np.where(missing, _NOTHING, np.rint(np.where(missing, 0, values) * _UNIT).astype(np.int64))
    visits = x[:, NAMES.index("mdvis")] // _UNIT
    return {"x_train": x, "y_train": visits, "x_test": x[:0], "y_test": visits[:0]}


@datasets.register("rand-hie")
@dataclass(frozen=True, kw_only=True)
class RandHie(Source):
    """20,190 years of 5,912 persons at six sites of the RAND Health Insurance Experiment, 1974 to 1982.

    A fifth of the persons, at fixed random, is the hold-out. Nodes are the sites, and persons are known.
    """

    outcome: Annotated[
        Literal["frequent", "visits"],
        Field(description="three or more visits to a doctor in the year, or their number (a regression)"),
    ] = "frequent"

    facts: ClassVar[Facts | None] = Facts((16_173, 4_017), (len(NUMBERS),), 2)
    origin: ClassVar[Origin | None] = Origin(
        "rand-hie",
        "rand_hie.npz",
        archives=((FILE, table),),
        remotes=(
            pypi(
                "statsmodels==0.15.0",
                table,
                member=f"statsmodels/datasets/randhie/src/{FILE}",
                python="3.11",
                platform="manylinux_2_28_x86_64",
            ),
        ),
        keep_archive=True,
    )

    @property
    def known(self) -> Facts | None:
        """The table itself holds the owners of its rows."""
        return None

    @property
    def schema(self) -> Mapping[str, Column] | None:
        return SCHEMA

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        import pyarrow as pa

        copy = self.published(data_dir)
        raw, visits = copy.content["x_train"], copy.content["y_train"]

        def column(name: str) -> Array:
            values: Array = raw[:, NAMES.index(name)]
            return values

        columns = {name: pa.array(column(name) / _UNIT, mask=column(name) == _NOTHING) for name in SCHEMA}
        x = encoded("rand-hie", SCHEMA, columns)
        person, site = column("zper") // _UNIT, column("site") // _UNIT - 1
        everybody = np.unique(person)
        # RandomState's stream is frozen for good, so the public split is the same on every machine and version.
        held_out = np.random.RandomState(0).permutation(everybody)[: len(everybody) // 5]
        test = np.isin(person, held_out)
        classes = self.outcome == "frequent"
        y = (visits >= FREQUENT).astype(np.int64) if classes else visits.astype(np.float32)
        return Dataset(
            name="rand-hie",
            x_train=x[~test],
            y_train=y[~test],
            x_test=x[test],
            y_test=y[test],
            classes=2 if classes else None,
            labels=("fewer visits", "frequent visits") if classes else (),
            public_test=True,
            owner=site[~test],
            person=person[~test],
            columns=NUMBERS,
            provenance=copy.provenance,
        )
