"""A specification as RTLIL, with or without the planted bug."""

import contextlib
import importlib
import importlib.abc
import importlib.util
import re
import sys
import warnings
from pathlib import Path

__all__ = ["elaborate"]

ROOT = Path(__file__).resolve().parents[1]

_NAMELESS = re.compile(r'^  cell \$check \S+\n(?=    parameter \\FORMAT "([^"]*)"$)', re.M)
_MEMINIT = re.compile(r"^(?:  attribute .*\n)*  cell \$meminit\S* .*\n(?:    .*\n)*  end\n", re.M)


class _Planter(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module with a changed text, and every other as it is."""

    def __init__(self, bug):
        self.path = ROOT / bug.file
        self.name = ".".join(Path(bug.file).with_suffix("").parts)
        text = self.path.read_text()
        if text.count(bug.old) != 1:
            raise ValueError(f"{bug.file}: {bug.old!r} occurs {text.count(bug.old)} times, must be exactly once")
        self.text = text.replace(bug.old, bug.new)

    def find_spec(self, fullname, path, target=None):
        return importlib.util.spec_from_loader(fullname, self) if fullname == self.name else None

    def exec_module(self, module):
        exec(compile(self.text, str(self.path), "exec"), module.__dict__)


@contextlib.contextmanager
def _planted(bug):
    """Within the block, ``hub_rtl`` and ``formal`` are imported anew with ``bug``."""
    def forget():
        return {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] in ("hub_rtl", "formal")}
    planter = _Planter(bug)     # may raise: first, while nothing is forgotten yet
    before = forget()
    sys.meta_path.insert(0, planter)
    try:
        yield
    finally:
        sys.meta_path.remove(planter)
        forget()
        sys.modules.update(before)


def elaborate(check, bug=False):
    """``(rtlil, spec)`` of a check: the text, in which each property's cell has the property's name, and the specification.

    Amaranth's warnings are errors.
    """
    with _planted(check.bug) if bug else contextlib.nullcontext():
        return _elaborate(check)


def _elaborate(check):
    from amaranth.back import rtlil
    module, _, name = check.spec.partition(":")
    spec_class = getattr(importlib.import_module(f"formal.{module}"), name)
    arguments = dict(check.arguments)
    if check.preset:
        config = importlib.import_module("hub_rtl.config")
        arguments["cfg"] = config.preset(check.preset, **check.set)
    spec = spec_class(**arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = rtlil.convert(spec, name="top", ports=[spec.clk], emit_src=False)
    if check.memories == "any":
        text = _MEMINIT.sub("", text)
    return _NAMELESS.sub(lambda match: f"  cell $check \\{identifier(match[1])}\n", text), spec


def identifier(name):
    """A property's name as that of a cell; no signal is called so."""
    return "p_" + re.sub(r"\W+", "_", name)
