# SPDX-License-Identifier: Apache-2.0
"""Entry point of the program ``moe-hub``."""

import sys


def main():
    """Runs the command. Ctrl-C before the handler of errors stands, while libraries are being read,
    ends as it does later: one line, 130."""
    try:
        from moe_hub.command.cli import app

        app()
    except KeyboardInterrupt:
        print("moe-hub: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
