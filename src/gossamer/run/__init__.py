"""From a configuration to a run: every command and the Python API enter here."""

from gossamer.options.callable_package import make_callable

make_callable(__name__, "gossamer.run.api:run")
