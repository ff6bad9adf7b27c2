#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`kvatlas check --endpoint` beside two little servers on this machine that speak as vLLM does, honest or hostile:
served.py KVATLAS. No model runs. Each case says what it wants; the first that does not hold ends the test."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as xml
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))
import tiny_checkpoint  # noqa: E402

PROGRAM = Path(sys.argv[1]).resolve()
FOLDER = Path(tempfile.mkdtemp(prefix="kvatlas-served-"))
QUESTIONS = 80


def right(prompt: list[int]) -> str:
    return f" The code is {prompt[0] * 7919}."


class Server:
    """One server. `say(number, prompt)` gives the answer to the request of that number: a text, or a function that is
    handed the connection."""

    def __init__(self, say, port: int = 0):
        self.say, self.asked, self.lock = say, 0, threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def whole(self, status: int, body: str, kind: str = "application/json", **headers):
                self.send_response(status)
                for name, value in {"Content-Type": kind, "Content-Length": len(body.encode()), **headers}.items():
                    self.send_header(name, str(value))
                self.end_headers()
                self.wfile.write(body.encode())

            def do_GET(self):
                if self.path == "/v1/models":
                    self.whole(200, json.dumps({"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 65536}]}))
                elif self.path == "/version":
                    self.whole(200, '{"version": "0.33.0"}')
                else:
                    self.whole(404, "{}")

            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with server.lock:
                    server.asked += 1
                    number = server.asked
                said = server.say(number, request.get("prompt", request))
                try:
                    if callable(said):
                        said(self)
                        self.close_connection = True
                    else:
                        self.whole(200, answer(request["prompt"], said), "text/event-stream")
                except OSError:
                    self.close_connection = True

        self.http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.http.daemon_threads = True
        self.port = self.http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self):
        self.http.shutdown()
        self.http.server_close()


def answer(prompt: list[int], text: str) -> str:
    """As vLLM streams it, one token a word."""
    words = text.split(" ")[1:]
    events = [{"choices": [{"text": f" {word}", "token_ids": [sum(map(ord, word))], "finish_reason": None}]} for word in words]
    events.append({"choices": [{"text": "", "finish_reason": "stop"}]})
    events.append({"choices": [], "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(words)}})
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"


def status(code: int, **headers):
    return lambda handler: handler.whole(code, '{"error": {"message": "not now"}}', **headers)


def torn(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\ndata: {")
    handler.connection.close()


def stalls(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: wait\n\n")
    time.sleep(60)


def floods(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    while True:
        handler.wfile.write((b": " + b"x" * 1021 + b"\n") * 64)


def check(full: Server, judged: Server, *options, environment=None) -> subprocess.Popen:
    words = [PROGRAM, "check", "--endpoint", judged.url, "--full", full.url, "--prompts", FOLDER / "qa.jsonl",
             "--max-loss", "10", "--top", "0", "--control", "10", "--concurrency", "2", *options]
    return subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=os.environ | (environment or {}))


def ends(process: subprocess.Popen, code: int, *said: str) -> str:
    out, error = process.communicate(timeout=120)
    for words in (f"exit {code}", *said):
        if words not in f"exit {process.returncode}\n{out}{error}":
            sys.exit(f"served: wanted {words!r}, found exit {process.returncode}\n{out}{error}")
    last = (error.strip().splitlines() or [""])[-1]
    if code not in (0, 4) and not last.startswith("kvatlas: "):
        sys.exit(f"served: the last line is no sentence of kvatlas: {last}")
    return out


def verdicts(full: Server) -> None:
    """Passed, failed and undecided, in words, as JSON and as JUnit."""
    same = Server(lambda _, prompt: right(prompt))
    out = ends(check(full, same), 0, "passed: vLLM 0.33.0 at ", "answers: ", "did a compression run: not seen")
    assert "control: asked again, the full server gives 0 of 10 answers otherwise" in out, out
    # It went on only until it was sure.
    assert same.asked < QUESTIONS, same.asked
    worse = Server(lambda _, prompt: right(prompt) if prompt[0] % 2 else " I do not know.")
    junit = FOLDER / "verdict.xml"
    said = json.loads(ends(check(full, worse, "--json", "--junit", junit), 4))
    assert said["verdict"] == "failed" and said["served"]["compression"]["verdict"] == "seen", said
    assert 0 < said["served"]["agreement"]["mean_at_least"] < 1, said
    assert xml.parse(junit).getroot().get("failures") == "1"
    near = Server(lambda _, prompt: right(prompt) if prompt[0] % 9 else " I do not know.")
    ends(check(full, near), 4, "undecided: vLLM")
    asked = same.asked
    ends(check(full, same, "--dry-run"), 0, "requests for 80 prompts", "tokens of prompts")
    assert same.asked == asked, "a dry run asks nothing"


def failures(full: Server) -> None:
    """One-sided ones count; what may pass is tried again; what does not pass ends the run in a sentence."""
    busy = Server(lambda number, prompt: status(503, **{"Retry-After": 0}) if number % 3 == 0 else right(prompt))
    ends(check(full, busy), 0, "passed")
    odd = Server(lambda _, prompt: status(400) if prompt[0] % 2 else right(prompt))
    ends(check(full, odd), 4, "failed on the judged server alone, and score 0 there")
    ends(check(odd, full), 0, "failed on the full server alone, and are left out")
    for say, said in ((stalls, "no whole answer within"), (floods, "more than 64 MiB"), (status(404), "status 404"),
                      (status(307, Location="http://127.0.0.1:1/"), "redirect"),
                      (lambda handler: handler.whole(200, "data: {}\n\n"), "ends in its middle"),
                      (lambda handler: handler.whole(200, answer([1], " a")), "another prompt than was sent")):
        junit = FOLDER / "failed.xml"
        code = 2 if "404" in said else 1
        seconds = 2 if say is stalls else 90
        ends(check(full, Server(lambda *_, say=say: say), "--timeout", seconds, "--junit", junit), code, said)
        assert xml.parse(junit).getroot().get("errors") == "1"


def comes_back(full: Server) -> None:
    """A server that dies in the middle of a run, and is there again: the same command goes on."""
    journal = FOLDER / "answers.jsonl"
    dying = Server(lambda number, prompt: right(prompt) if number <= 12 else torn)
    process = check(full, dying, "--journal", journal)
    while dying.asked <= 12:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    ends(process, 130)
    dying.stop()
    kept = len(journal.read_text().splitlines())
    assert kept > 12, kept
    back = Server(lambda _, prompt: right(prompt), dying.port)
    before = full.asked
    ends(check(full, back, "--journal", journal), 0, "answers are there already", "passed")
    assert back.asked < 60 and full.asked - before < 60, (back.asked, full.asked - before)
    # Without a new request, once all is there; and not for another run.
    before = full.asked
    ends(check(full, back, "--journal", journal), 0, "passed")
    assert full.asked == before, "all answers were there"
    ends(check(full, back, "--journal", journal, "--chat", "chatml", "--prefix-cache", "use"), 2, "name another --journal")
    # A last line that was cut short is asked again.
    text = journal.read_text()
    journal.write_text(text[: len(text) - 20])
    ends(check(full, back, "--journal", journal), 0, "passed")


def keys(full: Server) -> None:
    same = Server(lambda _, prompt: right(prompt))
    secret = {"KVATLAS_API_KEY": "sk-secret", "KVATLAS_AGAINST_API_KEY": "sk-other"}
    process = check(full, same, environment=secret)
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0 and "sk-" not in out + error, out + error
    far = [PROGRAM, "check", "--endpoint", "http://host.invalid", "--full", full.url, "--prompts", FOLDER / "qa.jsonl"]
    done = subprocess.run(far, capture_output=True, text=True, check=False, env=os.environ | secret)
    assert done.returncode == 2 and "--key-over-http" in done.stderr, done.stderr


TOOL_TEMPLATE = ("{%- if tools %}{{ '<tools>\\n' }}{% for tool in tools %}{{ tool | tojson ~ '\\n' }}{% endfor %}"
                 "{{ '</tools>\\n' }}{% endif %}{%- for m in messages %}{{ m.role ~ ': ' ~ m.content ~ '\\n' }}"
                 "{%- for call in m.tool_calls %}{{ '<tool_call>' ~ call.function | tojson ~ '</tool_call>\\n' }}"
                 "{% endfor %}{% endfor %}{{ 'assistant: ' }}")


def wanted(functions: list[dict], said: str) -> tuple[str, dict]:
    """The call that the task asks for, found as a model would: in the list, the question, and the note."""
    verb, matter = re.findall(r"Now (\w+) the (\w+), with all", said)[-1]
    function = next(one for one in functions if one["description"] == f"{verb.capitalize()}s one {matter}.")
    note = re.search(rf"Note on the {matter}: (.*?)\.", said)[1]
    values = dict(part.split(" ", 1) for part in note.split(", "))
    arguments = {}
    for name, schema in function["parameters"]["properties"].items():
        value = values[schema["description"].rsplit(" ", 1)[1]]
        arguments[name] = int(value) if schema["type"] == "integer" else value
    return function["name"], arguments


def functions_of(lines: list[str]) -> list[dict]:
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [one.get("function", one) for one in found]


def calls_text(broken: bool):
    """Answers with the call in the text, as a whole prompt was sent; a broken server loses the arguments."""
    def say(_, prompt: str):
        name, arguments = wanted(functions_of(prompt.splitlines()), prompt)
        call = json.dumps({"name": name, "arguments": {} if broken else arguments})
        return f" <tool_call>{call}</tool_call>" if "<tools>" in prompt else f" {call}\n\nResult: done"
    return say


def calls_chat(broken: bool):
    """Answers as a chat does whose server has read the call, in pieces."""
    def say(_, request: dict):
        said = "\n".join(message["content"] for message in request["messages"])
        name, arguments = wanted([tool["function"] for tool in request["tools"]], said)
        text = "" if broken else json.dumps(arguments)
        pieces = [{"index": 0, "id": "1", "function": {"name": name, "arguments": text[:5]}},
                  {"index": 0, "function": {"arguments": text[5:]}}]
        events = [{"choices": [{"delta": {"tool_calls": [piece]}, "finish_reason": None}]} for piece in pieces]
        events += [{"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
                   {"choices": [], "usage": {"prompt_tokens": len(said), "completion_tokens": 9}}]
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        return lambda handler: handler.whole(200, body, "text/event-stream")
    return say


def calls(_: Server) -> None:
    """Calls of functions: as text, by the model's template, in chats, and of a transcript; and `evaluate` of them."""
    tokenizer = FOLDER / "tokenizer"
    tokenizer.mkdir()
    (tokenizer / "tokenizer.json").write_text(json.dumps(tiny_checkpoint.tokenizer()))
    (tokenizer / "tokenizer_config.json").write_text(json.dumps({"chat_template": TOOL_TEMPLATE}))
    made = ["--tokenizer", tokenizer, "--task", "tools:functions=6", "--lengths", "8000", "--depths", "0.5", "--seeds", "20"]

    def ask(command: str, full: Server, judged: Server, *options) -> subprocess.Popen:
        words = [PROGRAM, command, "--endpoint", judged.url, "--full", full.url, "--top", "0", "--control", "5", *options]
        return subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    prompts = []

    def kept(say):
        def keep(number, prompt):
            prompts.append(prompt)
            return say(number, prompt)
        return keep

    full, empty = Server(kept(calls_text(False))), Server(calls_text(True))
    same = Server(calls_text(False))
    as_text = ["--server", "openai", *made, "--max-loss", "20"]
    ends(ask("check", full, same, *as_text), 0, "passed", "calls of functions: is a call 1.00", "arguments right 1.00")
    assert "Functions can be called." in prompts[0] and prompts[0].endswith("\n\nCall:"), prompts[0]
    ends(ask("check", full, empty, *as_text), 4, "FAILED", "right function 1.00", "arguments right 0.00")
    prompts.clear()
    ends(ask("check", full, same, *as_text, "--chat", "auto"), 0, "passed")
    assert prompts[0].startswith("<tools>\n{") and '<tool_call>{"name": "read_page", "arguments": {"page": 1}}' in prompts[0]
    assert prompts[0].endswith("assistant: ") and "Functions can be called." not in prompts[0], prompts[0]
    chat, chat_empty = Server(calls_chat(False)), Server(calls_chat(True))
    in_chats = ["--api", "chat", *made]
    said = json.loads(ends(ask("check", chat, chat_empty, *in_chats, "--max-loss", "20", "--json"), 4))
    assert said["served"]["calls"]["endpoint"]["arguments"]["mean"] == 0, said["served"]
    assert said["served"]["calls"]["full"]["arguments"]["mean"] == 1, said["served"]
    out = ends(ask("evaluate", chat, chat_empty, *in_chats), 0, "Calls of functions, part by part", "did a compression run")
    assert "server" in out and "KV saved" not in out and "50.0" in out, out
    said = json.loads(ends(ask("evaluate", chat, chat_empty, *in_chats, "--json"), 0))
    assert said["policies"][1]["score"]["mean"] == 0.5 and said["policies"][1]["calls"]["name"]["mean"] == 1, said
    assert said["policies"][1]["loss"]["mean"] == 0.5 and said["served"]["pairs"] == 20, said
    # A transcript, which `tasks` writes as one.
    lines = [subprocess.run([PROGRAM, "tasks", "--task", "tools:turns=2", "--turn", "2", "--length", "900", "--seed", str(seed)],
                            check=True, capture_output=True, text=True).stdout for seed in range(8)]
    (FOLDER / "calls.jsonl").write_text("".join(lines))
    own = ["--server", "openai", "--prompts", FOLDER / "calls.jsonl"]
    ends(ask("evaluate", full, empty, *own), 0, "8 prompts", "right function")
    (FOLDER / "calls.jsonl").write_text('{"messages": [{"role": "user", "content": "U"}], "tools": [{"name": "f"}]}\n')
    ends(ask("evaluate", full, empty, *own), 3, "calls.jsonl:1: no message of the assistant calls a function")


def main() -> None:
    lines = [{"id": f"q{i}", "tokens": [i, 11, 12, 13], "answers": [str(i * 7919)], "max_new_tokens": 16}
             for i in range(1, QUESTIONS + 1)]
    (FOLDER / "qa.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    full = Server(lambda _, prompt: right(prompt))
    for case in (verdicts, failures, comes_back, keys, calls):
        case(full)
        print(f"served: {case.__name__} held", flush=True)


if __name__ == "__main__":
    main()
