"""What a number in a configuration may be."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Positive = Annotated[float, Field(gt=0, lt=1e12)]
# Far from where float32 ends: a bound that rounds to 0 or ∞ would not be what the ledger says.
Size = Annotated[float, Field(gt=1e-12, lt=1e12)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(gt=0, lt=1)]
Rate = Annotated[float, Field(gt=0, le=1)]
Ratio = Annotated[float, Field(ge=1, le=1e6)]
Count = Annotated[int, Field(ge=1, strict=True)]
