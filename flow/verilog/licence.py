# SPDX-License-Identifier: Apache-2.0
"""The licence line of every file that the project writes for others; sources carry the same
line."""

__all__ = ["LICENCE", "SPDX"]

LICENCE = "Apache-2.0"
# In two parts, so that tools which look for the line do not take this one for a second licence.
SPDX = "SPDX-License-" + f"Identifier: {LICENCE}"
