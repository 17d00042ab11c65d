# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share: which configuration; and the kinds of values that options
take."""

from typing import Annotated

import typer

from hub_rtl.contract.config import PRESETS, ConfigError, preset

__all__ = [
    "PresetOption",
    "SettingsOption",
    "WrongValue",
    "configured",
    "flag",
    "number",
    "one_of",
    "option",
    "whole",
]


def option(kind, text, *names, **more):
    """The annotation of a parameter that is an option; ``text``: its help."""
    return Annotated[kind, typer.Option(*names, help=text, **more)]


def flag(name, text):
    """An option without a value."""
    return option(bool, text, name)


def number(low, high, text, *names):
    """An option that is an integer between ``low`` and ``high``, or not given."""
    return option(int, text, *names, parser=whole(low, high))


PresetOption = option(str, f"Configuration to start from: {', '.join(PRESETS)}.", "--preset", "-p")
SettingsOption = option(
    list[str] | None, "Change a field, may be repeated.", "--set", "-s", metavar="FIELD=VALUE"
)


class WrongValue(typer.BadParameter):
    """An option's value breaks its rule."""

    def __init__(self, value, rule):
        super().__init__(f"{value}: {rule}")
        self.value, self.rule = value, rule


def whole(low, high):
    """``parser`` of an option: an integer between ``low`` and ``high``, also as 0x..."""

    def parse(text):
        try:
            value = int(str(text), 0)
        except ValueError:
            raise WrongValue(repr(text), "must be an integer") from None
        if not low <= value <= high:
            raise WrongValue(value, f"must be between {low} and {high}")
        return value

    parse.__name__ = f"{low}..{high}"
    return parse


def one_of(names):
    """``parser`` of an option: one of the names."""

    def parse(text):
        if text not in names:
            raise WrongValue(repr(text), f"must be one of {', '.join(names)}")
        return text

    parse.__name__ = "name"
    return parse


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
