"""A network that the user brings along: as an object from Python, or as "file.py:name" from the command line."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from gossamer.errors import UserError
from gossamer.models.table import models

if TYPE_CHECKING:
    from torch import nn

_LOADED_AS = "gossamer_own_module"  # what a file is called in sys.modules: pickles and dataclasses look there


@models.register("own")
@dataclass(frozen=True, kw_only=True)
class Own:
    """A torch module of your own: gossamer.run(..., module=net), or model = "net.py:make"."""

    path: Annotated[
        str | None,
        Field(description="FILE:NAME, a module or what makes one; this code is run; not set: from Python"),
    ] = None

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        if self.path is None:
            raise UserError(
                "model.kind = 'own' needs the module itself: gossamer.run(..., module=net) from Python, or "
                'model = "net.py:make".'
            )
        import torch

        return load_module(self.path, seed=torch.initial_seed(), key="model.path =")

    def withheld(self) -> Own:
        """The same, but its code is not run: for a configuration that somebody else may have written."""
        return self if self.path is None else Withheld(path=self.path)


class Withheld(Own):
    """Named by a run directory: opening one must not run what it names."""

    def make(self, input_shape: tuple[int, ...], outputs: int) -> nn.Module:
        raise UserError(
            f"the run's model is code of yours, {self.path}, and code that a run directory names is not run unless you "
            f"say so: add --set model.path={self.path}, or module=… from Python."
        )


def load_module(asked: str, *, seed: int = 0, key: str = "--module") -> nn.Module:
    """The module that "file.py:name" names: an instance, or what a class or function without arguments makes.

    The file runs under `seed`, so that a network it makes begins with the same weights every time. `key` is where the
    words stand, for a message that names it. Whatever goes wrong in the user's file is one sentence.
    """
    file, _, name = asked.rpartition(":")
    if not file or not name:
        raise UserError(f"{key} {asked} must be FILE:NAME, for example net.py:Net.")
    path = Path(file)
    if not path.is_file():
        raise UserError(f"{key} {asked}: there is no file {file}; name a Python file that makes the module.")
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        space = _run_file(path, f"{key} {asked}")
        if not hasattr(space, name):
            known = ", ".join(_candidates(space)) or "nothing that is a module or makes one"
            raise UserError(f"{key} {asked}: {file} has no {name}; it has {known}.")
        return _module_of(getattr(space, name), f"{key} {asked}")


def _run_file(path: Path, asked: str) -> Any:
    found = importlib.util.spec_from_file_location(_LOADED_AS, path)
    if found is None or found.loader is None:
        raise UserError(f"{asked}: {path} is not a Python file; its name must end in .py.")
    space = importlib.util.module_from_spec(found)
    sys.modules[_LOADED_AS] = space
    with _beside(path), _explained(asked, f"{path} stops with"):
        found.loader.exec_module(space)
    return space


def _module_of(made: Any, asked: str) -> nn.Module:
    from torch import nn

    from gossamer.models.check import check_layers

    if not isinstance(made, nn.Module) and callable(made):
        with _explained(asked, "calling it without arguments stops with"):
            made = made()
    if not isinstance(made, nn.Module):
        raise UserError(
            f"{asked} is of type {type(made).__name__}; it must be a torch.nn.Module, or a class or function without "
            "arguments that makes one."
        )
    check_layers(made)
    return made


def _candidates(space: Any) -> list[str]:
    """Names of the file's own that could be meant."""
    from torch import nn

    return [
        name
        for name, value in vars(space).items()
        if isinstance(value, nn.Module)
        or (callable(value) and getattr(value, "__module__", None) == _LOADED_AS and not name.startswith("_"))
    ]


@contextmanager
def _beside(path: Path) -> Iterator[None]:
    """Imports find the files beside this one, as if Python ran it."""
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


@contextmanager
def _explained(asked: str, what: str) -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit) as error:
        reason = " ".join(str(error).split()) or "no message"
        raise UserError(f"{asked}: {what} {type(error).__name__}: {reason}") from error
