# SPDX-License-Identifier: Apache-2.0
"""The rules on small inputs, against plain loops and values worked out by hand."""

import math
import unittest
from fractions import Fraction

import torch

import small_support  # finds the package  # noqa: F401
from kvatlas_transformers import selection
from kvatlas_transformers.precision import stored
from kvatlas_transformers.rows import Rows


def buffered_lengths(scores, base, r_max, update):
    """DynamicKV's Algorithm 1 from its paper, told plainly: what the buffers hold that each update cuts. The budgets
    of an update are shared out one by one instead of rounded down (docs/dynamickv.md)."""
    layers, (heads, positions) = len(scores), scores[0].shape
    most = int(min(base * r_max, positions))
    buffers = []
    for number, of_layer in enumerate(scores, 1):
        buffers.append(most)
        if number != layers and (update == 0 or number % update):
            continue
        ranked = sorted((-value, i) for i, layer in enumerate(scores[:number]) for value in layer.flatten().tolist())
        counts = [0] * number
        for _, layer in ranked[: base * heads * number]:
            counts[layer] += 1
        full = []  # layers at the cap
        while True:
            left = base * layers - most * len(full)
            others = [i for i in range(number) if i not in full]
            weight = sum(counts[i] for i in others)
            weights = {i: counts[i] if weight else 1 for i in others}
            shares = {i: Fraction(left * weights[i], sum(weights.values())) for i in others}
            above = [i for i in others if shares[i] > most]
            if not above:
                break
            full += above
        budgets = {**{i: most for i in full}, **{i: int(share) for i, share in shares.items()}}
        by_remainder = sorted(others, key=lambda i: (int(shares[i]) - shares[i], i))
        for i in by_remainder[: base * layers - sum(budgets.values())] if others else []:
            budgets[i] += 1
        buffers = [min(held, budgets[i]) for i, held in enumerate(buffers)]
    return buffers


