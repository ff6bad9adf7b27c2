# SPDX-License-Identifier: Apache-2.0
"""Faults of what is around a run: its inputs, other processes, the terminal, the other ranks."""
import errno
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

from checks import Row, check_finishes, check_left, check_message, end_of
from scene import Job, Run, Scene, files_below
from tiny_checkpoint import safetensors


def has_read_all(scene: Scene, process: subprocess.Popen, job: Job) -> bool:
    """Whether a run has opened its inputs: what is changed earlier is what it was asked to read."""
    if process.poll() is not None:
        return True
    if job.name == "profile":
        return (scene.work / "p.h5.parts").exists()
    return "model.safetensors" in Path(f"/proc/{process.pid}/maps").read_text()


def change_while_it_runs(scene: Scene, row: Row, job: Job, name: str, path, change) -> None:
    """What is finished all the same must be what the unchanged inputs give."""
    kept = path.read_bytes()
    scene.clean()
    process = scene.begin(scene.start_of(job))
    while not has_read_all(scene, process, job):
        time.sleep(0.005)
    time.sleep(scene.random.uniform(0, job.seconds / 3))
    if process.poll() is None:
        change(path)
    run = scene.end(process)
    stat = path.stat()
    path.write_bytes(kept)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    row.count(end_of(run))
    check_message(row, run, name)
    check_left(scene, row, job, name)
    if run.status == 0 and files_below(scene.work) != job.reference:
        row.problems.append(f"{name}: finished, with what the changed file gives")
    check_finishes(scene, row, job, name)


