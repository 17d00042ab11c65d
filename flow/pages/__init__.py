# SPDX-License-Identifier: Apache-2.0
"""Pages whose tables and numbers are written from CSV files."""
