# SPDX-License-Identifier: Apache-2.0
"""Golden model, benches and tools around the design. Nothing here is synthesized."""
