#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/unit/data/metric_cases.json: what other implementations score pairs of texts. ROUGE-L is that of the
package rouge 1.0.1, the edit similarity that of fuzzywuzzy 0.18.0 on Python's difflib (python-Levenshtein, which
computes something else, must not be installed). LongBench's rules around them, and SQuAD's F1, are stated here once
more with Python's own Unicode tables. Chinese is taken by character.
Run: make_metric_cases.py OUTPUT"""
import collections
import importlib.metadata
import json
import random
import re
import string
import sys

from fuzzywuzzy import fuzz
from rouge import Rouge

sys.setrecursionlimit(100_000)  # rouge recurses once a word
CHINESE_PUNCTUATION = set("！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃》「」『』【】〔〕〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏")


def words(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def characters(text):
    left_out = CHINESE_PUNCTUATION | set(string.punctuation)
    return [c for c in text.lower() if c not in left_out and not c.isspace()]


def f1(said, right):
    common = sum((collections.Counter(said) & collections.Counter(right)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(said), common / len(right)
    return 2 * precision * recall / (precision + recall)


def rouge_l(said, right):
    try:
        return Rouge().get_scores([said], [right], avg=True)["rouge-l"]["f"]
    except ValueError:  # one of them has no sentence
        return 0.0


def spaced(text):
    """Each character a word; the sentences stay."""
    return ".".join(" ".join(sentence) for sentence in text.split("."))


def numbers_right(said, right):
    numbers, right = re.findall(r"\d+", said), re.findall(r"\d+", right)
    return numbers.count(right[0]) / len(numbers) if numbers and right else 0.0


def code_line(said):
    lines = said.lstrip("\n").split("\n")
    return next((line for line in lines if not any(mark in line for mark in ("`", "#", "//"))), "")


def classification(said, right, classes):
    named = [name for name in classes if name in said]
    for name in named:  # LongBench changes the list while it goes through it
        if name in right and name != right:
            named.remove(name)
    return 1 / len(named) if right in named else 0.0


def of_vocabulary(rng, vocabulary, count, joint=" "):
    return joint.join(rng.choice(vocabulary) for _ in range(count))


def pairs():
    yield from [
        ("", ""), ("", "yes"), ("yes", ""), ("yes", "yes"), ("Yes.", "yes"), ("no", "yes"), (".", "."), (" . ", "a. b"),
        ("the", "a"), ("the a an", "The"), ("!!!", "???"), ("   \n\t ", "x"), ("x", "   "),
        ("Paris", "The city of Paris, France"), ("The capital is paris!", "Paris"),
        ("It was the best of times, it was the worst of times.", "It was the worst of times; it was the best of times."),
        ("the cat sat on the mat", "on the mat sat the cat. The dog slept."),
        ("one two. three four. one", "one four. two three. three two one"),
        ("well-known U.S.A. state-of-the-art", "well known USA state of the art"),
        ("“The” answer — naïve café", "answer naive cafe"), ("ÉCOLE ΑΘΗΝΑ МОСКВА ＡＢＣ", "école αθηνα москва ａｂｃ"),
        ("a\u00a0thin\u2003space\u3000wide", "thin space wide"), ("can't won't", "cant wont"), ("don't the_a", "dont thea"),
        ("42", "42"), ("There are 17 or 18, no, 17 paragraphs.", "17"), ("Paragraph 3", "Paragraph 3"),
        ("Paragraph 13 and paragraph 3", "Paragraph 3"), ("段落12", "段落12"), ("答案是段落２。", "段落2"), ("007", "7"),
        ("今天天气很好，我们去公园。", "今天天气不好，我们不去公园。"), ("北京大学", "北京的大学"), ("“你好”，他说……", "他说：你好！"),
        ("2023年GDP增长了5.2%", "GDP在2023年增长5.2%左右"), ("会议讨论了三个问题。第一，预算。第二，人事。", "本次会议讨论预算、人事和时间三个问题。"),
        ("完成. 然后 结束.", "然后. 完成"), ("混合 English 和 中文 text", "English text 中文"), ("😀 smile 😀", "smile 😀"),
        ("\n\n# comment\n    return x + y\n", "    return x + y"), ("```python\nfoo(bar)\n```", "foo(baz)"),
        ("// a\n/* b */ int i = 0;\nnext", "int i = 1;"), ("`only`\n#comments\n//here", "x"), ("\nfoo\r\nbar", "foo"),
        ("for (int i = 0; i < n; ++i) {", "for (size_t j = 0; j < size; j++) {"), ("qabxcd", "abycdf"), ("private Thread currentThread;", "private volatile Thread currentThread;"),
    ]
    rng = random.Random(6)
    for count_a, count_b, vocabulary in [(12, 10, "a b c d"), (40, 30, "red green blue. black white"), (300, 120, "one two three. four five six seven eight."),
                                         (25, 60, "x. y. z."), (90, 400, "lorem ipsum dolor sit amet, consectetur. The elit")]:
        yield of_vocabulary(rng, vocabulary.split(), count_a), of_vocabulary(rng, vocabulary.split(), count_b)
    for count_a, count_b, letters in [(30, 30, "ab"), (60, 45, "abc "), (150, 210, "abcdefgh ()"), (230, 199, "abcde"), (260, 320, string.ascii_letters + " " * 30),
                                      (80, 90, "的一是在不了有和人。，")]:
        yield of_vocabulary(rng, letters, count_a, ""), of_vocabulary(rng, letters, count_b, "")
    line = "result = some_function(first_argument, second_argument=42, third_argument='text') + " * 4  # over 200 characters
    yield line.replace("second", "2nd").replace("some", "any"), line


def choices():
    trec = ["Food", "Date", "Order, rank", "Number of something", "Number", "Person", "Title of a person", "Other number", "Other location", "Location"]
    for said, right in [("Food", "Food"), ("Food or Date", "Date"), ("Number of something", "Number of something"), ("Number", "Number of something"),
                        ("Other number", "Other number"), ("none of them", "Food"), ("", "Food"), ("Title of a person", "Person"), ("food", "Food"),
                        ("Other location", "Other location"), ("Location", "Location"), ("Food Date Person", "Person")]:
        yield said, right, trec
    yield "abc ab a", "abc", ["a", "ab", "abc"]  # "ab" is passed over
    yield "abc ab a", "abc", ["abc", "a", "ab", "b"]
    yield "a", "ab", ["a"]
    yield "体育新闻", "体育", ["体育", "新闻", "财经"]


def main():
    cases = [{"generated": a, "answer": b,
              "f1": f1(words(a), words(b)), "f1_by_character": f1(characters(a), characters(b)),
              "exact": float(words(a) == words(b)),
              "rouge_l": rouge_l(a, b), "rouge_l_by_character": rouge_l(spaced(a), spaced(b)),
              "numbers": numbers_right(a, b), "edit_similarity": fuzz.ratio(a, b) / 100,
              "code": fuzz.ratio(code_line(a), b) / 100, "found": float(b.lower() in a.lower())} for a, b in pairs()]
    classified = [{"generated": a, "answer": b, "classes": classes, "score": classification(a, b, classes)}
                  for a, b, classes in choices()]
    made_by = "tests/support/make_metric_cases.py with " + ", ".join(
        [f"Python {sys.version.split()[0]}"] + [f"{name} {importlib.metadata.version(name)}" for name in ("rouge", "fuzzywuzzy")])
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        rows = lambda items: ",\n".join("  " + json.dumps(item, ensure_ascii=False) for item in items)
        out.write(f'{{"made_by": {json.dumps(made_by)},\n"cases": [\n{rows(cases)}\n],\n"classifications": [\n{rows(classified)}\n]}}\n')


main()
