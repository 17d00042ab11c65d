# SPDX-License-Identifier: Apache-2.0
"""The command ``moe-hub``: its verbs, and what runs them."""
