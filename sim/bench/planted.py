"""Planted bugs: proof that a bench can fail.

::

    def test_planted_lost_item():
        with planted("hub_rtl/lib/stream.py", "spare_valid.eq(1)", "spare_valid.eq(0)") as module:
            assert_caught(lambda: run_bench(module.StreamRegister(8), ...))

The tree is not touched: the changed module lives in memory, under its own name, for the time of the ``with`` block.
"""

import contextlib
import importlib
import linecache
import shutil
import sys
import types
from pathlib import Path

from .runner import ROOT, BenchFailure

__all__ = ["assert_caught", "planted"]

CATCHES = ("AssertionError", "SimTimeoutError")


@contextlib.contextmanager
def planted(path, old, new, also=()):
    """The module of file ``path`` (from the project's root) with ``old``, which must occur exactly once, replaced by ``new``.

    Inside the block, importing the module by name gives the changed one. Modules that took names out of it before still
    hold the good ones: name them in ``also`` (``["hub_rtl.hub"]``) and they are loaded anew too; use
    ``importlib.import_module`` inside the block to get those.
    """
    source = (ROOT / path).read_text()
    count = source.count(old)
    if count != 1:
        raise ValueError(f"{path}: {old!r} occurs {count} times, must be exactly once")
    name = ".".join(Path(path).with_suffix("").parts)
    package = name.rpartition(".")[0]
    parent = importlib.import_module(package)
    kept = {each: sys.modules.get(each) for each in (name, *also)}
    attributes = {each: getattr(sys.modules.get(each.rpartition(".")[0]), each.rpartition(".")[2], None) for each in kept}
    module = types.ModuleType(name)
    module.__file__, module.__package__ = f"<planted {path}>", package
    text = source.replace(old, new)
    linecache.cache[module.__file__] = (len(text), None, text.splitlines(True), module.__file__)
    try:
        sys.modules[name] = module
        setattr(parent, name.rpartition(".")[2], module)
        exec(compile(text, module.__file__, "exec"), module.__dict__)
        for each in also:
            sys.modules.pop(each, None)
        for each in also:
            importlib.import_module(each)
        yield module
    finally:
        for each, before in kept.items():
            sys.modules.pop(each, None)
            if before is not None:
                sys.modules[each] = before
            holder, leaf = sys.modules.get(each.rpartition(".")[0]), each.rpartition(".")[2]
            if holder is not None and attributes[each] is not None:
                setattr(holder, leaf, attributes[each])
        linecache.cache.pop(module.__file__, None)


def assert_caught(run):
    """Passes only if ``run()`` ends with a cocotb test that failed by an assertion or a timeout; returns the failed tests.

    A build error, a crash or a mistake in the test itself (AttributeError, ...) is not a catch.
    """
    try:
        run()
    except BenchFailure as failure:
        if any(kind in CATCHES for kind in failure.failed.values()):
            shutil.rmtree(failure.run, ignore_errors=True)      # this failure is wanted, nobody will look at its log
            return list(failure.failed)
        raise
    raise AssertionError("the planted bug was not caught: every test passed")
