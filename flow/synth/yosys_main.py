# SPDX-License-Identifier: Apache-2.0
"""Yosys for tools that call it as a program: the native library of the ``pyosys`` package, which
starts at once.

``python yosys_main.py [-q] [-l LOG] [-p COMMANDS] [SCRIPT]``: the options that SymbiYosys and board
builds use, also joined as in ``-ql``. Exit code 1 when a command fails.
"""

import getopt
import sys


def main(arguments):
    from pyosys import libyosys

    options, scripts = getopt.getopt(arguments, "QTqVl:p:")
    options = dict(options)
    if "-V" in options:
        libyosys.run_pass("version")
        return
    if "-l" in options:
        libyosys.run_pass(f"tee -q -o {options['-l']} log .")
    if "-p" in options:
        libyosys.run_pass(options["-p"])
    for script in scripts:
        libyosys.run_pass(f"script {script}")


if __name__ == "__main__":
    main(sys.argv[1:])
