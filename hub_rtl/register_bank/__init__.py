# SPDX-License-Identifier: Apache-2.0
"""Parts of the register bank."""
