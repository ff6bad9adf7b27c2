# SPDX-License-Identifier: Apache-2.0
"""KVzip on a small random model: what is asked, what is kept, and what is refused."""

import unittest

import torch

import small_support as support
from kvatlas_transformers import PolicyError, load
from kvatlas_transformers.kvzip import parts_of, request_of
from test_cache import SHAPE, OfASmallModel, prompt


class Letters:
    """A token a letter."""

    chat_template = None

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict:
        return {"input_ids": [3 + ord(letter) % 61 for letter in text]}


class Chat(Letters):
    chat_template = "of some kind"

    def apply_chat_template(self, messages, tokenize, add_generation_prompt) -> str:
        return f"<user>{messages[0]['content']}</user><assistant>"


def encoded(text: str) -> list[int]:
    return Letters()(text)["input_ids"]


class Words(unittest.TestCase):
    def test_a_prompt_is_repeated_in_parts(self):
        text = encoded("A text of no great length")
        request = request_of(Letters(), text)
        whole = encoded("\n\nRepeat the previous context exactly.\n")
        self.assertEqual(list(parts_of(text, request, 100)), [(range(25), whole + text)])
        further = encoded("\n\nRepeat the part of the previous context exactly, starting with")
        self.assertEqual(
            list(parts_of(text, request, 10)),
            [
                (range(10), whole + text[:10]),
                (range(10, 20), further + text[2:10] + encoded("\n") + text[10:20]),
                (range(20, 25), further + text[12:20] + encoded("\n") + text[20:]),
            ],
        )
        self.assertEqual([words[len(further) : -5] for _, words in parts_of(text, request, 5)][1], text[:5] + encoded("\n"))

    def test_a_chat_is_asked_in_its_format(self):
        text = encoded("<user>A text</user><assistant>")
        (part, words), = parts_of(text, request_of(Chat(), text), 100)
        self.assertEqual(part, range(6, len(text)))
        self.assertEqual(words, encoded("\n\nRepeat the previous context exactly.</user><assistant>") + text[6:])
        text = encoded("A text in no format")
        self.assertEqual(request_of(Chat(), text), request_of(Letters(), text))

    def test_a_template_that_changes_messages_is_refused(self):
        class Upper(Chat):
            def apply_chat_template(self, *given, **how) -> str:
                return super().apply_chat_template(*given, **how).upper()

        with self.assertRaisesRegex(PolicyError, "does not write a user's message as it is"):
            request_of(Upper(), encoded("A text"))


class Kept(OfASmallModel):
    def zipped(self, of, ids, tokenizer=Letters(), **settings):
        sections = {"baseline": {"name": "kvzip", "settings": {"budget": 12, **settings}}}
        return load(support.document(SHAPE, sections)).cache(of, tokenizer, ids)

    def scores(self, of, ids, chunk: int, sink: int) -> torch.Tensor:
        """[layer, KV head, token], by attention that transformers computes of prompt and words together."""
        of.set_attn_implementation("eager")
        tokens = ids[0].tolist()
        out = torch.zeros(SHAPE["layers"], SHAPE["kv_heads"], len(tokens))
        for part, words in parts_of(tokens, request_of(Letters(), tokens), chunk):
            with torch.no_grad():
                rows = of(torch.tensor([tokens + words]), output_attentions=True).attentions
            first = min(sink, part.start)
            seen = [*range(first), *part, *range(len(tokens), len(tokens) + len(words))]
            for layer, heads in enumerate(rows):
                among = heads[0, :, len(tokens) :][..., seen]
                among = among / among.sum(-1, keepdim=True)
                greatest = among[..., first : first + len(part)].amax(1).view(SHAPE["kv_heads"], -1, len(part)).amax(1)
                out[layer, :, part.start : part.stop] = greatest
        out[..., :sink] = torch.inf
        return out

    def test_keeps_what_attention_while_repeating_says(self):
        ids = prompt()
        for settings in ({}, {"chunk": 15, "sink": 0}, {"layerwise": True, "sink": 2}):
            with self.subTest(**settings):
                scores = self.scores(self.model, ids, settings.get("chunk", 2048), settings.get("sink", 4))
                cache = self.zipped(self.model, ids, **settings)
                plain = self.logits(ids, load(support.document(SHAPE, {"simlayerkv": {"settings": {"threshold": 1}}})).cache(self.model))
                self.assertTrue(torch.equal(self.logits(ids, cache), plain))
                together = scores.view(4, -1) if settings.get("layerwise") else scores.view(1, -1)
                least = together.topk(12 * 2 * 4 // len(together), dim=1).values[:, -1].expand(4)
                expected = [[(row >= low).nonzero().flatten().tolist() for row in heads] for heads, low in zip(scores, least)]
                self.assertEqual(cache.kept(), expected)

    def test_a_prompt_within_the_budget_stays(self):
        ids = prompt(12)
        cache = self.zipped(self.model, None, tokenizer=None)
        self.logits(ids, cache)
        self.assertEqual(cache.lengths(), [12] * 4)

    def test_decodes_on_what_is_kept(self):
        ids = prompt(43)
        cache = self.zipped(self.model, ids[:, :40])
        logits = self.logits(ids, cache, [40, 41])
        self.assertEqual(cache.get_seq_length(), 43)
        self.assertEqual(sum(len(head) for layer in cache.kept() for head in layer), 8 * (12 + 3))
        self.assertTrue(bool(torch.isfinite(logits).all()))

    def test_refuses_what_it_cannot_ask(self):
        ids = prompt()
        for message, cache in {
            "pass tokenizer= and prompt=": self.zipped(self.model, ids, tokenizer=None),
            "has 39": self.zipped(self.model, ids[:, 1:]),
        }.items():
            with self.assertRaisesRegex(PolicyError, message):
                self.logits(ids, cache)
        cache = self.zipped(self.model, ids)
        self.logits(ids, cache)
        cache.reset()
        with self.assertRaisesRegex(PolicyError, "anew for each prompt"):
            self.logits(ids, cache)
        rounded = {"baseline": {"name": "kvzip", "settings": {}}, "precision": {"settings": {"keys": "q8_0", "values": "q8_0", "prefill": "rounded"}}}
        with self.assertRaisesRegex(PolicyError, "kvzip: a prompt that attends to what is rounded"):
            self.cache(rounded, compose=["baseline", "precision"])


if __name__ == "__main__":
    unittest.main()
