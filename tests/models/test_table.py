"""The table [model]: quick to read, and every option says what it is."""

import subprocess
import sys

from gossamer.models.networks import models
from gossamer.options.registry import options_of


def test_looking_at_the_kinds_does_not_load_torch() -> None:
    code = "import sys, gossamer.models.networks as b; list(b.models); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_option_has_a_meaning() -> None:
    for kind in models.kinds.values():
        assert kind.__doc__
        assert all(option.meaning for option in options_of(kind)), kind


def test_a_table_is_read_into_its_kind_and_written_back() -> None:
    kind = models.parse({"kind": "mlp", "hidden": [3]})
    assert (kind.kind, kind.hidden, kind.activation) == ("mlp", [3], "relu")
    assert models.parse({"kind": "mlp", "hidden": [3], "activation": "relu"}) == kind
    assert set(models) == {
        "softmax", "linear", "one-vs-all", "mlp", "shallow-cnn", "mnist-cnn", "resnet9", "resnet18", "lookup", "own"
    }  # fmt: skip
