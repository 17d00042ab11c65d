# SPDX-License-Identifier: Apache-2.0
"""Random systems of hubs, judged from their pins by a checker that shares nothing with the golden
models."""
