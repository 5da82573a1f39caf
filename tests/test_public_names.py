"""The public surface shows itself: names, parameters and documentation, without loading torch."""

import inspect
import subprocess
import sys
import types

import pytest

import gossamer


def test_listing_the_public_names_loads_nothing():
    look = "import gossamer, sys; print(dir(gossamer)); print({'torch', 'numpy'} & {*sys.modules})"
    listed = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    parts = ["accounting", "kernels", "testing", "topology"]
    assert listed.stdout.splitlines() == [str(sorted([*gossamer.__all__, *parts, "__version__"])), "set()"]


@pytest.mark.parametrize("name", gossamer.__all__)
def test_every_public_name_is_a_function_or_class_with_documentation(name):
    member = getattr(gossamer, name)
    assert isinstance(member, types.FunctionType | type)
    assert inspect.getdoc(member)
    assert "args" not in inspect.signature(member).parameters


def test_importing_a_module_below_does_not_replace_the_functions():
    code = (
        "import gossamer, gossamer.training.run\n"
        "assert all(callable(getattr(gossamer, name)) for name in ('run', 'plan', 'resume'))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
