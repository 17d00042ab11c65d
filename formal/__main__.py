"""``python -m formal``: the same as ``moe-hub formal``."""

import typer

from .cli import formal

typer.run(formal)
