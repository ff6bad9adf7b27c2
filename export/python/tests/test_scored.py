# SPDX-License-Identifier: Apache-2.0
"""Scores of the caller's own, and one reading of a prompt for several caches, on a small random model."""

import unittest

import torch

import small_support as support
from kvatlas_transformers import Policy, PolicyError, load, selection
from test_cache import LAG, POD, SHAPE, STREAMING, OfASmallModel, prompt

BUDGET = 12
LAZY = {"simlayerkv": {"settings": {"threshold": 0, "initial": 2, "recent": 10}}}


def baseline(name: str, **settings) -> dict:
    return {"baseline": {"name": name, "settings": {"budget": BUDGET, **settings}}}


def keydiff(keys, values, queries, positions, layer):
    return selection.unlike_mean_scores(keys)


def last_attention(keys, values, queries, positions, layer):
    """TOVA: what the last token attends to, in the mean over all heads; the last token itself stays."""
    keys = keys.repeat_interleave(len(queries) // len(keys), dim=0)
    row = torch.softmax(queries[:, -1:] @ keys.transpose(1, 2) * keys.shape[-1] ** -0.5, dim=-1).mean(0)[0]
    return torch.where(positions == positions[-1], torch.inf, row)


class Scored(OfASmallModel):
    def run_policy(self, policy, ids, pieces):
        cache = policy.cache(self.model)
        return self.logits(ids, cache, pieces), cache.kept()

    def test_does_what_the_method_of_these_scores_does(self):
        for name, score in (("keydiff", keydiff), ("tova", last_attention)):
            for length in (BUDGET - 1, BUDGET + 1, 40):
                with self.subTest(name, length=length):
                    ids = prompt(length + 3)
                    mine = self.run_policy(Policy.scored(self.model, score, BUDGET), ids, [length, length + 1])
                    built_in = self.run_policy(load(support.document(SHAPE, baseline(name))), ids, [length, length + 1])
                    self.assertEqual(mine[1], built_in[1])
                    self.assertTrue(torch.equal(mine[0], built_in[0]))

    def test_is_handed_the_prompt_of_each_layer(self):
        seen = []

        def look(keys, values, queries, positions, layer):
            seen.append((layer, keys.shape, values.shape, queries.shape, positions.tolist()))
            return positions

        _, kept = self.run_policy(Policy.scored(self.model, look, BUDGET), prompt(30), [])
        self.assertEqual(seen, [(layer, (2, 30, 8), (2, 30, 8), (4, 30, 8), list(range(30))) for layer in range(4)])
        self.assertEqual(kept, [[list(range(18, 30))] * 2] * 4)

    def test_refuses_what_are_no_scores(self):
        cases = {
            "are NoneType": lambda *given: None,
            "are [2, 4], expected a tensor of [2, 30] or [30]": lambda *given: torch.zeros(2, 4),
            "a score of layer 0 is no number": lambda *given: torch.full((30,), torch.nan),
        }
        for message, score in cases.items():
            with self.assertRaises(PolicyError) as caught:
                self.run_policy(Policy.scored(self.model, score, BUDGET, "mine"), prompt(30), [])
            self.assertIn(message, str(caught.exception))
        for budget in (0, True, 1.5):
            self.assertRaises(PolicyError, Policy.scored, self.model, keydiff, budget)


class OneReading(OfASmallModel):
    DOCUMENTS = {
        "window": STREAMING, "lag": LAG, "pod": POD, "decides later": LAZY, "4 bits": {**STREAMING, "kv_bits": 4},
        "snapkv": baseline("snapkv", window=4), "h2o": baseline("h2o"), "dynamickv": {"dynamickv": {"settings": {"budget": 12, "window": 4}}},
    }  # fmt: skip

    def test_serves_all_caches_as_readings_of_their_own(self):
        full = Policy.scored(self.model, keydiff, 1000).cache(self.model)
        caches = {name: self.cache(sections) for name, sections in self.DOCUMENTS.items()}
        full.read_with(list(caches.values()))
        ids = prompt(42)
        whole = self.logits(ids[:, :40], full)
        self.assertTrue(torch.equal(whole, self.logits(ids[:, :40], self.cache({"simlayerkv": {"settings": {"threshold": 1}}}))))
        self.assertEqual(full.lengths(), [40] * 4)
        for name, sections in self.DOCUMENTS.items():
            with self.subTest(name):
                alone = self.cache(sections)
                expected = self.logits(ids, alone, [40, 41])[:, 40:]
                got = self.logits(ids[:, 40:], caches[name], [1])
                self.assertTrue(torch.equal(got, expected))
                self.assertEqual(caches[name].kept(), alone.kept())
                self.assertEqual(caches[name].bytes(), alone.bytes())

    def test_refuses_caches_that_read_alone(self):
        rounded = self.cache({"precision": {"settings": {"keys": "q8_0", "values": "q8_0", "prefill": "rounded"}}})
        used = self.cache(LAG)
        self.logits(prompt(), used)
        for other in (rounded, used):
            with self.assertRaisesRegex(PolicyError, "reads its prompt alone"):
                self.cache(LAG).read_with([other])

    def test_a_reset_cache_reads_alone(self):
        one, other = self.cache(LAG), self.cache(STREAMING)
        one.read_with([other])
        one.reset()
        self.logits(prompt(), one)
        self.assertEqual(other.get_seq_length(), 0)


if __name__ == "__main__":
    unittest.main()
