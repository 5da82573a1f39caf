"""A package that can be called: `gossamer.run(...)` and the folder `gossamer/run/` have one name.

Python binds a folder's name in its parent as soon as anything in it is imported, so a function of that name would come
and go. The package itself is what is called instead; it hands the call on to the function.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from types import ModuleType
from typing import Any


def make_callable(package: str, function: str) -> None:
    """Calling `package` calls `function`, "module:name", which is imported when it is called or looked at."""
    module, _, name = function.partition(":")

    class CallablePackage(ModuleType):
        def __call__(self, *args: Any, **options: Any) -> Any:
            return self._function(*args, **options)

        @property
        def _function(self) -> Any:
            return getattr(importlib.import_module(module), name)

        @property
        def __signature__(self) -> inspect.Signature:
            return inspect.signature(self._function)

        @property
        def __doc__(self) -> str:  # type: ignore[override]
            """What `help` shows: the function's parameters and documentation."""
            return f"{name}{self.__signature__}\n\n{inspect.getdoc(self._function)}"

    sys.modules[package].__class__ = CallablePackage
