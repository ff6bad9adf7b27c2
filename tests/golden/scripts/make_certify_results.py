#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Result files as the tools themselves write them: make_certify_results.py lm-eval|inspect-ai|kvpress FOLDER

Run it with a Python that has the tool (lm-eval 0.4.13, inspect-ai 0.3.285; for kvpress, pandas, whose to_csv its evaluate.py
calls on these columns). A made-up model answers sums; it fails more often with a "compressed" cache. Nothing is
downloaded. Members that no reader looks at, most of each file, are left out of what is kept."""
import json
import os
import sys
import types
from pathlib import Path

SIDES = {"full": 25, "kv4": 8}  # every so many answers are wrong
COUNT = 60
KEPT_OF_SAMPLES = {"doc_id", "doc", "filtered_resps", "filter", "metrics", "doc_hash", "prompt_hash", "exact_match"}


def questions():
    return [{"question": f"{i} + {2 * i + 1} =", "answer": str(3 * i + 1), "subject": f"set {i // 2}"} for i in range(COUNT)]


def answer_to(i: int, wrong: int) -> str:
    return str(3 * i + 2) if i % wrong == 3 else (f"It is {3 * i + 1}" if i % 15 == 1 else str(3 * i + 1))


def lm_eval_files(folder: Path) -> None:
    os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
    import lm_eval
    from lm_eval.api.model import LM
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    work = folder / "work"
    work.mkdir(parents=True)
    (work / "sums.jsonl").write_text("".join(json.dumps(one) + "\n" for one in questions()))
    (work / "sums.yaml").write_text(f"""task: sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: {(work / 'sums.jsonl').resolve()}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["\\n"]}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
filter_list:
  - {{name: strict, filter: [{{function: take_first}}]}}
  - {{name: number, filter: [{{function: regex, regex_pattern: '(\\d+)'}}, {{function: take_first}}]}}
""")

    class MadeUp(LM):
        def __init__(self, wrong):
            super().__init__()
            self.wrong = wrong

        def generate_until(self, requests, disable_tqdm=False):
            return [answer_to(int(one.args[0].split("+")[0]), self.wrong) for one in requests]

        def loglikelihood(self, requests, disable_tqdm=False):
            raise NotImplementedError

        loglikelihood_rolling = loglikelihood

    for side, wrong in SIDES.items():
        results = lm_eval.simple_evaluate(
            model=MadeUp(wrong), tasks=["sums"], log_samples=True, bootstrap_iters=0,
            task_manager=TaskManager(include_path=str(work), include_defaults=False))
        tracker = EvaluationTracker(output_path=str(work / side))
        samples = results.pop("samples")
        tracker.save_results_aggregated(results=results, samples=samples)
        tracker.save_results_samples(task_name="sums", samples=samples["sums"])
        date = "2026-11-28T12-00-00.000000"
        out = folder / "lm-eval" / side
        out.mkdir(parents=True, exist_ok=True)
        lines = next((work / side).rglob("samples_*")).read_text().splitlines()
        with open(out / f"samples_sums_{date}.jsonl", "w") as file:
            for line in lines:
                kept = {name: value for name, value in json.loads(line).items() if name in KEPT_OF_SAMPLES}
                file.write(json.dumps(kept, ensure_ascii=False) + "\n")
        total = json.loads(next((work / side).rglob("results_*")).read_text())
        kept = {name: total[name] for name in ("results", "n-samples", "higher_is_better", "n-shot", "versions")}
        (out / f"results_{date}.json").write_text(json.dumps(kept, indent=2) + "\n")


def inspect_ai_files(folder: Path) -> None:
    counter = types.ModuleType("tiktoken")  # it would be downloaded, to count tokens alone

    class Encoding:
        def encode(self, text, **_):
            return text.split()

    counter.Encoding = Encoding
    counter.get_encoding = counter.encoding_for_model = lambda _: Encoding()
    sys.modules["tiktoken"] = counter
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, get_model
    from inspect_ai.scorer import includes

    data = [Sample(id=i + 1, input=one["question"], target=one["answer"]) for i, one in enumerate(questions())]
    for side, wrong in SIDES.items():
        work = folder / "work" / side
        answers = [ModelOutput.from_content("mockllm/model", answer_to(i, wrong)) for _ in range(2) for i in range(COUNT)]
        eval(tasks=Task(dataset=data, scorer=includes(), name="sums", epochs=2), log_dir=str(work), log_format="json",
             model=get_model("mockllm/model", custom_outputs=answers), max_samples=1, max_connections=1, display="none")
        log = json.loads(next(work.glob("*.json")).read_text())
        out = folder / "inspect-ai" / side
        out.mkdir(parents=True, exist_ok=True)
        kept = {name: log[name] for name in ("version", "status", "results")}
        kept["eval"] = {name: log["eval"][name] for name in ("task", "model", "config")}
        kept["samples"] = [{name: sample[name] for name in ("id", "epoch", "input", "target", "scores")}
                           for sample in log["samples"]]
        (out / "sums.json").write_text(json.dumps(kept, indent=1) + "\n")


def kvpress_files(folder: Path) -> None:
    import numpy
    import pandas

    for side, wrong in SIDES.items():
        rows = []
        for i in range(COUNT):
            task = "niah_multivalue" if i % 2 else "qa_1"
            values = [f"value {i}-{k} of a rather long list" for k in range(4)]
            said = "none" if i % wrong == 3 else ("I found: " + ", ".join(values[: 4 if i % 2 else 1]))
            rows.append({"context": "text", "question": f"What are the values of {i}?\n", "task": task,
                         "answer_prefix": " Answer:", "answer": numpy.array(values, dtype=object),
                         "max_new_tokens": 128, "predicted_answer": said, "compression_ratio": 0.0})
        frame = pandas.DataFrame(rows)
        out = folder / "kvpress" / side
        out.mkdir(parents=True, exist_ok=True)
        frame[[name for name in frame.columns if name != "context"]].to_csv(out / "predictions.csv", index=False)
        scores = {}
        for task in ("niah_multivalue", "qa_1"):
            of_task = [(row["predicted_answer"].lower(), row["answer"]) for row in rows if row["task"] == task]
            found = [[value.lower() in said for value in answer] for said, answer in of_task]
            mean = numpy.mean([any(one) if task == "qa_1" else sum(one) / len(one) for one in found])
            scores[task] = {"string_match": round(100 * float(mean), 2)}
        (out / "metrics.json").write_text(json.dumps(scores, indent=2) + "\n")
        (out / "config.yaml").write_text(
            f"dataset: ruler\ndata_dir: '4096'\nmodel: made-up\npress_name: {side}\nfraction: 1.0\nseed: 42\n")


if __name__ == "__main__":
    {"lm-eval": lm_eval_files, "inspect-ai": inspect_ai_files, "kvpress": kvpress_files}[sys.argv[1]](Path(sys.argv[2]))
