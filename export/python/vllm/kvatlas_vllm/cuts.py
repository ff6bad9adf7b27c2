# SPDX-License-Identifier: Apache-2.0
"""What each method keeps of a layer: how many tokens, which a scheduler has to know, and which ones, which only the keys,
values and queries tell. The scores are those of kvatlas_transformers, whose file `selection` lies beside this one."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from . import selection
from .pages import Pages

MOST = 1 << 40  # tokens


def whole(least: int, most: int = MOST):
    """A setting that is a whole number of this range."""
    return field(metadata={"expected": f"{least} to {most}", "takes": lambda value: type(value) is int and least <= value <= most})


def word(*words: str):
    return field(metadata={"expected": f"one of {', '.join(words)}", "takes": lambda value: value in words})


def each(of):
    """A setting that is a list, with an entry for each KV head."""
    takes = of.metadata["takes"]
    expected = f"a list, for each KV head {of.metadata['expected']}"
    return field(metadata={"expected": expected, "takes": lambda value: isinstance(value, list) and all(map(takes, value))})


def flag():
    return field(metadata={"expected": "true or false", "takes": lambda value: isinstance(value, bool)})


@dataclass
class Layer:
    """What a layer has of a request when it is cut. Keys and values are [KV heads, rows, channels] in float32, where
    the rows are the tokens that are held, in the order of their positions."""

    keys: torch.Tensor
    values: torch.Tensor
    seen: torch.Tensor | None  # what observe() made of the prompt
    scale: float
    softcap: float | None
    sinks: torch.Tensor | None

    def attention(self, queries: torch.Tensor, first: int) -> torch.Tensor:
        """The attention rows [heads, rows, tokens] of queries [heads, rows, channels] at the positions from `first` on."""
        return selection.last_rows(queries, self.keys, first, self.scale, self.softcap, None, self.sinks)


@dataclass(frozen=True)
class Cut:
    """Once the prompt is read, a layer drops all but kept(prompt) of its tokens."""

    reads = True  # whether it scores by keys and values
    queries = 0  # how many of the prompt's last queries it scores by
    columns = False  # whether it scores by the attention of all queries of the prompt
    together = False  # whether all heads of a layer decide together
    by_head = False  # whether KV heads keep different numbers of tokens

    def wrong(self) -> str:
        """What is wrong with the settings together."""
        return ""

    def kept(self, prompt: int) -> int:
        """How many tokens of a prompt are kept."""
        raise NotImplementedError

    def hidden(self, count: int, prompt: int) -> int:
        """How many of the first `count` tokens are dropped before the next one is computed."""
        return prompt - self.kept(prompt) if count >= prompt else 0

    def freed(self, count: int, prompt: int, block: int) -> int:
        """How many of the request's first blocks hold nothing then."""
        return self.hidden(count, prompt) // block

    def due(self, begin: int, end: int, prompt: int) -> list[int]:
        """The counts of tokens from `begin` to end - 1 at which some are dropped."""
        if begin > prompt and type(self).hidden is Cut.hidden:
            return []
        counts = range(max(begin, prompt), end if type(self).hidden is not Cut.hidden else min(end, prompt + 1))
        return [count for count in counts if self.hidden(count, prompt) > self.hidden(count - 1, prompt)]

    def shared(self, prompt: int, block: int) -> int | None:
        """How many of the first tokens stay in their places until their blocks are free; None for all, as nothing is ever
        dropped."""
        if self.columns:
            return 0
        return self.freed(prompt, prompt, block) * block if self.hidden(prompt, prompt) else None

    def choose(self, layer: Layer, count: int, prompt: int) -> torch.Tensor:
        """The rows that stay, [KV heads, rows], ascending."""
        raise NotImplementedError


@dataclass(frozen=True)
class Streaming(Cut):
    """The first tokens and the last ones of the prompt, and what is generated; with `rolling` the last ones of all."""

    initial: int = whole(0)
    recent: int = whole(1)
    rolling: bool = flag()
    reads = False

    def kept(self, prompt: int) -> int:
        return min(prompt, self.initial + self.recent)

    def hidden(self, count: int, prompt: int) -> int:
        if count < prompt:
            return 0
        return max(0, (count + 1 if self.rolling else prompt) - self.initial - self.recent)

    def shared(self, prompt: int, block: int) -> int | None:
        return self.hidden(prompt, prompt) // block * block if self.rolling else super().shared(prompt, block)

    def choose(self, layer: Layer, count: int, prompt: int) -> torch.Tensor:
        rows = layer.keys.shape[1]
        drop = self.hidden(count, prompt) - (count - rows)
        first = min(self.initial, rows - drop)
        kept = torch.cat([torch.arange(first), torch.arange(first + drop, rows)])
        return kept.expand(len(layer.keys), -1)


