# SPDX-License-Identifier: Apache-2.0
"""Drawings of the pages: what a block looks like from outside, how it moves when a row passes."""
