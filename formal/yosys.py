"""Yosys for SymbiYosys: runs a script with the native library of the ``pyosys`` package, which starts at once.

``python yosys.py [-q] [-l LOG] [-p COMMANDS] [SCRIPT]``: the options that SymbiYosys uses, also joined as in ``-ql``. Exit code
1 when a command fails.
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
