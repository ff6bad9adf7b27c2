#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Which small mistakes in kernels' references, rules and byte counts no test notices:
tests/mutants.py BUILD [SOURCE …]

Each source is compiled once with all its mistakes inside (mutants.hpp says how), and linked before the libraries into
the test programs of BUILD; the environment says which mistake a run makes. A mistake is killed when a test that runs it
fails, crashes or takes ten times as long. Survivors that compile to the same code as the original are left out.
Needs Debian's python3-clang-14; no packaged tool fits: mull and dextool are not in Debian 12, and universalmutator
compiles the headers anew for every mutant.
"""

import json
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from clang.cindex import Cursor, CursorKind as Kind, Index, TypeKind

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = {"kernels": ("unit_kernels", "golden_kernels"),
            "calibrate": ("unit_rules", "golden_rules", "unit_methods", "unit_inspect", "unit_viewer_models")}
SOURCES = ("kernels/*_ref.cpp", "kernels/layer_budgets.cpp", "kernels/lag_ratio.cpp", "kernels/top_counts.cpp",
           "calibrate/rules/*.cpp")
SWAPPED = {"<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"), "==": ("!=",), "!=": ("==",),
           "+": ("-",), "-": ("+",), "*": ("/",), "/": ("*",), "%": ("*",), "<<": (">>",), ">>": ("<<",),
           "&": ("|",), "|": ("&",), "^": ("|",), "&&": ("||",), "||": ("&&",), "++": ("--",), "--": ("++",),
           "+=": ("-=",), "-=": ("+=",), "*=": ("/=",), "/=": ("*=",), "^=": ("|=",), "|=": ("&=",), "&=": ("|=",)}
CALLS = {"min": "max", "max": "min", "floor": "ceil", "ceil": "floor", "fmin": "fmax", "fmax": "fmin",
         "any_of": "all_of", "all_of": "any_of", "max_element": "min_element", "min_element": "max_element"}
FUNCTIONS = (Kind.FUNCTION_DECL, Kind.CXX_METHOD, Kind.FUNCTION_TEMPLATE, Kind.CONSTRUCTOR, Kind.LAMBDA_EXPR)
HEADED = (Kind.IF_STMT, Kind.WHILE_STMT, Kind.FOR_STMT, Kind.CXX_FOR_RANGE_STMT)
OPERATORS = (Kind.CALL_EXPR, Kind.UNARY_OPERATOR, Kind.BINARY_OPERATOR, Kind.COMPOUND_ASSIGNMENT_OPERATOR)
DELETABLE = (*OPERATORS, Kind.BREAK_STMT, Kind.CONTINUE_STMT)


@dataclass
class Mutant:
    number: int
    source: str
    line: int
    change: str
    tests: dict = field(default_factory=dict)  # of each program, those that run it


class Rewriter:
    """Finds the mutants of a source and writes the source that has them all."""

    def __init__(self, source: Path, flags: list, first: int, refused: set):
        self.name, self.refused, self.next = str(source.relative_to(ROOT)), refused, first
        self.text = source.read_bytes().decode("latin-1")  # a character a byte, as clang counts
        blank = r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'|//[^\n]*'
        self.plain = re.sub(blank, lambda found: " " * len(found[0]), self.text)
        self.mutants: list = []
        self.opened: dict = {}  # by offset: what is written there, outer expressions first
        self.closed: dict = {}
        self.dropped: dict = {}  # by the offset of its beginning: the end of what is left out
        unit = Index.create().parse(str(source), flags)
        if errors := [str(error) for error in unit.diagnostics if error.severity > 2]:
            sys.exit(f"mutants: clang cannot read {source}: {errors[0]}")
        for cursor in unit.cursor.get_children():
            if cursor.location.file and cursor.location.file.name == str(source):
                self.visit(cursor, None)

    def mutants_at(self, cursor: Cursor, changes: list) -> list:
        """The numbers of the mutants that make these changes and compile, each with its change."""
        numbered = []
        for change, code in changes:
            if self.next not in self.refused:
                self.mutants.append(Mutant(self.next, self.name, cursor.extent.start.line, change))
                numbered.append((self.next, code))
            self.next += 1
        return numbered

    def around(self, begin: int, end: int, before: str, after: str) -> None:
        self.opened.setdefault(begin, []).append(before)
        self.closed.setdefault(end, []).insert(0, after)

    def replace(self, begin: int, end: int, text: str) -> None:
        self.opened.setdefault(begin, []).append(text)
        self.dropped[begin] = end

    def code(self, cursor: Cursor) -> str:
        return " ".join(self.text[cursor.extent.start.offset:cursor.extent.end.offset].split())

    def operator_of(self, cursor: Cursor) -> tuple:
        """The operator of an expression, where it stands, and the operands."""
        if cursor.kind == Kind.CALL_EXPR and not cursor.spelling.startswith("operator"):
            return "", 0, []
        parts = sorted(cursor.get_children(), key=lambda part: part.extent.start.offset)
        begin, end = cursor.extent.start.offset, cursor.extent.end.offset
        if cursor.kind == Kind.CALL_EXPR and len(parts) == 3:
            parts = [parts[0], parts[2]]
        elif cursor.kind == Kind.CALL_EXPR and len(parts) == 2:
            parts = [max(parts, key=lambda part: part.extent.end.offset - part.extent.start.offset)]
        if len(parts) == 2:
            at, to = parts[0].extent.end.offset, parts[1].extent.start.offset
        elif len(parts) == 1 and parts[0].extent.start.offset > begin:
            at, to = begin, parts[0].extent.start.offset
        elif len(parts) == 1:
            at, to = parts[0].extent.end.offset, end
        else:
            return "", 0, []
        found = self.plain[at:to].strip()
        return found, at + self.plain[at:to].find(found), parts

    def visit(self, cursor: Cursor, function: Cursor) -> None:
        if cursor.kind in FUNCTIONS:
            function = cursor
        if cursor.kind in OPERATORS:
            self.visit_operator(cursor)
        elif cursor.kind in (Kind.INTEGER_LITERAL, Kind.FLOATING_LITERAL) and self.code(cursor)[:1].isdigit():
            self.wrap(cursor, f"{self.code(cursor)} + 1", "mutants::constant({}, ", ")")
        elif cursor.kind == Kind.CXX_BOOL_LITERAL_EXPR and self.code(cursor) in ("true", "false"):
            self.negate(cursor)
        elif cursor.kind == Kind.CONDITIONAL_OPERATOR:
            self.negate(next(cursor.get_children()))
        elif cursor.kind in HEADED:
            self.visit_headed(cursor, function)
        elif cursor.kind == Kind.COMPOUND_STMT:
            for statement in cursor.get_children():
                self.visit_statement(statement, cursor, function)
        for child in cursor.get_children():
            self.visit(child, function)

    def wrap(self, cursor: Cursor, changed: str, before: str, after: str) -> bool:
        found = self.mutants_at(cursor, [(f"{self.code(cursor)} -> {changed}", "")])
        for number, _ in found:
            self.around(cursor.extent.start.offset, cursor.extent.end.offset,
                        f"\n/*M{number}*/ {before.format(number)}", after.format(number) + "\n")
        return bool(found)

    def negate(self, cursor: Cursor) -> None:
        """A truth that no operator makes, which has its own mutants, is turned round."""
        inner = cursor
        while inner.kind in (Kind.UNEXPOSED_EXPR, Kind.PAREN_EXPR) and len(list(inner.get_children())) == 1:
            inner = next(inner.get_children())
        if self.operator_of(inner)[0] not in ("<", "<=", ">", ">=", "==", "!=", "&&", "||", "!"):
            self.wrap(cursor, "its opposite", "(bool(", ") != mutants::is({}))")

    def visit_operator(self, cursor: Cursor) -> None:
        sign, at, parts = self.operator_of(cursor)
        begin, end = cursor.extent.start.offset, cursor.extent.end.offset
        if len(parts) == 1 and sign in ("!", "-"):
            if sign == "!":
                self.wrap(cursor, self.code(parts[0]), "((", ") != mutants::is({}))")
            elif self.wrap(cursor, self.code(parts[0]), "mutants::negative({}, ", ")"):
                self.replace(at, at + 1, "")
            return
        called = re.match(r"std::(\w+)", self.text[begin:end])
        if cursor.kind == Kind.CALL_EXPR and not sign and called and called[1] in CALLS:
            for number, _ in self.mutants_at(cursor, [(f"{self.code(cursor)} -> {CALLS[called[1]]}", "")]):
                self.replace(begin, begin + called.end(), f"\n/*M{number}*/ mutants::{called[1]}")
                self.replace((paren := self.text.index("(", begin)), paren + 1, f"({number}, ")
            return
        is_text = "basic_string" in cursor.type.get_canonical().spelling
        if sign not in SWAPPED or (len(parts) == 1) != (sign in ("++", "--")) or is_text:
            return
        found = self.mutants_at(cursor, [(f"{self.code(cursor)} -> {other}", other) for other in SWAPPED[sign]])
        if sign in ("&&", "||"):
            for part in parts:
                self.negate(part)
        if not found:
            return
        marks = "".join(f"/*M{number}*/ " for number, _ in found)
        first = f"mutants::is({found[0][0]})"
        if sign in ("&&", "||"):  # as De Morgan has it: !(!a && !b) is a || b
            self.around(begin, end, f"\n{marks}(((bool(", f") != {first})) != {first})\n")
            self.replace(at, at + 2, f") != {first}) {sign} (bool(")
        elif len(parts) == 1:
            helper = ("up" if sign == "++" else "down") + ("_after" if at > begin else "")
            self.around(begin, end, f"\n{marks}mutants::{helper}({found[0][0]}, ", ")\n")
            self.replace(at, at + 2, "")
        else:
            macro = "KVATLAS_ASSIGN" if sign.endswith("=") and len(sign) > 1 and sign not in ("<=", ">=", "==", "!=") \
                else "KVATLAS_OPERATOR"
            others = "".join(f",\n/*M{number}*/ {number}, {macro}({code})" for number, code in found)
            self.around(begin, end, f"\n{marks}mutants::pick(", f",\n{marks}{macro}({sign}){others})\n")
            self.replace(at, at + len(sign), ",")

    def visit_headed(self, cursor: Cursor, function: Cursor) -> None:
        """Negates the condition of an if or a loop, and looks at the statements that it heads."""
        opening = self.plain.index("(", cursor.extent.start.offset)
        depth, closing = 1, opening
        while depth:
            closing += 1
            depth += {"(": 1, ")": -1}.get(self.plain[closing], 0)
        parts = self.plain[opening + 1:closing].split(";")
        wanted = {Kind.FOR_STMT: 1, Kind.CXX_FOR_RANGE_STMT: -1}.get(cursor.kind, len(parts) - 1)
        start = opening + 1 + sum(len(part) + 1 for part in parts[:max(0, wanted)])
        for child in cursor.get_children():
            if child.extent.start.offset > closing:
                if child.kind != Kind.COMPOUND_STMT:
                    self.visit_statement(child, cursor, function)
            elif wanted >= 0 and child.kind not in (Kind.DECL_STMT, Kind.VAR_DECL):
                if self.plain[start:start + len(parts[wanted])].strip() == self.plain[
                        child.extent.start.offset:child.extent.end.offset]:
                    self.negate(child)

    def visit_statement(self, statement: Cursor, parent: Cursor, function: Cursor) -> None:
        """A statement without which the function still returns can be left out."""
        inner = statement
        while inner.kind == Kind.UNEXPOSED_EXPR and len(list(inner.get_children())) == 1:
            inner = next(inner.get_children())
        body = [child for child in function.get_children() if child.kind == Kind.COMPOUND_STMT][-1]
        last = list(body.get_children())[-1]
        if inner.kind == Kind.RETURN_STMT:
            returns_nothing = not list(inner.get_children())
            if parent == body or not (returns_nothing or last.kind == Kind.RETURN_STMT):
                return
        elif inner.kind not in DELETABLE or (
                statement == last and function.kind != Kind.LAMBDA_EXPR and function.result_type.kind != TypeKind.VOID
                and function.kind != Kind.CONSTRUCTOR):
            return
        begin, end = statement.extent.start.offset, self.plain.index(";", statement.extent.end.offset) + 1
        for number, _ in self.mutants_at(statement, [(f"{self.code(statement)}; -> left out", "")]):
            self.around(begin, end, f"\n/*M{number}*/ {{ if (!mutants::is({number})) ", " }")

    def written(self) -> str:
        out, at = [], 0
        while at <= len(self.text):
            out += self.closed.get(at, []) + self.opened.get(at, [])
            if at in self.dropped and self.dropped[at] > at:
                at = self.dropped[at]
                continue
            out.append(self.text[at:at + 1])
            at += 1
        return re.sub(r"\bconstexpr (?=[\w:]+ \w+ = )", "const ", "".join(out))


class Compiler:
    """Compiles and links as the build folder does."""

    def __init__(self, build: Path, folder: Path):
        self.build, self.folder = build, folder
        self.commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))

    def command_of(self, source: Path) -> list:
        """The compiler and its flags, also if the source is compiled together with others."""
        for entry in self.commands:
            joined = Path(entry["file"])
            if joined == source or (joined.suffix == ".cxx" and f'"{source}"' in joined.read_text(encoding="utf-8")):
                words = shlex.split(entry["command"])
                return [word for word in words[:words.index("-o")] if not word.startswith(("-W", "-O"))]
        sys.exit(f"mutants: {self.build} does not compile {source}")

    def clang_flags(self, source: Path) -> list:
        return [word for word in self.command_of(source)[1:] if word.startswith(("-I", "-D", "-std"))] + [
            "-isystem", "/usr/include/eigen3"]

    def compile(self, source: Path, text: Path, out: Path, *flags: str) -> str:
        """What the compiler says, which is nothing if it did."""
        command = [*self.command_of(source), "-w", "-Wno-narrowing", "-fmax-errors=0", "-include",
                   str(ROOT / "tests/mutants.hpp"), *flags, "-c", str(text), "-o", str(out)]
        return subprocess.run(command, cwd=self.build, capture_output=True, text=True).stderr

    def rewrite(self, source: Path, first: int) -> Rewriter:
        """The mutants of a source that compile, which lie in the folder as source and object."""
        refused: set = set()
        text = self.folder / (source.stem + ".cpp")
        while True:
            found = Rewriter(source, self.clang_flags(source), first, refused)
            text.write_bytes(found.written().encode("latin-1"))
            said = self.compile(source, text, text.with_suffix(".o"), "-O1")
            if not re.search(r"error:", said):
                return found
            lines = text.read_bytes().decode("latin-1").splitlines()
            at = {int(line) for line in re.findall(rf"{re.escape(str(text))}:(\d+):", said)}
            wrong = {int(number) for line in at for number in re.findall(r"/\*M(\d+)\*/", lines[line - 1])}
            if wrong <= refused:
                sys.exit(f"mutants: {source} does not compile:\n{said[:3000]}")
            refused |= wrong

    def link(self, program: str, objects: list) -> Path:
        """The program with these objects, which come before the libraries that have them too."""
        asked = ["ninja", "-t", "commands", f"tests/{program}"]
        line = subprocess.run(asked, cwd=self.build, capture_output=True, text=True, check=True).stdout.splitlines()[-1]
        words = shlex.split(line.replace(" && :", "").replace(": && ", ""))
        out = self.folder / program
        words[words.index("-o") + 1] = str(out)
        at = next(place for place, word in enumerate(words) if word.endswith(".o"))
        subprocess.run([*words[:at], *map(str, objects), *words[at:]], cwd=self.build, check=True)
        return out


class Runner:
    """Runs tests of the programs, each run in a folder that is thrown away."""

    def __init__(self, programs: dict):
        self.programs = programs
        self.seconds: dict = {}  # of each program and test

    def run(self, program: str, tests: list, limit: float, **environment: str) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            command = [self.programs[program], "--gtest_fail_fast", "--gtest_filter=" + ":".join(tests)]
            try:
                return subprocess.run(command, cwd=folder, timeout=limit, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL, check=False,
                                      env={"TMPDIR": folder, **environment}).returncode == 0
            except subprocess.TimeoutExpired:
                return False

    def note_tests(self, mutants: dict) -> None:
        """Which tests run which mutants, from a run of each test without any."""
        for program, path in self.programs.items():
            listed = subprocess.run([path, "--gtest_list_tests"], capture_output=True, text=True, check=True).stdout
            suite = ""
            for line in (line.split("#")[0].rstrip() for line in listed.splitlines()):
                if not line.startswith(" "):
                    suite = line
                elif not suite.startswith("Gpu/"):
                    test = suite + line.strip()
                    with tempfile.NamedTemporaryFile("r") as seen:
                        begin = time.monotonic()
                        if not self.run(program, [test], 600, KVATLAS_MUTANTS_SEEN=seen.name):
                            sys.exit(f"mutants: {program} fails at {test} without a mutant")
                        self.seconds[program, test] = time.monotonic() - begin
                        for number in map(int, seen.read().split()):
                            if number in mutants:
                                mutants[number].tests.setdefault(program, []).append(test)

    def kills(self, mutant: Mutant) -> bool:
        for program, tests in mutant.tests.items():
            tests.sort(key=lambda test: self.seconds[program, test])
            for some in filter(None, (tests[:8], tests[8:])):  # the quickest first
                limit = 1 + 10 * sum(self.seconds[program, test] for test in some)
                if not self.run(program, some, limit, KVATLAS_MUTANT=str(mutant.number)):
                    return True
        return False


def survivors_that_differ(compiler: Compiler, source: Path, survivors: list) -> list:
    """Those of the survivors that the optimiser does not make the original of."""
    text = compiler.folder / f"{source.stem}.cpp"

    def code_with(number: int) -> bytes:
        out = text.with_suffix(".alone.o")
        compiler.compile(source, text, out, "-O2", f"-DKVATLAS_MUTANT={number}")
        return out.read_bytes()

    original = code_with(0) if survivors else b""
    return [mutant for mutant in survivors if code_with(mutant.number) != original]


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if not (Path(sys.argv[1]) / "compile_commands.json").exists():
        sys.exit(f"mutants: {sys.argv[1]} is no build folder: ./dev build makes one")
    asked = [str((Path.cwd() / name).resolve().relative_to(ROOT)) for name in sys.argv[2:]]
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))  # what a mutant may take
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    killed_of_all, all_mutants, left = 0, 0, []
    print(f"{'source':40} mutants killed survived", flush=True)
    for part, programs in PROGRAMS.items():
        sources = [source for pattern in SOURCES if pattern.startswith(part) for source in sorted(ROOT.glob(pattern))]
        if asked and not any(name.startswith(part) for name in asked):
            continue
        with tempfile.TemporaryDirectory() as folder:
            compiler = Compiler(Path(sys.argv[1]).resolve(), Path(folder))
            rewritten, first = [], 1
            for source in sources:
                rewritten.append(compiler.rewrite(source, first))
                first = rewritten[-1].next
            objects = [Path(folder) / f"{source.stem}.o" for source in sources]
            runner = Runner({program: compiler.link(program, objects) for program in programs})
            runner.note_tests({mutant.number: mutant for file in rewritten for mutant in file.mutants})
            for source, file in zip(sources, rewritten):
                if not file.mutants or asked and file.name not in asked:
                    continue
                survivors = [mutant for mutant in file.mutants if not runner.kills(mutant)]
                killed = len(file.mutants) - len(survivors)
                survivors = survivors_that_differ(compiler, source, survivors)
                print(f"{file.name:40} {killed + len(survivors):7} {killed:6} {len(survivors):8}", flush=True)
                killed_of_all, all_mutants = killed_of_all + killed, all_mutants + killed + len(survivors)
                left += survivors
    if all_mutants == 0:
        sys.exit(f"mutants: none of the sources that are looked at: {', '.join(SOURCES)}")
    share = 100 * killed_of_all / all_mutants
    print(f"{'all':40} {all_mutants:7} {killed_of_all:6} {len(left):8} {share:.1f} % killed")
    for mutant in left:
        print(f"{mutant.source}:{mutant.line}: {mutant.change}{'' if mutant.tests else ' (no test runs it)'}")


if __name__ == "__main__":
    main()
