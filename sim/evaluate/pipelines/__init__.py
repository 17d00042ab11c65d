# SPDX-License-Identifier: Apache-2.0
"""Layers beside each other on the same GPUs: micro-batches, a shared expert, forward and backward.

``streams.py`` has what they share, SMs, memory, links and the host; ``overlap.py`` and
``training.py`` the programs; ``run.py`` runs one by its name.
"""
