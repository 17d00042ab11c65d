# SPDX-License-Identifier: Apache-2.0
"""Small stream parts that every block uses."""
