#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of README.md and docs/ that show the demo's model on 20 prompts of 1024 tokens, of 20 texts.

    tests/docs/pictures.py build/bin/kvatlas FOLDER [NAME …]

The profile, the documents and the report are made in FOLDER where they are not there yet. The window is drawn on a
display of its own and the report in Chromium: apt-get install xvfb xdotool imagemagick chromium."""
import argparse
import contextlib
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "interop"))
from browser import Browser  # noqa: E402

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
MODEL = CACHE / "kvatlas/SmolLM2-135M-Instruct.Q4_1.gguf"
SAMPLES = ("--task", "needle", "--task", "passkey:haystack=prose", "--lengths", "1024", "--depths", "0.5", "--seeds", "10")
WINDOW = "1440x860"
DISPLAY = ":97"

# What is made once, by its name in FOLDER: the words that make it, in which a name stands for its file.
FILES = {
    "smollm2.h5": ("profile", "--model", MODEL, *SAMPLES, "--initial", "4,16", "--recent", "240,256", "--new", "8", "--map-samples", "2"),
    "policy.json": ("calibrate", "simlayerkv", "--model", MODEL, "-p", "smollm2.h5", "--recent", "256"),
    "budgets.json": ("calibrate", "dynamickv", "-p", "smollm2.h5", "--budget", "256"),
    "report.html": ("report", "smollm2.h5", "policy.json", "budgets.json"),
}

# render: the document, the picture and its size. view: the document and the screen. report: its maps.
PICTURES = {
    "simlayerkv-layers": ("render", "policy.json", "lazy-layers", "720x360"),
    "simlayerkv-scores": ("render", "policy.json", "lazy-scores", "720x360"),
    "dynamickv-budgets": ("render", "budgets.json", "budgets", "820x520"),
    "lazy": ("view", "policy.json", "lazy"),
    "report": ("report",),
}


def made(program, folder, name):
    """The file, after it and what it is made of are there."""
    path = folder / name
    if not path.exists():
        words = [made(program, folder, word) if word in FILES else word for word in FILES[name]]
        print(f"pictures: {name}", file=sys.stderr)
        subprocess.run([program, *words, "-o", path], check=True, stdout=subprocess.DEVNULL)
    return path


def window(program, files, screen, picture):
    """What the window shows once it has come to rest."""
    display = subprocess.Popen(["Xvfb", DISPLAY, "-screen", "0", f"{WINDOW}x24"], stderr=subprocess.DEVNULL)
    environment = {**os.environ, "DISPLAY": DISPLAY, "XDG_CONFIG_HOME": str(picture.parent / "settings")}
    try:
        time.sleep(2)
        viewer = subprocess.Popen([program, "view", *files, "--screen", screen], env=environment)
        found = subprocess.run(["xdotool", "search", "--sync", "--onlyvisible", "--name", "kvatlas"], env=environment, check=True,
                               capture_output=True, text=True).stdout.split()[-1]
        subprocess.run(["xdotool", "windowmove", found, "0", "0", "windowsize", found, *WINDOW.split("x")], env=environment, check=True)
        time.sleep(8)
        subprocess.run(["import", "-window", found, picture], env=environment, check=True)
        viewer.terminate()
        viewer.wait()
    finally:
        display.terminate()
        display.wait()


def report_maps(page, picture):
    """The report's maps, with the pointer on a token of one of them."""
    with contextlib.closing(Browser()) as browser:
        browser.open(page, width=1280, height=860)
        browser.run("document.getElementById('maps').scrollIntoView({behavior: 'instant'})")
        browser.run("document.getElementById('map-canvas').focus({preventScroll: true})")
        for key in 3 * ["ArrowDown"] + 4 * ["ArrowRight"]:
            browser.press(key)
        time.sleep(2)
        x, y = browser.run("(box => [box.x + 0.3 * box.width, box.y + 0.6 * box.height])(document.querySelector('#map-canvas').getBoundingClientRect())")
        browser.mouse("mouseMoved", x, y)
        time.sleep(1)
        browser.screenshot(picture)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvatlas", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PICTURES))
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    profile = made(given.kvatlas, given.folder, "smollm2.h5")
    for name in given.names or PICTURES:
        kind, *words = PICTURES[name]
        picture = given.folder / f"{name}.png"
        if kind == "render":
            document = made(given.kvatlas, given.folder, words[0])
            subprocess.run([given.kvatlas, "render", profile, document, "--what", words[1], "--size", words[2], "-o", picture, "--force"], check=True)
        elif kind == "view":
            window(given.kvatlas, [profile, made(given.kvatlas, given.folder, words[0])], words[1], picture)
        else:
            report_maps(made(given.kvatlas, given.folder, "report.html"), picture)
        subprocess.run(["convert", picture, "-strip", "+dither", "-colors", "256", f"png8:{DOCS}/pictures/{name}.png"], check=True)


if __name__ == "__main__":
    main()
