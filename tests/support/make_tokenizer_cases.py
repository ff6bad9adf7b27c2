#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/unit/model/data/tokenizer_cases.json: small tokenizers and what the package tokenizers (0.23.3) makes of
strings and ids with them. Run: make_tokenizer_cases.py OUTPUT"""
import json
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXTS = [
    "", " ", "  two  spaces ", "Hello, world!", "don't we'll I'VE", "tab\tnew\nline\r\n\r\nend", "3.14159 12345 0x7f",
    "na\u00efve e\u0301 \u00e9 \ufb01ne \u212b", "\u4f60\u597d\uff0c\u4e16\u754c", "\u3000wide\u00a0nbsp\u2028",
    "\U0001F469\u200d\U0001F467 \U0001F680", "x\u0000y", "aaaaaaaaaaaaaaaa", "\u2581already", "\u0130stanbul STRASSE",
    "a_b-c(d)[e]", "the <s> of <|x|>the</s> \u00bd \u2167", "<0x41>", "  lead", "trail  ", "\u0939\u093f\u0928\u094d\u0926\u0940",
    "\u180ex\u200by", "the\u0301 [X] [X]the  [X]  ", "a\u0301\u0323 \u1e9b\u0323 \uac01 \uff21",
]
CORPUS = TEXTS + ["the quick brown fox jumps over the lazy dog", "def f(x):\n    return x**2  # square", "The THE the then them there"]


def bpe(alphabet, byte_tokens, size, **options):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(False) if alphabet else pre_tokenizers.Metaspace("\u2581", "first")
    special = ["<unk>"] + (["<0x%02X>" % b for b in range(256)] if byte_tokens else [])
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                  initial_alphabet=alphabet, limit_alphabet=40 if not alphabet else 300)
    tokenizer.train_from_iterator(CORPUS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    model.update(options)
    return model


def unigram(byte_tokens):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", "first")
    special = ["<unk>"] + (["<0x%02X>" % b for b in range(256)] if byte_tokens else [])
    trainer = trainers.UnigramTrainer(vocab_size=120 + len(special), special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(CORPUS[:14] + CORPUS[-3:], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    model["byte_fallback"] = byte_tokens
    return model


N, P, D = normalizers, pre_tokenizers, decoders
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
LLAMA2_DECODER = D.Sequence([D.Replace("\u2581", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)])


def added(*names, **options):
    return [AddedToken(name, **options) for name in names]


def cases():
    """name, model, normalizer, pre-tokenizer, decoder, added tokens, tokens around a text"""
    byte_level = P.ByteLevel(add_prefix_space=False, use_regex=False)
    special = added("<s>", "</s>", "<|x|>", special=True, normalized=False)
    yield "gpt2", "bytes", None, P.ByteLevel(False), D.ByteLevel(), special, ("<s>", "</s>")
    yield "gpt2 prefix space", "bytes", None, P.ByteLevel(True), D.ByteLevel(), special, None
    yield "llama3", "bytes_whole", None, P.Sequence([P.Split(Regex(LLAMA3), "isolated"), byte_level]), D.ByteLevel(), special, ("<s>", None)
    yield "smollm", "bytes", None, P.Sequence([P.Digits(True), P.ByteLevel(False)]), D.ByteLevel(), special, None
    yield "qwen2", "bytes", N.NFC(), P.Sequence([P.Split(Regex(LLAMA3.replace("{1,3}", "")), "isolated"), byte_level]), D.ByteLevel(), special, None
    yield "llama2", "pieces_bytes", N.Sequence([N.Prepend("\u2581"), N.Replace(" ", "\u2581")]), None, LLAMA2_DECODER, special, ("<s>", None)
    yield "metaspace", "pieces_bytes", None, P.Metaspace("\u2581", "first", False), LLAMA2_DECODER, special, None
    for scheme in ("always", "first", "never"):
        yield "metaspace " + scheme, "pieces", None, P.Metaspace("\u2581", scheme), D.Metaspace("\u2581", scheme), special, None
    yield "unknown", "pieces", None, None, None, special, None
    yield "unknown fused", "pieces_fused", None, None, D.Fuse(), special, None
    yield "unigram", "unigram", None, P.Metaspace("\u2581", "first"), D.Metaspace("\u2581", "first"), special, None
    yield "unigram bytes", "unigram_bytes", None, P.Metaspace("\u2581", "first"), LLAMA2_DECODER, special, None
    for name, step in {"NFC": N.NFC(), "NFD": N.NFD(), "NFKC": N.NFKC(), "NFKD": N.NFKD(), "Lowercase": N.Lowercase(), "StripAccents": N.Sequence([N.NFD(), N.StripAccents()]),
                       "Strip": N.Strip(), "Strip left": N.Strip(True, False), "Replace": N.Replace(Regex(r"\s+"), "_"), "ByteLevel": N.ByteLevel()}.items():
        yield name, "bytes", step, None if name == "ByteLevel" else byte_level, D.ByteLevel(), [], None
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            yield f"Split {behavior} {invert}", "bytes", None, P.Sequence([P.Split(Regex(r"\s|the"), behavior, invert), byte_level]), D.ByteLevel(), [], None
        yield f"Punctuation {behavior}", "bytes", None, P.Sequence([P.Punctuation(behavior), byte_level]), D.ByteLevel(), [], None
    yield "Split text", "bytes", None, P.Sequence([P.Split(" ", "merged_with_next"), byte_level]), D.ByteLevel(), [], None
    yield "Digits", "bytes", None, P.Sequence([P.Digits(False), byte_level]), D.ByteLevel(), [], None
    yield "Whitespace", "bytes", None, P.Sequence([P.Whitespace(), byte_level]), D.ByteLevel(), [], None
    yield "WhitespaceSplit", "bytes", None, P.Sequence([P.WhitespaceSplit(), byte_level]), D.ByteLevel(), [], None
    yield "CharDelimiterSplit", "bytes", None, P.Sequence([P.CharDelimiterSplit("e"), byte_level]), D.ByteLevel(), [], None
    for pattern in (r"\w+", r"\bthe\b", r"^.", r".$", r"[^\S\n]", r"a*", r"\h+", r"(?<=a)[a-z]", r"\B"):
        yield f"Regex {pattern}", "bytes", None, P.Sequence([P.Split(Regex(pattern), "isolated"), byte_level]), D.ByteLevel(), [], None
    for name, options in {"lstrip": {"lstrip": True}, "rstrip": {"rstrip": True}, "single_word": {"single_word": True},
                          "both": {"lstrip": True, "rstrip": True}, "normalized": {"normalized": True}}.items():
        normalizer = N.Lowercase() if name == "normalized" else None
        yield f"added {name}", "bytes", normalizer, byte_level, D.ByteLevel(), added("the", "<S>" if name == "normalized" else "[X]", **options), None


def main(path):
    random.seed(1)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    all_models = {"bytes": bpe(alphabet, False, 330, unk_token=None), "pieces": bpe([], False, 110), "pieces_bytes": bpe([], True, 366, byte_fallback=True, unk_token=None),
                  "unigram": unigram(False), "unigram_bytes": unigram(True)}
    all_models["bytes_whole"] = dict(all_models["bytes"], ignore_merges=True)
    all_models["pieces_fused"] = dict(all_models["pieces"], fuse_unk=True)
    out = []
    for name, model, normalizer, pre_tokenizer, decoder, tokens, around in cases():
        bare = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
                "post_processor": None, "decoder": None, "model": all_models[model]}
        tokenizer = Tokenizer.from_str(json.dumps(bare))
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        if pre_tokenizer is not None:
            tokenizer.pre_tokenizer = pre_tokenizer
        if decoder is not None:
            tokenizer.decoder = decoder
        for token in tokens:
            (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
        if around:
            text = " ".join(filter(None, [around[0], "$A", around[1]]))
            tokenizer.post_processor = processors.TemplateProcessing(
                single=text, special_tokens=[(t, tokenizer.token_to_id(t)) for t in around if t])
        rest = json.loads(tokenizer.to_str())
        del rest["model"]
        tokenizer = Tokenizer.from_str(json.dumps(dict(rest, model=all_models[model])))
        encoded, plain = [], []
        for text in TEXTS:
            tokenizer.encode_special_tokens = False
            encoded.append(tokenizer.encode(text).ids)
            tokenizer.encode_special_tokens = True
            plain.append(tokenizer.encode(text, add_special_tokens=False).ids)
        decoded = [[tokenizer.decode(ids, skip_special_tokens=skip) for ids in encoded] for skip in (False, True)]
        case = {"name": name, "model": model, "parts": {k: v for k, v in rest.items() if v}, "ids": encoded, "plain_ids": plain}
        # An added token that is normalised: 0.23 decodes its normal form, older versions (and we) what the file spells.
        if name != "added normalized":
            case.update(text=decoded[0], text_without_special=decoded[1])
        out.append(case)
    with open(path, "w", encoding="utf-8") as file:
        # One line a model and a case, so that changes can be read.
        def lines(items):
            return ",\n".join(items)
        dump = lambda value: json.dumps(value, separators=(",", ":"))
        file.write('{"texts":' + dump(TEXTS) + ',\n"models":{\n' + lines(f"{dump(k)}:{dump(v)}" for k, v in all_models.items())
                   + '},\n"cases":[\n' + lines(dump(case) for case in out) + "]}\n")


if __name__ == "__main__":
    main(sys.argv[1])
