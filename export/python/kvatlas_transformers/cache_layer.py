# SPDX-License-Identifier: Apache-2.0
"""The layers of our caches, as transformers sees them."""

from __future__ import annotations

from transformers.cache_utils import CacheLayerMixin

from .errors import PolicyError


class CacheLayer(CacheLayerMixin):
    """Answers what transformers asks of a layer. The keys and values themselves are in the bands of `cache`."""

    def __init__(self, cache):
        super().__init__()
        self.cache = cache

    @property
    def is_initialized(self) -> bool:
        return self.cache.seen > 0

    @is_initialized.setter
    def is_initialized(self, value: bool) -> None:
        pass  # the base class sets it

    def lazy_initialization(self, *args) -> None:
        raise PolicyError("a kvatlas cache cannot be set up before it sees keys")

    def update(self, *args, **kwargs):
        raise PolicyError("a kvatlas cache is updated as a whole")

    def get_seq_length(self, *args) -> int:
        return self.cache.seen

    def get_mask_sizes(self, query) -> tuple[int, int]:
        # Before transformers 5.3 the argument is the positions, later their number.
        length = query if isinstance(query, int) else query.shape[0]
        return self.cache.seen + length, 0

    def get_max_length(self) -> int:
        return -1

    get_max_cache_shape = get_max_length  # what it was called before transformers 5.3

    def reset(self) -> None:
        self.cache.reset()