@dataclass(frozen=True)
class LagKv(Cut):
    """A partition of tokens is cut as soon as the next one is complete, first in the prompt and then while decoding."""

    sink: int = whole(0)
    lag: int = whole(2)
    keep: int = whole(0)
    variant: str = word("lag", "local", "l2")

    def wrong(self) -> str:
        return "" if self.keep < self.lag else f"keep is {self.keep}, expected less than lag, {self.lag}"

    def partitions(self, count: int) -> int:
        return max(0, (count - self.sink) // self.lag - 1)

    def hidden(self, count: int, prompt: int) -> int:
        return self.partitions(count) * (self.lag - self.keep) if count >= prompt else 0

    def shared(self, prompt: int, block: int) -> int | None:
        return max(self.hidden(prompt, prompt), self.lag - self.keep) // block * block

    def choose(self, layer: Layer, count: int, prompt: int) -> torch.Tensor:
        heads, rows, _ = layer.keys.shape
        dropped = count - rows  # before now
        done = dropped // (self.lag - self.keep)
        partitions = self.partitions(count) - done
        first = self.sink + done * self.keep
        shape = (heads, partitions + 1, self.lag, -1)
        keys, values = (of[:, first : first + (partitions + 1) * self.lag].reshape(shape) for of in (layer.keys, layer.values))
        return selection.lag_kept(keys, values, self.keep, self.variant, first, rows)


@dataclass(frozen=True)
class Budget(Cut):
    """So many tokens of the prompt."""

    budget: int = whole(1)

    def kept(self, prompt: int) -> int:
        return min(prompt, self.budget)


@dataclass(frozen=True)
class KeyDiff(Budget):
    """Those whose keys are least like the mean of all keys."""

    def choose(self, layer: Layer, count: int, prompt: int) -> torch.Tensor:
        return selection.largest(selection.unlike_mean_scores(layer.keys), self.budget)


@dataclass(frozen=True)
class Tova(Budget):
    """Those that the last token attends to most, in the mean over the layer's heads."""

    queries = 1
    together = True

    def choose(self, layer: Layer, count: int, prompt: int) -> torch.Tensor:
        scores = layer.attention(layer.seen, prompt - 1)[:, 0, :-1].mean(0, keepdim=True)
        return selection.best_and_rest(scores, self.budget - 1, prompt - 1, prompt).expand(len(layer.keys), -1)


@dataclass(frozen=True)
class H2o(Budget):
    """Those that all tokens of the prompt attend to most, and the last ones."""

    heavy: int = whole(0)
    columns = True

    def wrong(self) -> str:
        return "" if self.heavy <= self.budget else f"heavy is {self.heavy}, expected at most the budget, {self.budget}"

    def choose(self, layer: Layer, count: int, prompt: int) -> torch.Tensor:
        recent = prompt - (self.budget - self.heavy)
        return selection.best_and_rest(layer.seen.float()[:, :recent], self.heavy, recent, prompt)


@dataclass(frozen=True)
class WindowScores(Cut):
    """Scores tokens by how much the last ones of the prompt, which are the window, attend to them."""

    window: int = whole(1, 4096)
    kernel: int = whole(1, 4095)
    pooling: str = word("avg", "max")

    @property
    def queries(self) -> int:
        return self.window

    def wrong_with(self, budget: int) -> str:
        if self.kernel % 2 == 0:
            return f"kernel is {self.kernel}, expected an odd number"
        return "" if budget >= self.window else f"budget is {budget}, expected at least the window, {self.window}"

    def scores(self, layer: Layer, prompt: int) -> torch.Tensor:
        """Of the tokens before the window, [KV heads, tokens]."""
        rows = layer.attention(layer.seen, prompt - self.window)
        scores = selection.window_scores(rows, self.kernel, self.pooling)
        return scores.view(len(layer.keys), -1, scores.shape[1]).mean(1)

    def best(self, scores: torch.Tensor, budget: int, prompt: int) -> torch.Tensor:
        """The window, and as many of the best scored tokens as the budget has room for."""
        return selection.best_and_rest(scores, budget - self.window, prompt - self.window, prompt)


@dataclass(frozen=True)
class SnapKv(WindowScores, Budget):
    """The best scored tokens, as many in each head."""

    def wrong(self) -> str:
        return self.wrong_with(self.budget)

    def choose(self, layer: Layer, count: int, prompt: int) -> torch.Tensor:
        return self.best(self.scores(layer, prompt), self.budget, prompt)


@dataclass(frozen=True)
class ChunkKv(SnapKv):
    """By the same scores whole chunks of neighbouring tokens, the same ones in all heads."""

    chunk: int = whole(1, 4096)
    together = True

    def wrong(self) -> str:
        if 2 * self.window < self.chunk - 1:  # the last chunk, which may be shorter, could be dropped or not
            return f"chunk is {self.chunk}, expected at most {2 * self.window + 1}, which is twice the window and one"
        return super().wrong()

    def chunks(self, prompt: int) -> int:
        return -(-prompt // self.chunk)

    def chunks_kept(self, prompt: int) -> int:
        return min(self.chunks(prompt), max(1, self.chunks(prompt) * self.budget // prompt))

    def kept(self, prompt: int) -> int:
        """The last chunk, which may be shorter, is always kept: the window has half of it at least."""
        if self.chunks_kept(prompt) == self.chunks(prompt):
            return prompt
        return self.chunks_kept(prompt) * self.chunk - -prompt % self.chunk

    def choose(self, layer: Layer, count: int, prompt: int) -> torch.Tensor:
        scores = self.scores(layer, prompt)
        best = selection.best_chunks(scores, self.window, self.chunk, self.chunks_kept(prompt))
        tokens = torch.arange(prompt)
        return tokens[torch.isin(tokens // self.chunk, best)].expand(len(layer.keys), -1)


@dataclass(frozen=True)
class ByHead(Cut):
    """Each KV head keeps a number of tokens of its own. What all of them keep is packed into the same blocks."""

    together = True  # for the workers of a tensor parallel group have other heads each
    by_head = True

    def kept_of_heads(self, prompt: int) -> list[int]:
        raise NotImplementedError

    def hidden(self, count: int, prompt: int) -> int:
        """Not in tokens: whether any head has dropped some."""
        return int(count >= prompt and min(self.kept_of_heads(prompt)) < prompt)

    def freed(self, count: int, prompt: int, block: int) -> int:
        return Pages.of(tuple(self.kept_of_heads(prompt)), prompt, block).freed if self.hidden(count, prompt) else 0


@dataclass(frozen=True)
class LazyHeads(ByHead):
    """Lazy KV heads keep the first tokens and the last ones of the prompt, the others all."""

    reads = False
    lazy: tuple[bool, ...] = each(flag())
    initial: int = whole(0)
    recent: int = whole(1)

    def kept_of_heads(self, prompt: int) -> list[int]:
        return [min(prompt, self.initial + self.recent) if one else prompt for one in self.lazy]

    def choose(self, layer: Layer, count: int, prompt: int) -> list[torch.Tensor]:
        near = selection.proximal(prompt, self.initial, self.recent)
        return [near if one else torch.arange(prompt) for one in self.lazy]


@dataclass(frozen=True)
class HeadKv(ByHead, WindowScores):
    """The best scored tokens, by a budget for each KV head."""

    budgets: tuple[int, ...] = each(whole(1))

    def wrong(self) -> str:
        return next(filter(None, map(self.wrong_with, self.budgets)), "")

    def kept_of_heads(self, prompt: int) -> list[int]:
        return [min(prompt, budget) for budget in self.budgets]

    def choose(self, layer: Layer, count: int, prompt: int) -> list[torch.Tensor]:
        scores = self.scores(layer, prompt)
        return [self.best(row[None], most, prompt)[0] for row, most in zip(scores, self.budgets)]


METHODS = {
    "heads": LazyHeads,
    "headkv": HeadKv,
    "streaming": Streaming,
    "lagkv": LagKv,
    "snapkv": SnapKv,
    "chunkkv": ChunkKv,
    "tova": Tova,
    "keydiff": KeyDiff,
    "h2o": H2o,
}
