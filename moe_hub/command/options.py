# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share: which configuration; and the kinds of values that options
take."""

from typing import Annotated

import typer

from hub_rtl.contract.config import PRESETS, ConfigError, preset

__all__ = [
    "LatencyOption",
    "PresetOption",
    "SettingsOption",
    "WrongValue",
    "changes_of",
    "configured",
    "flag",
    "number",
    "one_of",
    "option",
    "several",
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


def several(names):
    """``parser`` of an option: names, separated by commas."""
    one = one_of(names)

    def parse(text):
        return [one(name) for name in str(text).split(",")]

    parse.__name__ = "name,..."
    return parse


def nanoseconds(text):
    """``parser`` of an option: a time from 0 to 1,000,000, with a fraction or not."""
    try:
        value = float(text)
    except ValueError:
        raise WrongValue(repr(text), "must be a number") from None
    if not 0 <= value <= 1_000_000:
        raise WrongValue(value, "must be between 0 and 1000000")
    return value


#: Latency of the fabric. That its default is the paper's is held by tests/moe_hub/test_run_cli.py.
LatencyOption = option(
    float,
    "Nanoseconds of a hop; a packet takes two, hub to switch and switch to hub. The hub's clock is "
    "1.5625 GHz: 250 are 781 cycles one way, 20.48 are 64. Where links have a clock of their own, "
    "theirs is that, and the hub's two thirds of it.",
    "--latency",
    parser=nanoseconds,
)


def changes_of(settings):
    """{field: value} of ``FIELD=VALUE`` settings. Raises ConfigError."""
    changes = {}
    for setting in settings or ():
        field, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting}: must be FIELD=VALUE")
        try:
            changes[field] = value if field == "name" else int(value, 0)
        except ValueError:
            raise ConfigError(f"{field} = {value!r}: must be an integer") from None
    return changes


def configured(name, settings):
    """The preset with ``FIELD=VALUE`` settings applied. Raises ConfigError."""
    return preset(name, **changes_of(settings))
