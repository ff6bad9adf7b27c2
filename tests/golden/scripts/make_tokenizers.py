# SPDX-License-Identifier: Apache-2.0
"""Expected token ids and pre-tokeniser splits: python make_tokenizers.py SMOLLM_DIR MISTRAL_SP_MODEL OUT.json"""

import json, sys
import sentencepiece as spm
from tokenizers import Regex, pre_tokenizers
from transformers import AutoTokenizer

S = [
    "Hello, world!",
    "  leading and   inner   spaces ",
    "line one\nline two\r\n\r\n\ttabbed",
    "don't we'll I'VE it's",
    "3.14159 1234567890 0x7fff 1,000,000",
    "naïve café – “quotes” … €100",
    "你好，世界！这是一个测试。",
    "日本語のテキスト と カタカナ",
    "Привет, мир! Как дела?",
    "مرحبا بالعالم",
    "हिन्दी भाषा",
    "👩‍👩‍👧‍👦 🏳️‍🌈 emoji 🚀🚀",
    "def f(x):\n    return x**2  # square\n\n\nclass A:\n\tpass\n",
    "<|im_start|>user\nhi<|im_end|>\n",
    "a" * 50,
    " ",
    "\n",
    "",
    "e\u0301 vs \u00e9",
    "ﬁne ＡＢＣ",
    "snake_case camelCase HTTPServer2",
    "\u00a0nbsp\u2003em",
    "x\u0000y",
]
P = {
    "gpt2": r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""",
    "llama3": r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
    "qwen2": r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
}
tok = AutoTokenizer.from_pretrained(sys.argv[1])
sp = spm.SentencePieceProcessor(model_file=sys.argv[2])
out = dict(
    note="ids: no special tokens added at the ends; special tokens written in the text count as one token in smollm2 and as plain text in mistral_v3",
    strings=S,
    smollm2=[tok(s, add_special_tokens=False)["input_ids"] for s in S],
    smollm2_decoded=[
        tok.decode(
            tok(s, add_special_tokens=False)["input_ids"], skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        for s in S
    ],
    mistral_v3_model="mistral_instruct_tokenizer_240323.model.v3 of the PyPI package mistral-common",
    mistral_v3=[sp.encode(s) for s in S],
    splits={
        k: [[a for a, _ in pre_tokenizers.Split(Regex(p), "isolated").pre_tokenize_str(s)] for s in S]
        for k, p in P.items()
    },
    patterns=P,
    chat_smollm2=tok.apply_chat_template(
        [{"role": "user", "content": "What is the pass key?"}], add_generation_prompt=True, tokenize=False
    ),
)
json.dump(out, open(sys.argv[3], "w"), ensure_ascii=True, indent=0)
