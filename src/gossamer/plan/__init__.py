"""From a configuration to what its run would cost; no record is read."""

from gossamer.options.callable_package import make_callable

# The modules that others may import; the rest is private to this folder.
__all__ = ["network", "notes", "observers", "outline", "pool", "privacy", "units"]

make_callable(__name__, "gossamer.run.api:plan")
