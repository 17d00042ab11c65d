# SPDX-License-Identifier: Apache-2.0
"""Parts of ProducerControl: decoder table, closes, send totals."""
