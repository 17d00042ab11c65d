# SPDX-License-Identifier: Apache-2.0
"""Tables of ``docs/results/evaluation.md``, for :func:`flow.pages.fill.fill`."""

from . import checked_tables, paper_tables, question_tables

__all__ = ["TABLES"]

TABLES = paper_tables.TABLES | checked_tables.TABLES | question_tables.TABLES
