# SPDX-License-Identifier: Apache-2.0
"""Faults of the process, the disk and the memory. Each function makes one row; each is given how many cases to try."""
import errno
import os
import resource
import signal
import subprocess
import time
from pathlib import Path

from checks import Row, check_finishes, check_left, check_message, check_result, end_of
from scene import Job, Run, Scene, files_below


def killed_run(scene: Scene, job: Job, more: list[str], at_a_write: bool) -> Run:
    if at_a_write:
        return scene.run(scene.start_of(job, *more),
                         scene.write_fault(job, scene.random.randint(1, job.writes)))
    process = scene.begin(scene.start_of(job, *more))
    time.sleep(scene.random.uniform(0, job.seconds))
    process.kill()
    return scene.end(process)


def has_begun(scene: Scene, job: Job, earlier: dict[str, bytes]) -> bool:
    """Whether a run that was cut short left something to go on with."""
    left = {name: content for name, content in files_below(scene.work).items() if not name.endswith((".tmp", "/lock"))}
    return left != job.reference and any(earlier.get(name) != content for name, content in left.items())


def kills(scene: Scene, job: Job, count: int) -> Row:
    """SIGKILL, by turns at a random write and after a random time; what can go on does, and is killed again."""
    row = Row("SIGKILL at random moments", job.name)
    seldom = 10 if job.name == "profile" else 2  # an earlier profile takes a run to make
    unfinished, earlier = False, {}
    case = -1
    while row.ends.get("killed", 0) < count and case < 4 * count + 4:  # some finish before they are killed
        case += 1
        name = f"run {case}"
        if not unfinished:
            scene.clean()
            earlier = scene.put_earlier(job) if case % seldom == 0 else {}
        more = ["--resume"] if unfinished else ["--force"] if earlier else []
        run = killed_run(scene, job, more, at_a_write=case % 2 == 0)
        killed = run.status == -signal.SIGKILL
        row.count("killed" if killed else end_of(run))
        check_left(scene, row, job, name, earlier)
        if not killed and run.status != 0:
            row.problems.append(f"{name}: {end_of(run)}: {run.last_line()[:300]}")
        if run.status == 0:
            check_result(scene, row, job, name)
        unfinished = killed and job.resumes and has_begun(scene, job, earlier)
        if not job.resumes:
            check_finishes(scene, row, job, name)
    if unfinished:
        check_finishes(scene, row, job, "after the last kill")
    if row.ends.get("killed", 0) < count:
        row.problems.append(f"only {row.ends.get('killed', 0)} of {count} kills came in time")
    return row


def disk_full(scene: Scene, job: Job, count: int) -> Row:
    """From a random write on the disk is full; then there is room again."""
    row = Row("disk full at a random write", job.name)
    for case in range(count):
        at = scene.random.randint(1, job.writes)
        name = f"write {at} of {job.writes}"
        earlier = scene.put_earlier(job) if case % 3 == 0 else {}
        if not earlier:
            scene.clean()
        run = scene.run(scene.start_of(job, *(["--force"] if earlier else [])),
                        scene.write_fault(job, at, errno.ENOSPC))
        row.count(end_of(run))
        check_message(row, run, name, os.strerror(errno.ENOSPC))
        check_left(scene, row, job, name, earlier)
        check_finishes(scene, row, job, name, force=bool(earlier) and not has_begun(scene, job, earlier))
    return row


def read_errors(scene: Scene, job: Job, count: int) -> Row:
    """From a random read of the inputs on the disk says EIO; then it is mended."""
    row = Row("read errors", job.name)
    for at in scene.random.sample(range(1, job.reads + 1), min(count, job.reads)):
        name = f"read {at} of {job.reads}"
        scene.clean()
        run = scene.run(scene.start_of(job), scene.fault("read", scene.inputs, at, errno.EIO))
        row.count(end_of(run))
        check_message(row, run, name)
        if run.status == 0:
            check_result(scene, row, job, name)
        check_left(scene, row, job, name)
        check_finishes(scene, row, job, name)
    return row


def runs_within(scene: Scene, words: list, limit: int) -> bool:
    return run_within(scene, words, limit).status == 0


def run_within(scene: Scene, words: list, limit: int):
    return scene.run(words, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))


def least_memory(scene: Scene, words: list, low: int, high: int, step: int) -> int:
    while high - low > step:
        middle = (low + high) // 2
        scene.clean()
        low, high = (low, middle) if runs_within(scene, words, middle) else (middle, high)
    return high


def out_of_memory(scene: Scene, job: Job, count: int) -> Row:
    """Address space from what the command needs to start up to what the run needs (ulimit -v)."""
    row = Row("out of memory (ulimit -v)", job.name)
    mib = 1 << 20
    words = scene.start_of(job)
    start = least_memory(scene, [words[0], "--help"], 0, 8 << 30, 16 * mib)
    whole = least_memory(scene, words, start, 8 << 30, 16 * mib)
    for _ in range(count):
        limit = scene.random.randint(start, whole)
        name = f"{limit // mib} MiB, of {start // mib} to start and {whole // mib} to finish"
        scene.clean()
        run = run_within(scene, scene.start_of(job), limit)
        row.count(end_of(run))
        check_message(row, run, name)
        check_left(scene, row, job, name)
        check_finishes(scene, row, job, name)
    return row


class Cgroup:
    """A group of processes that may take so much memory; OSError where it cannot be made."""

    def __init__(self):
        base = Path("/sys/fs/cgroup")
        self.old = (base / "memory").is_dir()
        self.folder = (base / "memory" if self.old else base) / f"kvatlas-faults-{os.getpid()}"
        self.folder.mkdir()
        self.limit(1 << 40)

    def limit(self, size: int) -> None:
        (self.folder / ("memory.limit_in_bytes" if self.old else "memory.max")).write_text(str(size))

    def join(self) -> None:
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self) -> None:
        self.folder.rmdir()


def out_of_group_memory(scene: Scene, job: Job, count: int) -> Row:
    """A cgroup with too little memory: the kernel kills the process."""
    row = Row("out of memory (cgroup)", job.name)
    try:
        group = Cgroup()
    except OSError as problem:
        row.left_out = f"no cgroup can be made here: {os.strerror(problem.errno or 0)}"
        return row
    try:
        for _ in range(count):
            limit = scene.random.randint(24, 160)
            name = f"{limit} MiB"
            scene.clean()
            group.limit(limit << 20)
            run = scene.run(scene.start_of(job), preexec_fn=group.join)
            row.count("killed" if run.status == -signal.SIGKILL else end_of(run))
            if run.status != -signal.SIGKILL:
                check_message(row, run, name)
            check_left(scene, row, job, name)
            check_finishes(scene, row, job, name)
    except (OSError, subprocess.SubprocessError) as problem:
        row.left_out = f"no process can join a cgroup here: {problem}"
    finally:
        group.remove()
    return row


def clock_jumps(scene: Scene, job: Job, count: int) -> Row:
    """The clock of the day jumps by years to and fro, the others ahead by hours."""
    row = Row("clock jumps", job.name)
    for case in range(count):
        scene.clean()
        seed = scene.random.randint(1, 1000)
        run = scene.run(scene.start_of(job), {"LD_PRELOAD": str(scene.shim), "KVATLAS_FAULT_CLOCK": str(seed)})
        row.count(end_of(run))
        if run.status != 0 or files_below(scene.work) != job.reference:
            row.problems.append(f"seed {seed}: {end_of(run)}, or other bytes: {run.last_line()[:300]}")
    return row
