# SPDX-License-Identifier: Apache-2.0
"""The one handler of errors around all verbs: whatever goes wrong is one line on stderr and an exit
code.

Exit codes: 0, done; 1, what was asked for was done and failed, or could not be written; 2, the
order was wrong, nothing was done; 130, Ctrl-C. A verb raises ValueError (all errors of the
project's own inputs are some), OSError or Missing, or ends with
:func:`~moe_hub.command.console.fail`; it handles nothing itself but what only it can say better.
Other exceptions are bugs and keep their traceback; ``--traceback`` shows it for every error.
"""

import errno
import importlib.metadata
import os
import sys
import traceback
from typing import Annotated

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from moe_hub.needs import Missing

from .console import fail
from .options import WrongValue

__all__ = ["Program", "program"]

#: The disk's or the machine's fault, so what was asked for was right.
_NOT_THE_ORDER = errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.ENOMEM


def _option(param):
    """Name of an option or argument in a message: as its placeholder or its longest form says, as a
    word."""
    if param.param_type_name == "argument" and param.metavar:
        return param.metavar.strip("[].").lower()
    names = [name.lstrip("-") for name in param.opts]
    return max(names, key=len).replace("-", "_")


def _usage(error):
    """One line for an error in the order itself."""
    param = getattr(error, "param", None)
    if isinstance(error, WrongValue):
        return (
            f"{_option(param)} = {error.value}: {error.rule}"
            if param
            else f"{error.value}: {error.rule}"
        )
    text = " ".join((error.message if param else error.format_message()).split()).rstrip(".")
    return f"{_option(param)}: {text or 'is missing'}" if param else text


def _os_error(error):
    """(line, exit code) of a file that cannot be read or written."""
    code = 1 if error.errno in _NOT_THE_ORDER else 2
    return f"{error.filename or 'output'}: {error.strerror or error}", code


def _flush():
    """What is still in stdout's buffer must not fail unseen at the interpreter's end."""
    try:
        sys.stdout.flush()
    except OSError:
        # Nothing more can be written there, so that the interpreter does not try again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _say(line, code):
    print(f"moe-hub: {' '.join(str(line).split())}", file=sys.stderr)
    return code


class Listed(TyperCommand):
    """A verb as the list of verbs shows it. What it is made of is read when it is called, so that
    the list, the version and a wrong verb answer at once."""

    def __init__(self, verb):
        panel = "In a checkout of the repository" if verb.checkout else "Anywhere"
        super().__init__(name=verb.name, help=verb.line, rich_help_panel=panel)
        self._verb = verb

    def make_context(self, info_name, args, parent=None, **extra):
        """Of the real command, which so takes this one's place."""
        alone = typer.Typer(add_completion=False)
        alone.command(self.name)(self._verb.load())
        return get_command(alone).make_context(info_name, args, parent, **extra)


class Program(TyperGroup):
    """All verbs, with the handler around them."""

    def resolve_command(self, ctx, args):
        """Of the verbs, or one line that lists them."""
        if args and args[0] not in self.commands:
            fail(f"command = {args[0]!r}: must be one of {', '.join(self.commands)}")
        return super().resolve_command(ctx, args)

    def main(self, args=None, prog_name=None, **extra):
        """Runs a verb and ends the process."""
        args = list(sys.argv[1:] if args is None else args)
        extra["standalone_mode"] = False
        sys.exit(self._guarded(args or ["--help"], prog_name, extra))

    def _guarded(self, args, prog_name, extra):
        try:
            code = super().main(args, prog_name, **extra) or 0
            _flush()
        except (KeyboardInterrupt, typer.Abort):
            code = 130
        except BrokenPipeError:  # `moe-hub ... | head`: the reader has what it wanted
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except (typer.TyperException, Missing, ValueError, OSError) as error:
            if "--traceback" in args:
                traceback.print_exc()
            if isinstance(error, typer.TyperException):
                return _say(_usage(error), 2)
            return _say(*_os_error(error) if isinstance(error, OSError) else (error, 2))
        return _say("interrupted", code) if code == 130 else code


def _version(asked):
    if asked:
        try:
            print(f"moe-hub {importlib.metadata.version('moe-hub')}")
        except importlib.metadata.PackageNotFoundError:
            fail("version: the package is not installed", 1)
        raise typer.Exit


def program(text, verbs=()):
    """A ``typer.Typer`` with the handler and the options that stand before the verb.

    ``text``: its help. ``verbs``: :class:`~moe_hub.command.verbs.Verb` objects.
    """

    class Whole(Program):
        def __init__(self, *given, **more):
            super().__init__(*given, **more)
            for verb in verbs:
                self.add_command(Listed(verb))

    app = typer.Typer(cls=Whole, add_completion=False, pretty_exceptions_enable=False, help=text)

    @app.callback()
    def options(
        version: Annotated[
            bool,
            typer.Option(
                "--version", callback=_version, is_eager=True, help="Print the version and end."
            ),
        ] = False,
        traces: Annotated[
            bool,
            typer.Option(
                "--traceback",
                help="Before the verb: show where in the program an error comes from.",
            ),
        ] = False,
    ):
        pass

    options.__doc__ = text
    return app
