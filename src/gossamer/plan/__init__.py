"""From a configuration to what its run would cost; no record is read."""

from gossamer.options.callable_package import make_callable

make_callable(__name__, "gossamer.run.api:plan")
