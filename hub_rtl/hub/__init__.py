# SPDX-License-Identifier: Apache-2.0
"""Parts of the hub: its two halves, control messages, status, outer ports."""
