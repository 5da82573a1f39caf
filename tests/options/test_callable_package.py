"""A package that can be called hands the call on, whatever of it was imported before."""

import importlib
import sys
import types

import pytest

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
    import gossamer
    from gossamer.run import api

    assert callable(gossamer.run)
    assert importlib.import_module("gossamer.run.api") is api
    assert gossamer.run.api is api
