"""One value at a time: Arrow's values as words, as numbers, as days; what cannot be read is missing."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Missing = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.float64]
Level = bool | int | float | str

# Words for nothing, in a file that has words; one that is a declared level is that level.
NOTHING = ("", "na", "n/a", "#n/a", "nan", "-nan", "nat", "none", "null", "<na>", "?")


def plain(values: Any) -> Any:
    """An Arrow column as one array of plain values."""
    import pyarrow as pa
    from pyarrow import types

    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):  # of no chunks, in older versions
            values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    return values.dictionary_decode() if types.is_dictionary(values.type) else values


def is_words(arrow_type: Any) -> bool:
    from pyarrow import types

    return any(test(arrow_type) for test in (types.is_string, types.is_large_string, types.is_string_view))


def texts(values: Any) -> Any:
    """As words without spaces around them, whole numbers without a point: beside a gap, programs write 1 as 1.0."""
    import pyarrow as pa
    from pyarrow import compute, types

    if types.is_floating(values.type):
        values = compute.if_else(compute.is_nan(values), pa.scalar(None, values.type), values)
    said = compute.utf8_trim_whitespace(values.cast(pa.string()))
    return compute.replace_substring_regex(said, r"^(-?[0-9]+)\.0*$", r"\1")


def level(level: Level) -> str:
    """A declared level as `texts` has it."""
    text = str(level).lower() if isinstance(level, bool) else str(level).strip()
    whole, point, rest = text.partition(".")
    return whole if point and not rest.strip("0") and whole.removeprefix("-").isdecimal() else text


def is_nothing(said: Any) -> Missing:
    import pyarrow as pa
    from pyarrow import compute

    empty = compute.is_in(compute.utf8_lower(said), value_set=pa.array(NOTHING))
    found: Missing = compute.or_(compute.is_null(said), empty).to_numpy(zero_copy_only=False)
    return found


def floats(values: Any) -> Numbers:
    """NaN where there is none."""
    import pyarrow as pa

    if is_words(values.type):
        return one_by_one(values, _number)
    found: Numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return found.astype(np.float64, copy=False)


def one_by_one(values: Any, read: Callable[[str], float]) -> Numbers:
    """Every different word is read once."""
    import pyarrow as pa

    if not is_words(values.type):  # of a column without any value
        return np.full(len(values), np.nan)
    coded = values.cast(pa.string()).dictionary_encode()
    known = np.array(
        [math.nan if word is None else read(word) for word in coded.dictionary.to_pylist()] + [math.nan]
    )
    at = coded.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)
    found: Numbers = known[at]
    return found


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return math.nan


def day(word: str) -> float:
    """Days since 1970; NaN of what is none."""
    try:
        found = datetime.date.fromisoformat(word.strip()[:10])
    except ValueError:
        return math.nan
    return float(found.toordinal() - datetime.date(1970, 1, 1).toordinal())


def is_day(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 10 and not math.isnan(day(value))
