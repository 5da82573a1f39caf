"""The arguments that several commands share, and what a shell completes them with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def _recipes(incomplete: str) -> list[str]:
    from gossamer.config.keys import recipe_names

    return recipe_names(incomplete)


def _settings(incomplete: str) -> list[str]:
    from gossamer.config.keys import settings

    return settings(incomplete)


Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override one value of the configuration; may be repeated.",
        autocompletion=_settings,
    ),
]


Plugins = Annotated[
    list[Path] | None,
    typer.Option("--plugin", metavar="FILE", help="A Python file of your own that registers parts; may be repeated."),
]
Recipe = Annotated[str, typer.Argument(help="A recipe's name or a TOML file.", autocompletion=_recipes)]
SomeRecipe = Annotated[
    str | None,
    typer.Argument(help="A recipe's name or a TOML file (default: quickstart).", autocompletion=_recipes),
]
Recipes = Annotated[list[str], typer.Argument(help="Recipes' names or TOML files.", autocompletion=_recipes)]
RecipeOrRun = Annotated[
    str,
    typer.Argument(help="A recipe's name, a TOML file, or a finished run's folder.", autocompletion=_recipes),
]
Json = Annotated[bool, typer.Option("--json", help="End with one JSON object on the last line.")]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="Folder with data sets as npz files (or set GOSSAMER_DATA).")
]

Force = Annotated[bool, typer.Option("--force", help="Try a run that this machine seems too small or too slow for.")]
Jobs = Annotated[int | None, typer.Option(help="Runs at a time (default: one per core).")]
Engine = Annotated[
    str,
    typer.Option(
        metavar="local|dask:ADDRESS",
        help="Where runs are carried out: here, or at a Dask scheduler's workers.",
    ),
]
Over = Annotated[
    list[str] | None,
    typer.Option("--over", metavar="KEY=V1,V2", help="Run with each of these values; may be repeated."),
]
StudyFolder = Annotated[Path | None, typer.Option(help="Folder to write; one that exists is continued.")]
