"""What outputs mean: classes, numbers, labels; by formulas."""

from __future__ import annotations

import math

import pytest
import torch

from gossamer.models.losses import Classification, MultiLabel, Regression, Task, task_of

OUT = torch.tensor([[0.0, 1.0, -1.0], [2.0, -3.0, 0.4]])


def test_a_class_is_the_largest_output_or_a_sign() -> None:
    assert Classification(3).decide(OUT).tolist() == [1, 0]
    assert Classification(2, "sigmoid").decide(torch.tensor([[-0.1], [0.1]])).tolist() == [0, 1]
    torch.testing.assert_close(Classification(3).chances(OUT), OUT.softmax(1))
    shares = OUT.sigmoid() / OUT.sigmoid().sum(1, keepdim=True)
    torch.testing.assert_close(Classification(3, "sigmoid").chances(OUT), shares)
    both = Classification(2, "sigmoid").chances(torch.tensor([[math.log(3.0)]]))
    assert both is not None
    assert both[0].tolist() == pytest.approx([0.25, 0.75])
    assert Classification(3, None).chances(OUT) is None


def test_a_number_is_the_output_or_its_exponential() -> None:
    outputs = torch.tensor([[0.0], [1.0]])
    assert Regression().decide(outputs).tolist() == [0.0, 1.0]
    assert Regression("exp").decide(outputs).tolist() == pytest.approx([1.0, math.e])
    assert Regression().chances(outputs) is None


def test_labels_are_each_for_themselves() -> None:
    assert MultiLabel(3).decide(OUT).tolist() == [[0, 1, 0], [1, 0, 1]]
    torch.testing.assert_close(MultiLabel(3).chances(OUT), OUT.sigmoid())
    assert MultiLabel(3, None).decide(OUT).tolist() == [[0, 1, 0], [1, 0, 0]]  # fitted to 0 and 1
    assert MultiLabel(3, None).chances(OUT) is None


@pytest.mark.parametrize(("task", "outputs"), [(Classification(4), 4), (Regression(), 1), (MultiLabel(5), 5)])
def test_the_labels_make_the_task(task: Task, outputs: int) -> None:
    assert task.outputs == outputs
    classes, labels = getattr(task, "classes", None), getattr(task, "labels", None)
    assert task_of(classes, labels, task.link) == task
