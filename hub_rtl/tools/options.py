"""Options that several commands share: which configuration."""

from typing import Annotated

import typer

from ..config import PRESETS, ConfigError, preset

__all__ = ["PresetOption", "SettingsOption", "configured"]

PresetOption = Annotated[str, typer.Option("--preset", "-p", help=f"Configuration to start from: {', '.join(PRESETS)}.")]
SettingsOption = Annotated[list[str] | None, typer.Option("--set", "-s", metavar="FIELD=VALUE",
                                                          help="Change a field, may be repeated.")]


def configured(name, settings):
    """The preset with ``FIELD=VALUE`` settings applied. Raises ConfigError."""
    changes = {}
    for setting in settings or ():
        field, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting}: must be FIELD=VALUE")
        try:
            changes[field] = value if field == "name" else int(value, 0)
        except ValueError:
            raise ConfigError(f"{field} = {value!r}: must be an integer") from None
    return preset(name, **changes)
