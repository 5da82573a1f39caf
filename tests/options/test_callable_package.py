"""A package that can be called hands the call on, whatever of it was imported before."""

import importlib
import inspect
import json
import pydoc
import subprocess
import sys
import types

import pytest

import gossamer
from gossamer.options.callable_package import make_callable


@pytest.fixture
def package(monkeypatch):
    module = types.ModuleType("a_package_of_the_test")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_the_call_goes_to_the_function_with_all_arguments(package):
    make_callable(package.__name__, "json:dumps")
    assert package({"b": 1, "a": 2}, sort_keys=True) == '{"a": 2, "b": 1}'


def test_the_function_is_looked_for_at_the_first_call_only(package):
    make_callable(package.__name__, "no_such_module:function")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        package()


def test_it_stays_a_package_and_imports_keep_working():
    from gossamer.run import api

    assert callable(gossamer.run)
    assert importlib.import_module("gossamer.run.api") is api
    assert gossamer.run.api is api


def test_it_has_the_functions_parameters_and_documentation(package):
    make_callable(package.__name__, "json:dumps")
    assert inspect.signature(package) == inspect.signature(json.dumps)
    assert inspect.getdoc(package).startswith("dumps(obj, *, skipkeys=False")
    assert "Serialize ``obj`` to a JSON formatted ``str``." in pydoc.render_doc(package)


def test_listing_the_public_names_loads_nothing():
    look = "import gossamer, sys; print(dir(gossamer)); print({'torch', 'numpy'} & {*sys.modules})"
    listed = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    parts = ["accounting", "kernels", "testing", "topology"]
    assert listed.stdout.splitlines() == [str(sorted([*gossamer.__all__, *parts, "__version__"])), "set()"]


@pytest.mark.parametrize("name", gossamer.__all__)
def test_every_public_name_has_documentation_and_its_own_parameters(name):
    assert inspect.getdoc(getattr(gossamer, name))
    assert "args" not in inspect.signature(getattr(gossamer, name)).parameters


@pytest.mark.parametrize("name", ["run", "plan"])
def test_help_shows_the_parameters_of_the_function(name):
    from gossamer.run import api

    assert inspect.signature(getattr(gossamer, name)) == inspect.signature(getattr(api, name))
    text = pydoc.render_doc(getattr(gossamer, name))
    assert all(f"{key}:" in text for key in inspect.signature(getattr(api, name)).parameters)
