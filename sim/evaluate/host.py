# SPDX-License-Identifier: Apache-2.0
"""Who launches the kernels: Python, which pays for each call by its kind (``[host]`` of
``data/systems.toml``), C++, or a CUDA graph."""

from .systems import constants, ranges

__all__ = ["GRAPH", "KINDS", "cpp", "extreme", "slower"]

#: Constants of ``[host]`` that are the time of a kind of call.
KINDS = tuple(ranges("host"))
#: Of a CUDA graph: constants to replace. Its one launch is paid once for all of its kernels.
GRAPH = (("host", "graph", 1),)
NO_PYTHON = ("function_us", "module_us", "allocation_us")  # what only Python has
NCCL = ("nccl_us", "collective_us")  # also called by C++


def cpp(launch_us):
    """Constants to replace where C++ calls the driver and NCCL, and nothing else takes time."""

    def us(kind):
        if kind in NCCL:
            return constants("host").nccl_us
        return 0.0 if kind in NO_PYTHON else launch_us

    return tuple(("host", kind, us(kind)) for kind in KINDS)


def slower(factor):
    """Constants to replace for a host that takes ``factor`` times as long for a call of any
    kind."""
    known = constants("host")
    return tuple(("host", kind, factor * getattr(known, kind)) for kind in KINDS)


def extreme(high):
    """Constants to replace for the least, or with ``high`` the most, that every kind of call was
    found to take."""
    return tuple(("host", kind, bounds[high]) for kind, bounds in ranges("host").items())