class Selection(unittest.TestCase):
    def test_largest_takes_the_earlier_of_equals(self):
        scores = torch.tensor([[1.0, 3, 2, 3, 2, 2], [0, 0, 0, 0, 0, 1]])
        self.assertEqual(selection.largest(scores, 4).tolist(), [[1, 2, 3, 4], [0, 1, 2, 5]])

    def test_proximal_tokens(self):
        self.assertEqual(selection.proximal(10, 2, 3).tolist(), [0, 1, 7, 8, 9])
        self.assertEqual(selection.proximal(10, 0, 3).tolist(), [7, 8, 9])
        self.assertEqual(selection.proximal(4, 2, 3).tolist(), [0, 1, 2, 3])
        rows = torch.tensor([[[0.1, 0.2, 0.3, 0.4, 0.0], [0.2, 0.2, 0.2, 0.2, 0.2]]])
        mass = selection.proximal_mass(rows, 1, 2)
        self.assertTrue(torch.allclose(mass, torch.tensor([[0.8, 0.6]], dtype=torch.float64)))

    def test_window_scores(self):
        rows = torch.rand(2, 3, 11)
        for pooling in ("avg", "max"):
            got = selection.window_scores(rows, 5, pooling)
            for head in range(2):
                mean = [sum(rows[head, r, j].item() for r in range(3)) / 3 for j in range(8)]
                for j in range(8):
                    pool = mean[max(0, j - 2) : j + 3]
                    expected = sum(pool) / 5 if pooling == "avg" else max(pool)
                    self.assertAlmostEqual(got[head, j].item(), expected, places=6)

    def test_budgets(self):
        scores = [torch.tensor([[5.0, 1, 2]]), torch.tensor([[2.0, 2, 9]])]
        self.assertEqual(selection.top_counts(scores, 3), [2, 1])  # of three equal scores the lower layer's
        self.assertEqual(selection.top_counts(scores, 4), [2, 2])
        self.assertEqual(selection.top_counts(scores, 6), [3, 3])
        self.assertEqual(selection.layer_budgets([5, 3, 1], 1, 10, 10, 3), [2, 1, 0])  # of three heads
        self.assertEqual(selection.layer_budgets([8, 8, 2], 2, 10, 10, 3), [3, 3, 0])
        self.assertEqual(selection.layer_budgets([30, 30, 30], 10, 10, 10, 3), [10, 10, 10])
        # The cap is int(4 * 1.25) = 5 tokens; the other layers share what it cuts off.
        self.assertEqual(selection.layer_budgets([13, 7, 4], 4, 100, 10, 3), [7, 3, 2])
        self.assertEqual(selection.layer_budgets([13, 7, 4], 4, 100, 1.25, 3), [5, 4, 3])
        self.assertEqual(selection.layer_budgets([12, 11, 1], 4, 100, 1.25, 3), [5, 5, 2])
        self.assertEqual(selection.layer_budgets([24, 0, 0], 4, 100, 1.25, 3), [5, 4, 3])
        self.assertEqual(selection.pyramid_budgets(100, 3), [195, 100, 5])
        self.assertEqual(sum(selection.pyramid_budgets(33, 7)), 33 * 7)

    def test_counts_of_best(self):
        scores = torch.tensor([[5.0, 1, 2, 4], [0, 0, 0, 1], [4, 3, 0, 0]])
        self.assertEqual(selection.counts_of_best(scores, 3, 0), [2, 0, 1])
        self.assertEqual(selection.counts_of_best(scores, 2, 0), [2, 0, 0])  # of two equal scores the lower row's
        self.assertEqual(selection.counts_of_best(scores, 6, 1), [3, 1, 2])
        self.assertEqual(selection.counts_of_best(scores, 6, 2), [2, 2, 2])

    def test_progressive_budgets(self):
        # Two tokens a layer in the mean. The scores' order is, by layer: 0 0 0 1 2 2 2 2.
        rows = [[9.0, 8.5, 8, 0, 0], [7.0, 0, 0, 0, 0], [6.0, 5.5, 5, 4.5, 0], [0.0] * 5]
        scores = [torch.tensor([row]) for row in rows]
        for update, expected in {
            0: [3, 1, 4, 0],
            1: [3, 1, 3, 0],
            2: [3, 1, 4, 0],
            3: [3, 1, 3, 0],
            4: [3, 1, 4, 0],
            9: [3, 1, 4, 0],
        }.items():
            with self.subTest(update=update):
                self.assertEqual(selection.dynamic_budgets(scores, 2, 10, update), expected)
        self.assertEqual(selection.dynamic_budgets(scores, 2, 1, 0), [2, 2, 2, 2])
        self.assertEqual(selection.dynamic_budgets(scores, 9, 1, 2), [5, 5, 5, 5])
        torch.manual_seed(3)
        for heads, base, r_max in ((3, 6, 1.5), (1, 4, 10), (2, 9, 2)):
            scores = [torch.rand(heads, 20) * height for height in (1, 4, 2, 1, 3, 8, 1)]
            self.assertEqual(sum(selection.dynamic_budgets(scores, base, r_max, 0)), base * 7)
            for update in range(8):
                with self.subTest(heads=heads, update=update):
                    self.assertEqual(
                        selection.dynamic_budgets(scores, base, r_max, update),
                        buffered_lengths(scores, base, r_max, update),
                    )

    def test_lag_scores(self):
        torch.manual_seed(0)
        keys, values = torch.randn(1, 3, 4, 6), torch.randn(1, 3, 4, 6)
        keys[0, :, :, 2] = 1  # a channel that is always the same counts as 0

        def deviations(rows, against):
            out = []
            for token in rows:
                x = []
                for c in range(6):
                    low, high = against[:, c].min().item(), against[:, c].max().item()
                    x.append((token[c].item() - low) / (high - low) if high > low else 0)
                mean = sum(x) / 6
                out.append(math.exp(math.sqrt(sum((v - mean) ** 2 for v in x) / 5)))
            return [v / sum(out) for v in out]

        for variant, step in (("lag", 1), ("local", 0)):
            got = selection.lag_scores(keys, values, variant)
            self.assertEqual(got.shape, (1, 2, 4))
            for p in range(2):
                of_keys = deviations(keys[0, p], keys[0, p + step])
                of_values = deviations(values[0, p], values[0, p + step])
                for t in range(4):
                    self.assertAlmostEqual(got[0, p, t].item(), of_keys[t] + of_values[t], places=5)
        norms = selection.lag_scores(keys, values, "l2")
        self.assertTrue(torch.allclose(norms, -keys[:, :2].square().sum(-1).sqrt()))

    def test_blocks(self):
        same = torch.full((2, 1, 4), 0.25)
        other = torch.tensor([[[1.0, 0, 0, 0]], [[0.25, 0.25, 0.25, 0.25]]])
        self.assertTrue(torch.allclose(selection.layer_similarity(same, same), torch.ones(2, dtype=torch.float64)))
        point = torch.tensor([[[0.0, 0, 0, 1]]])
        self.assertAlmostEqual(float(selection.layer_similarity(point, other[:1])), 0)
        rows = [same, same, other, other]
        self.assertEqual(selection.pod_blocks(rows, 1, True, 0.9), [[0, 0, 2, 2], [0, 0, 0, 0]])
        self.assertEqual(selection.pod_blocks(rows, 1, False, 0.9), [[0, 0, 2, 2], [0, 0, 2, 2]])

    def test_quantised_rows(self):
        """Codes and scales as the loops of the definition give them; rows that stay keep their values."""
        torch.manual_seed(1)
        data = torch.randn(2, 70, 40)
        for bits in (4, 2):
            most = (1 << bits) - 1
            for by_channel in (True, False):
                rows = stored(data, f"int{bits}", by_channel, 70)
                axis = 1 if by_channel else 2
                for part, got in zip(data.split(32, axis), rows.all().split(32, axis)):
                    low, high = part.amin(axis, keepdim=True), part.amax(axis, keepdim=True)
                    scale, minimum = ((high - low) / most).half().float(), low.half().float()
                    code = ((part - minimum) / scale).round().clamp(0, most)
                    self.assertLess((got - (minimum + code * scale)).abs().max(), 1e-5)
                codes = 2 * 70 * 40 * bits // 8
                groups = 3 * 40 if by_channel else 70 * 2
                size = sum(tensor.numel() * tensor.element_size() for tensor in rows.tensors())
                self.assertEqual(size, codes + 2 * groups * 2 * 2)
                self.check_take(rows)
                # The tail joins the codes as a group of its own, also behind a group that is not full.
                first, later = data[:, :40], data[:, 40:]
                grown = stored(data, f"int{bits}", by_channel, 40)
                self.assertTrue(torch.equal(grown.all()[:, 40:], later))
                grown = grown.code(30)
                of_parts = [stored(part, f"int{bits}", by_channel, part.shape[1]).all() for part in (first, later)]
                self.assertTrue(torch.equal(grown.all(), torch.cat(of_parts, dim=1)))
                self.check_take(grown)

    def check_take(self, rows: Rows) -> None:
        more = rows.append(torch.randn(2, 5, 40))
        # The second: as many rows of each head, but not as many of the quantised ones.
        for index in ([[0, 3, 40, 69, 70, 74]] * 2, [[0, 3, 40, 69, 70, 74], [1, 2, 65, 72, 73, 74]]):
            index = torch.tensor(index)
            taken = more.take(index)
            self.assertEqual(len(taken), 6)
            for head in range(2):
                self.assertTrue(torch.equal(taken.all()[head], more.all()[head, index[head]]))
            again = taken.take(torch.tensor([[1, 2, 5]] * 2))
            self.assertTrue(torch.equal(again.all(), taken.all()[:, [1, 2, 5]]))

    def test_drawn_layers(self):
        # What `kvatlas evaluate --policy random-layers:layers=12,from=upper,seed=7` draws for 30 layers.
        drawn = selection.drawn_layers(7, range(15, 30), 12)
        self.assertEqual(drawn, [16, 17, 18, 19, 20, 21, 22, 24, 25, 26, 27, 29])
        self.assertEqual(selection.drawn_layers(7, range(4), 9), [0, 1, 2, 3])


if __name__ == "__main__":
    unittest.main()
