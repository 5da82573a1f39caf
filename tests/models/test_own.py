"""A network of one's own: a kind in the table, and a module from Python or out of a file."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from gossamer.errors import UserError
from gossamer.models.networks import build, load_module, models

FILE = """
from torch import nn
from beside import WIDTH

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(WIDTH, 2))

def make():
    return nn.Linear(WIDTH, 3)

def needs(width):
    return nn.Linear(width, 3)

def wrong():
    return "no module"

def stops():
    raise ValueError("two\\nlines")

net, number = Net(), 3
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(FILE)
    (tmp_path / "beside.py").write_text("WIDTH = 4")
    (tmp_path / "broken.py").write_text("import nothing_of_this_name")
    (tmp_path / "quits.py").write_text("raise SystemExit('not today')")
    (tmp_path / "notes.txt").write_text("net = None")
    return str(tmp_path / "net.py")


def test_it_stands_in_the_table_without_options_and_says_where_the_module_comes_from() -> None:
    assert "own" in models.kinds
    with pytest.raises(
        UserError, match=r"needs the module itself: gossamer\.run\(\.\.\., module=net\) from Python"
    ):
        build("own", input_shape=(4,), outputs=2)
    with pytest.raises(UserError, match=r"model\.hidden is not a key of kind 'own'"):
        build("own", input_shape=(4,), outputs=2, hidden=3)


@pytest.mark.parametrize("name", ["Net", "make", "net"])
def test_a_module_comes_as_an_instance_a_class_or_a_function(net: str, name: str) -> None:
    before = list(sys.path)
    made = load_module(f"{net}:{name}")
    assert isinstance(made, nn.Module)
    assert made(torch.zeros(1, 4)).shape in ((1, 2), (1, 3))
    assert sys.path == before


def test_its_weights_follow_the_seed_and_leave_others_alone(net: str) -> None:
    def weights(seed: int) -> torch.Tensor:
        return next(load_module(f"{net}:make", seed=seed).parameters())

    state = torch.get_rng_state()
    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("net.py", r"--module \S*net\.py must be FILE:NAME, for example net\.py:Net"),
        ("net.py:", "must be FILE:NAME"),
        ("nowhere.py:Net", r"there is no file \S*nowhere\.py"),
        ("net.py:Nut", r"has no Nut; it has Net, make, needs, wrong, stops, net\.$"),
        ("net.py:number", r"is of type int; it must be a torch\.nn\.Module, or a class or function"),
        ("net.py:wrong", "is of type str"),
        ("net.py:needs", "calling it without arguments stops with TypeError: needs"),
        ("net.py:stops", "stops with ValueError: two lines$"),
        ("broken.py:Net", "stops with ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("quits.py:Net", "stops with SystemExit: not today"),
        ("notes.txt:net", r"is not a Python file; its name must end in \.py"),
    ],
)
def test_whatever_goes_wrong_in_the_file_is_one_sentence(net: str, asked: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as told:
        load_module(str(Path(net).parent / asked))
    assert len(str(told.value).splitlines()) == 1


def test_the_message_names_the_key_it_came_by(net: str) -> None:
    with pytest.raises(UserError, match=r"^model = nowhere:"):
        load_module("nowhere:x", key="model =")
