# SPDX-License-Identifier: Apache-2.0
"""Writes a routing log from inside a server: a wrapper around the function that chooses experts.

Plain Python; works on whatever has ``tolist()``, torch tensors and numpy arrays alike.
"""

import functools
import json

__all__ = ["RouteLogger"]


class RouteLogger:
    """A routing log (docs/routing_log.md) that grows with every call of a wrapped router.

    ``file``: open for text, JSON lines are written to it. ``model_id``: name in the log.
    ``num_experts``, ``top_k``: of the model; a call with other sizes raises ValueError.
    """

    def __init__(self, file, model_id, num_experts, top_k):
        self._file = file
        self._experts, self._top_k, self._tokens = num_experts, top_k, 0
        self._write(type="meta", model_id=model_id, top_k=top_k, num_experts=num_experts)

    def _write(self, **line):
        self._file.write(json.dumps(line) + "\n")

    def wrap(self, router, layer):
        """``router`` with a log of what it returns: ``(topk_weights, topk_ids)``, each [tokens,
        top_k]. ``layer``: its number in the log."""

        @functools.wraps(router)
        def logged(*arguments, **more):
            weights, ids = router(*arguments, **more)
            for token_weights, token_ids in zip(weights.tolist(), ids.tolist(), strict=True):
                if len(token_ids) != self._top_k or not all(
                    0 <= expert < self._experts for expert in token_ids
                ):
                    raise ValueError(
                        f"topk_ids = {token_ids}: must be {self._top_k} of {self._experts} experts"
                    )
                self._write(
                    type="route",
                    req_id="",
                    token_idx=self._tokens,
                    layer=layer,
                    topk_ids=token_ids,
                    topk_weights=token_weights,
                )
                self._tokens += 1
            return weights, ids

        return logged