def cut(path) -> None:
    os.truncate(path, path.stat().st_size // 3)


def overwrite(path) -> None:
    if path.suffix == ".safetensors":
        path.write_bytes(safetensors(seed=2))
    else:
        path.write_bytes(path.read_bytes()[:-200] + b" " * 200)


def replace(path) -> None:
    """Another file takes the name; who has the old one open keeps it."""
    other = path.with_suffix(".other")
    other.write_bytes(path.read_bytes()[::-1])
    other.replace(path)


def refuse_other_inputs(scene: Scene, row: Row, job: Job) -> None:
    """An unfinished profile is not gone on with by another model, nor on other prompts."""
    for name, path, change in (("the model", scene.model / "model.safetensors", overwrite),
                               ("prompts", scene.prompts, overwrite)):
        kept = path.read_bytes()
        scene.clean()
        process = scene.begin(scene.start_of(job))
        while process.poll() is None and not list(scene.work.glob("p.h5.parts/*.h5")):
            time.sleep(0.01)
        process.kill()
        scene.end(process)
        change(path)
        run = scene.run(scene.start_of(job, "--resume"))
        path.write_bytes(kept)
        row.count(end_of(run))
        if run.status not in (2, 3) or not run.last_line().startswith("kvatlas: "):
            row.problems.append(f"other {name} and --resume: {end_of(run)}: {run.last_line()[:300]}")
        check_finishes(scene, row, job, f"other {name}")


def inputs_change(scene: Scene, job: Job, count: int) -> Row:
    row = Row("model, prompts or profile change", job.name)
    model = scene.model / "model.safetensors"
    other = scene.prompts if job.name == "profile" else scene.inputs / "p.h5"
    modified = {path: path.stat().st_mtime_ns for path in (model, scene.prompts, other)}
    for case in range(count):
        change = (cut, overwrite, replace)[case % 3]
        path = (model, other)[case // 3 % 2]
        change_while_it_runs(scene, row, job, f"{change.__name__} {path.name}", path, change)
    if job.name == "profile":
        refuse_other_inputs(scene, row, job)
    for path, when in modified.items():  # a report says when its profile was written
        os.utime(path, ns=(when, when))
    return row


def two_processes(scene: Scene, job: Job, count: int) -> Row:
    """Two runs that write the same output: one of them at least finishes, and its result is whole."""
    row = Row("two processes on one output", job.name)
    for case in range(count):
        scene.clean()
        both = [scene.begin(scene.start_of(job))]
        time.sleep(scene.random.uniform(0, job.seconds / 2) if case % 2 else 0)
        both.append(scene.begin(scene.start_of(job)))
        runs = [scene.end(process) for process in both]
        row.count(" and ".join(sorted(end_of(run) for run in runs)))
        for run in runs:
            check_message(row, run, f"pair {case}")
        if files_below(scene.work) != job.reference:
            row.problems.append(f"pair {case}: what is left is not the result of one run")
        if all(run.status != 0 for run in runs):
            row.problems.append(f"pair {case}: neither finished: {runs[0].last_line()[:200]}")
    return row


def with_closed_terminal(scene: Scene, job: Job) -> Run:
    """In a terminal of its own, whose window is closed."""
    master, slave = pty.openpty()

    def take_terminal() -> None:
        import fcntl
        import termios
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    process = scene.begin(scene.start_of(job), stdin=slave, stdout=slave, stderr=slave, preexec_fn=take_terminal)
    os.close(slave)
    time.sleep(scene.random.uniform(0, job.seconds))
    os.close(master)
    return scene.end(process)


def with_hangup(scene: Scene, job: Job) -> Run:
    process = scene.begin(scene.start_of(job))
    time.sleep(scene.random.uniform(0, job.seconds))
    process.send_signal(signal.SIGHUP)
    return scene.end(process)


def with_closed_pipe(scene: Scene, job: Job, which: str) -> Run:
    """Nobody reads what it says."""
    reading, writing = os.pipe()
    os.close(reading)
    process = scene.begin(scene.start_of(job), **{which: writing})
    os.close(writing)
    return scene.end(process)


def with_full_output(scene: Scene, job: Job) -> Run:
    with open("/dev/full", "w") as full:
        return scene.run(scene.start_of(job), stdout=full)


def terminal_goes(scene: Scene, job: Job, count: int) -> Row:
    row = Row("terminal or reader goes away", job.name)
    ways = {"closed terminal": lambda: with_closed_terminal(scene, job), "SIGHUP": lambda: with_hangup(scene, job),
            "closed stdout": lambda: with_closed_pipe(scene, job, "stdout"),
            "closed stderr": lambda: with_closed_pipe(scene, job, "stderr"),
            "full stdout": lambda: with_full_output(scene, job)}
    for case in range(max(count, len(ways))):
        name, way = list(ways.items())[case % len(ways)]
        scene.clean()
        run = way()
        row.count(f"{name}: {end_of(run)}")
        check_left(scene, row, job, name)
        if run.status == -999:
            row.problems.append(f"{name}: hangs")
        # Whatever becomes of the words, the work is done: its result must be there.
        if name in ("closed stdout", "closed stderr", "full stdout") and files_below(scene.work) != job.reference:
            row.problems.append(f"{name}: {end_of(run)}, and the result is not there")
        if name == "full stdout" and run.status != 1:
            row.problems.append(f"{name}: {end_of(run)}, though its words are lost")
        check_finishes(scene, row, job, name)
    return row


# What the run says of each kind of fault (tests/emulated_cuda/device.hpp).
DEVICE_FAULTS = {"memory": "the GPU's memory ran out (device scratch memory: out of memory)",
                 "launch": "no kernel image is available", "lost": "the GPU failed"}


def device_fails(scene: Scene, job: Job, count: int) -> Row:
    """An allocation finds no memory, a kernel is refused, or the device is lost, each at random calls."""
    row = Row("a GPU that fails (emulated)", job.name)
    for kind, said in DEVICE_FAULTS.items():
        calls = scene.count(job, {"KVATLAS_CUDA_FAULT": f"{kind}:0"})
        for at in scene.random.sample(range(1, calls + 1), min(count, calls)):
            name = f"{kind} at call {at} of {calls}"
            earlier = {} if job.resumes else scene.put_earlier(job)
            if not earlier:
                scene.clean()
            run = scene.run(scene.start_of(job, *(["--force"] if earlier else [])),
                            {"KVATLAS_CUDA_FAULT": f"{kind}:{at}"})
            row.count(f"{kind}: {end_of(run)}")
            check_message(row, run, name, said)
            if run.status == 0 or "--device cpu" not in run.last_line():
                row.problems.append(f"{name}: {end_of(run)}: {run.last_line()[:300]}")
            check_left(scene, row, job, name, earlier)
            again = check_finishes(scene, row, job, name)
            done = re.findall(r"(\d+ of \d+ samples) are done", run.last_line())
            if job.name == "profile" and done != re.findall(r"(\d+ of \d+ samples) are there", again.err):
                row.problems.append(f"{name}: said '{run.last_line()[-120:]}', then '{again.err[:200]}'")
    return row


def rank_lost(scene: Scene, job: Job, count: int) -> Row:
    """One of two MPI processes is killed at a random write."""
    row = Row("a rank lost under MPI", job.name)
    launcher = shutil.which("mpirun")
    if not launcher or not (scene.program.parent / "../lib/kvatlas/libkvatlas_mpi.so").exists():
        row.left_out = "no mpirun here, or a build without MPI"
        return row
    for case in range(count):
        rank = case % 2
        scene.clean()
        more = scene.fault("write", scene.work, scene.random.randint(1, job.writes // 2), 0)
        more["KVATLAS_FAULT_RANK"] = str(rank)
        forwarded = [word for pair in more.items() for word in ("-x", "=".join(pair))]
        command = [launcher, "--allow-run-as-root", "--oversubscribe", "-n", "2", *forwarded, str(scene.program),
                   *scene.start_of(job)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300,
                              stdin=subprocess.DEVNULL, env=os.environ | {"OMP_NUM_THREADS": "1"})
        row.count("finished" if done.returncode == 0 else f"rank {rank} lost")
        name = f"rank {rank}, write {more['KVATLAS_FAULT_AT']}"
        check_left(scene, row, job, name)
        if done.returncode == 0 and files_below(scene.work) != job.reference:
            row.problems.append(f"{name}: finished, but not with the same bytes")
        check_finishes(scene, row, job, name)
    return row


def killed_demo(scene: Scene, job: Job) -> Run:
    """With the step that it is at, as when a terminal's processes are ended or a machine stops."""
    process = scene.begin(scene.start_of(job))
    time.sleep(scene.random.uniform(0, job.seconds))
    os.killpg(process.pid, signal.SIGKILL)
    return scene.end(process)


def two_demos(scene: Scene, job: Job) -> Run:
    """How the second ends, if the first finishes; else how the first does."""
    first = scene.begin(scene.start_of(job))
    time.sleep(scene.random.uniform(0, job.seconds))
    second = scene.run(scene.start_of(job))
    run = scene.end(first)
    return run if run.status != 0 else second


def is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except ValueError:
        return False
    return True


def check_demo(scene: Scene, row: Row, job: Job, name: str, whole: bool) -> None:
    """Each result that is there can be read; if it is to be whole, they are all there."""
    left = files_below(scene.work)
    for path, content in left.items():
        torn = path.endswith(".json") and not is_json(content)
        if torn or path.endswith(".html") and not content.rstrip().endswith(b"</html>"):
            row.problems.append(f"{name}: {path} is not whole")
    profile = scene.work / "demo/smollm2.h5"
    read = subprocess.run([scene.steps, "inspect", profile], capture_output=True, text=True) if profile.exists() else None
    if read and read.returncode != 0:
        row.problems.append(f"{name}: the profile cannot be read: {read.stderr[-200:]}")
    if whole and {path for path in left if not path.endswith(".tmp")} != set(job.reference):
        row.problems.append(f"{name}: other files than those of an undisturbed demo")


def demo_fails(scene: Scene, job: Job, count: int) -> Row:
    """The demo is killed, or its steps are, or their disk is full, or another demo has its folder; then it runs again."""
    row = Row("killed, disk full, or two of them", job.name)
    at = lambda: scene.random.randint(1, 200)  # noqa: E731  of the writes of a step; some have fewer
    ways = {"killed": lambda: killed_demo(scene, job),
            "step killed": lambda: scene.run(scene.start_of(job), scene.fault("write", scene.work, at(), 0)),
            "disk full": lambda: scene.run(scene.start_of(job), scene.fault("write", scene.work, at(), errno.ENOSPC)),
            "two": lambda: two_demos(scene, job)}
    for case in range(count):
        name, way = list(ways.items())[case % len(ways)]
        scene.clean()
        run = way()
        row.count(f"{name}: {end_of(run)}")
        if name != "killed":
            check_message(row, run, name)
        check_demo(scene, row, job, name, whole=run.status == 0)
        again = scene.run(scene.start_of(job))
        if again.status != 0:
            row.problems.append(f"{name}: then it does not run again: {again.last_line()[:300]}")
        check_demo(scene, row, job, f"{name}, then again", whole=True)
    return row
