"""A package that can be called: `gossamer.run(...)` and the folder `gossamer/run/` have one name.

Python binds a folder's name in its parent as soon as anything in it is imported, so a function of that name would come
and go. The package itself is what is called instead; it hands the call on to the function.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


def make_callable(package: str, function: str) -> None:
    """Calling `package` calls `function`, "module:name", which is imported at the first call."""
    module, _, name = function.partition(":")

    class CallablePackage(ModuleType):
        def __call__(self, *args: Any, **options: Any) -> Any:
            return getattr(importlib.import_module(module), name)(*args, **options)

    sys.modules[package].__class__ = CallablePackage
