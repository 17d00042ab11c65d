# SPDX-License-Identifier: Apache-2.0
"""Mutation testing: does the bench of a block notice when one gate of the block is wrong? See
docs/running.md."""
