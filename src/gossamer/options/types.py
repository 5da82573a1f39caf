"""Types of single values that many kinds share. `Annotated[Count, Field(description="…")]` adds the meaning."""

from __future__ import annotations

import unicodedata
from typing import Annotated

from pydantic import AfterValidator, Field

Count = Annotated[int, Field(ge=1, le=10**9, strict=True)]
Positive = Annotated[float, Field(gt=0, lt=1e12)]
# Far from where float32 ends: a bound that rounds to 0 or ∞ would not be what the ledger says.
LEAST_BOUND, MOST_BOUND = 1e-12, 1e12
Size = Annotated[float, Field(gt=LEAST_BOUND, lt=MOST_BOUND)]
Ratio = Annotated[float, Field(ge=1, le=1e6)]
# Beyond e^1000 to 1 an observer is as good as certain, and δ is the chance that nothing is promised at all: a figure
# outside these is a slip of the pen, not a budget.
MOST_EPSILON, MOST_DELTA = 1000.0, 0.1
Epsilon = Annotated[float, Field(gt=0, le=MOST_EPSILON)]
Delta = Annotated[float, Field(gt=0, le=MOST_DELTA)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


def _file_stem(text: str) -> str:
    """Spaces and accents are written in one way: the same name is the same file."""
    name = " ".join(unicodedata.normalize("NFC", text).split())
    if not name.isprintable() or set(name) & set("/\\") or name[:1] in ("", ".") or len(name.encode()) > 200:
        raise ValueError("it must be a name of 1 to 200 bytes without slashes, and not begin with a dot")
    return name


AccountName = Annotated[str, AfterValidator(_file_stem)]
