"""A TOML file of the user's or of ours, with what is wrong with it as one sentence."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from gossamer.errors import UserError


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML: {error}.") from None
    except (RecursionError, ValueError):
        raise UserError(
            f"{path} is no configuration: it is nested too deeply or has too many digits."
        ) from None
