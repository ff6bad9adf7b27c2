# SPDX-License-Identifier: Apache-2.0
"""What must hold after a fault, and the rows of the report."""
from dataclasses import dataclass, field

from scene import Job, Run, Scene, files_below, is_temporary

HANGS = -999


@dataclass
class Row:
    """A fault and a command: how the cases ended, and what was wrong."""
    fault: str
    command: str
    ends: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    left_out: str = ""  # why no case could run here

    def count(self, end: str) -> None:
        self.ends[end] = self.ends.get(end, 0) + 1

    def cases(self) -> int:
        return sum(self.ends.values())

    def passed(self) -> bool:
        return not self.problems and self.cases() > 0


def end_of(run: Run) -> str:
    if run.status == HANGS:
        return "hangs"
    if run.status == 0:
        return "finished"
    return f"signal {-run.status}" if run.status < 0 else f"exit {run.status}"


def check_message(row: Row, run: Run, case: str, expected: str = "") -> None:
    """A failure says one clear sentence, last; no internal error, no abort."""
    if run.status == 0:
        return
    line = run.last_line()
    if run.status < 0:
        row.problems.append(f"{case}: ended by signal {-run.status}: {line[:200]}")
    elif not line.startswith("kvatlas: ") or "internal error" in line or len(line) > 700 or expected not in line:
        wanted = f", expected '{expected}' in it" if expected else ""
        row.problems.append(f"{case}: exit {run.status} with '{line[:300]}'{wanted}")


def check_left(scene: Scene, row: Row, job: Job, case: str, earlier: dict[str, bytes] | None = None) -> None:
    """Under a result's name lies the result, or what was there before; an unfinished profile can be read."""
    for name, content in files_below(scene.work).items():
        if is_temporary(name) or content == job.reference.get(name) or content == (earlier or {}).get(name):
            continue
        if job.name == "check" and b'type="not judged"' in content:
            continue  # the report says why
        if job.name == "profile" and name == job.output:
            read = scene.run(["inspect", scene.work / name, "--json"])
            if read.status == 0:
                continue
            row.problems.append(f"{case}: the profile cannot be read: {read.last_line()[:200]}")
        else:
            row.problems.append(f"{case}: {name} is neither the result nor what was there before")
    for name in earlier or {}:
        if not job.removes_earlier and not (scene.work / name).exists():
            row.problems.append(f"{case}: the earlier {name} is gone")


def check_result(scene: Scene, row: Row, job: Job, case: str) -> None:
    """What is there is what a run leaves that nothing happens to."""
    left = {name: content for name, content in files_below(scene.work).items() if not name.endswith(".tmp")}
    if left != job.reference:
        other = [name for name in set(left) | set(job.reference) if left.get(name) != job.reference.get(name)]
        row.problems.append(f"{case}: finished, but other bytes in {', '.join(sorted(other)[:3])}")


def check_finishes(scene: Scene, row: Row, job: Job, case: str, force: bool = False) -> Run:
    """Run again without a fault, it leaves the same bytes; what can go on goes on, unless told to begin anew."""
    more = "--force" if force or not job.resumes else "--resume"
    run = scene.run(scene.start_of(job, more))
    done = more == "--resume" and run.status == 2 and "is there already" in run.err  # the fault came behind the end
    if run.status != 0 and not done:
        row.problems.append(f"{case}: then it does not finish: {run.last_line()[:300]}")
    else:
        check_result(scene, row, job, case)
    return run
