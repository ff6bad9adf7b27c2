#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""reference_test.py KVATLAS FOLDER: the man page and the completions in FOLDER hold every command and every
option that --help shows; bash, and where they are installed zsh, fish, man and mandoc, read them."""
import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM, FOLDER = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
FILES = {"man": "kvatlas.1", "bash": "kvatlas", "zsh": "_kvatlas", "fish": "kvatlas.fish"}


def run(*words: str | Path, **more) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, **more)


def helped(words: tuple[str, ...] = ()) -> dict[tuple[str, ...], set[str]]:
    """The options of a command and of those below it, as --help or, where there is one, --help-all shows them."""
    text = run(PROGRAM, *words, "--help", check=True).stdout
    if "--help-all" in text:
        text = run(PROGRAM, *words, "--help-all", check=True).stdout
    text = text.split("\nExamples:")[0]
    options = {name for line in re.findall(r"^  (-\S+)", text, re.M) for name in line.split(",")}
    below = re.search(r"^Subcommands:\n((?:  .*\n)+)", text, re.M)
    out = {words: options}
    for name in re.findall(r"^  (\w[\w-]*)", below.group(1), re.M) if below else ():
        out |= helped((*words, name))
    return out


def completed(*words: str, folder: Path | None = None) -> list[str]:
    """What bash offers for the last word."""
    script = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _kvatlas; printf "%s\\n" "${COMPREPLY[@]}"'
    return run("bash", "-c", script, "bash", FOLDER / FILES["bash"], *words, check=True, cwd=folder).stdout.split()


class Reference(unittest.TestCase):
    def test_every_command_and_option_is_in_all(self) -> None:
        commands = helped()
        self.assertGreater(len(commands), 15)
        text = {kind: (FOLDER / name).read_text() for kind, name in FILES.items()}
        man = text["man"].replace("\\-", "-").replace("\\fB", "").replace("\\fR", "")
        for words, options in commands.items():
            command = " ".join(("kvatlas", *words))
            self.assertTrue(options or words == (), command)
            if words:
                self.assertIn(f"\n.SS {command}\n", man)
            of_man = man.partition(f".SS {command}\n" if words else ".SH OPTIONS\n")[2].partition("\n.S")[0]
            of_zsh = text["zsh"].partition(f"\n_{command.replace(' ', '_')}() {{")[2].partition("\n}\n")[0]
            of_fish = [line for line in text["fish"].splitlines() if f'= "{command}"' in line]
            of_bash = completed("kvatlas", *words, "-")
            for option in options:
                with self.subTest(command=command, option=option):
                    self.assertRegex(of_man, rf"(?m)^(.*, )?{option}[, \n]")
                    self.assertIn(option, of_bash)
                    self.assertRegex(of_zsh, rf"[)*']{option}[=+\[]")
                    word = f" -l {option[2:]} " if option.startswith("--") else f" -s {option[1:]} "
                    self.assertTrue(any(word in line + " " for line in of_fish))

    def test_no_list_swallows_the_words_behind_it(self) -> None:
        """A word that nothing takes is named, whatever else is wrong: an option that took it would hide it."""
        lists = 0
        def look_at(command: dict) -> None:
            nonlocal lists
            for part in command["commands"]:
                look_at(part)
            positionals = [option for option in command["options"] if not option["names"]]
            if command["commands"] or any(option["repeats"] for option in positionals):
                return
            for option in command["options"]:
                if option["names"] and (option["repeats"] or option["with_commas"]):
                    lists += 1
                    words = [*command["name"].split()[1:], option["names"][-1], "1", *("w" for _ in positionals), "surplus"]
                    with self.subTest(command=" ".join(words)):
                        self.assertIn("'surplus' is not expected here", run(PROGRAM, *words).stderr)
        look_at(json.loads(run(PROGRAM, "reference", "json", check=True).stdout))
        self.assertGreater(lists, 50)

    def test_bash_completes(self) -> None:
        self.assertEqual(completed("kvatlas", "prof"), ["profile"])
        self.assertIn("simlayerkv", completed("kvatlas", "calibrate", ""))
        self.assertEqual(completed("kvatlas", "calibrate", "simlayerkv", "--ident"), ["--identify"])
        self.assertEqual(completed("kvatlas", "calibrate", "simlayerkv", "--identify", "d"), ["decode"])
        self.assertEqual(completed("kvatlas", "calibrate", "simlayerkv", "--identify", "=", "pre"), ["prefill"])
        self.assertEqual(completed("kvatlas", "calibrate", "simlayerkv", "--identify", "="), ["decode", "prefill"])
        self.assertIn("vllm", completed("kvatlas", "export", "policy.json", "--to", ""))
        self.assertEqual(completed("kvatlas", "export", "--to", "vllm,sgl"), ["vllm,sglang"])
        self.assertEqual(completed("kvatlas", "import", "head"), ["headkv"])
        self.assertEqual(completed("kvatlas", "reference", "z"), ["zsh"])
        self.assertEqual(completed("kvatlas", "render", "--what", "lazy-l"), ["lazy-layers"])

    def test_bash_completes_files(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for file in ("policy.json", "p.h5", "pod.h5"):
                (folder / file).touch()
            self.assertEqual(completed("kvatlas", "inspect", "po", folder=folder), ["pod.h5", "policy.json"])
            self.assertEqual(completed("kvatlas", "calibrate", "pod", "-p", "pod", folder=folder), ["pod.h5"])
            self.assertEqual(completed("kvatlas", "import", "headkv", "po", folder=folder), ["pod.h5", "policy.json"])
            self.assertEqual(completed("kvatlas", "tasks", "po", folder=folder), [])
            self.assertEqual(completed("kvatlas", "profile", "--lengths", "po", folder=folder), [])

    def test_fish_completes(self) -> None:
        if not shutil.which("fish"):
            self.skipTest("fish is not installed")
        for line, expected in (("kvatlas calib", ["calibrate"]), ("kvatlas export --to vllm,sgl", ["vllm,sglang"]),
                               ("kvatlas calibrate simlayerkv --identify d", ["decode"])):
            done = run("fish", "-c", f"source '{FOLDER / FILES['fish']}'; complete -C '{line}'", check=True)
            self.assertEqual([word.split("\t")[0] for word in done.stdout.splitlines()], expected)

    def test_shells_and_man_read_them(self) -> None:
        files = {kind: FOLDER / name for kind, name in FILES.items()}
        readers = {"bash": ("bash", "-n", files["bash"]), "zsh": ("zsh", "-n", files["zsh"]),
                   "fish": ("fish", "--no-execute", files["fish"]),
                   "man": ("man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", files["man"]),
                   "mandoc": ("mandoc", "-T", "lint", "-W", "warning", files["man"]),
                   "shellcheck": ("shellcheck", "--severity", "warning", files["bash"])}
        for name, words in readers.items():
            if shutil.which(name):
                with self.subTest(reader=name):
                    done = run(*words)
                    said = done.stderr + (done.stdout if name in ("mandoc", "shellcheck") else "")
                    problems = [line for line in said.splitlines() if "missing date" not in line]  # it has none
                    self.assertEqual(problems, [])
                    self.assertTrue(done.returncode == 0 or said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
