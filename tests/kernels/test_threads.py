"""The pool that kernels share."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gossamer.kernels import threads


@pytest.mark.usefixtures("two_cores")
def test_an_error_in_a_thread_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        threads.run_all(lambda part: 1 // part.start, threads.even_slices(10, 2))


@given(length=st.integers(0, 10_000), parts=st.integers(1, 9), multiple=st.integers(1, 64))
def test_even_slices_cover_everything_once(length: int, parts: int, multiple: int) -> None:
    slices = threads.even_slices(length, parts, multiple)
    assert [i for part in slices for i in range(part.start, part.stop)] == list(range(length))
    assert len(slices) <= parts
    assert all(part.start % multiple == 0 for part in slices)
    sizes = {part.stop - part.start for part in slices[:-1]}
    assert len(sizes) <= 1


def test_all_parts_are_done_and_torchs_threads_stay_as_they_were() -> None:
    before, done = torch.get_num_threads(), []
    threads.run_all(done.append, range(50))
    assert sorted(done) == list(range(50))
    assert torch.get_num_threads() == before == threads.cores()
