# SPDX-License-Identifier: Apache-2.0
"""Debian's Chromium without a display, driven over its debugging pipe (the Chrome DevTools Protocol)."""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

SECONDS = 60  # that an answer may take


class Browser:
    """One page. `requests` are the addresses that it asked for, `complaints` its errors and what its policy refused."""

    def __init__(self):
        chromium = shutil.which("chromium")
        if chromium is None:
            raise AssertionError("there is no chromium: 'apt-get install chromium' brings it, and './dev interop' does so")
        to_child, self._write = os.pipe()
        self._read, from_child = os.pipe()
        self._folder = tempfile.mkdtemp(prefix="kvatlas-chromium-")
        words = [chromium, "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self._folder}", "--no-first-run",
                 "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
                 "--hide-scrollbars", "--force-color-profile=srgb"]
        if os.geteuid() == 0:
            words.append("--no-sandbox")
        redirect = f'exec "$@" 3<&{to_child} 4>&{from_child}'
        self._process = subprocess.Popen(["bash", "-c", redirect, "bash", *words], pass_fds=(to_child, from_child),
                                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_child)
        os.close(from_child)
        self._numbers = itertools.count(1)
        self._pending = b""
        self._events = []
        self.requests, self.complaints = [], []
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._session = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def close(self):
        try:
            self._call("Browser.close", {})
            self._process.wait(timeout=20)
        except (AssertionError, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _message(self) -> dict:
        end = time.monotonic() + SECONDS
        while b"\0" not in self._pending:
            ready, _, _ = select.select([self._read], [], [], max(0, end - time.monotonic()))
            more = os.read(self._read, 1 << 20) if ready else b""
            if not more:
                raise AssertionError("chromium has ended" if ready else f"chromium did not answer within {SECONDS} s")
            self._pending += more
        message, _, self._pending = self._pending.partition(b"\0")
        return json.loads(message)

    def _take(self, message: dict):
        method, of = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent" and not of["request"]["url"].startswith("data:"):
            self.requests.append(of["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = of["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and of["entry"]["level"] in ("warning", "error"):
            self.complaints.append(of["entry"]["text"])
        self._events.append(method)

    def _call(self, method: str, params: dict, session: str | None = None) -> dict:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        rest = json.dumps(message).encode() + b"\0"
        while rest:
            rest = rest[os.write(self._write, rest):]
        while True:
            answer = self._message()
            if answer.get("id") == number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._take(answer)

    def call(self, method: str, **params) -> dict:
        return self._call(method, params, self._session)

    def open(self, path: Path, *, scripts: bool = True, width: int = 1280, height: int = 900, dark: bool = False):
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.requests.clear()
        self.complaints.clear()
        self._events.clear()
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        while "Page.loadEventFired" not in self._events:
            self._take(self._message())
        if scripts:
            self.wait("document.documentElement.dataset.ready === 'yes'")

    def run(self, expression: str):
        """The value of an expression (or what it promises)."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails']['exception'].get('description')}")
        return answer["result"].get("value")

    def wait(self, expression: str):
        end = time.monotonic() + SECONDS
        while not self.run(expression):
            if time.monotonic() > end:
                raise AssertionError(f"not within {SECONDS} s: {expression}; the page says {self.complaints}")
            time.sleep(0.05)

    def press(self, key: str, code: str = ""):
        text = {"text": key} if len(key) == 1 else {}
        if key == "Enter":
            text = {"text": "\r"}
        virtual = {"Enter": 13, "Tab": 9, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35}
        number = virtual.get(key, ord(key.upper()[0]))
        common = {"key": key, "code": code or key, "windowsVirtualKeyCode": number}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def mouse(self, kind: str, x: float, y: float, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, selector: str):
        x, y = self.middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def middle(self, selector: str, across: float = 0.5, down: float = 0.5) -> tuple[float, float]:
        """A place of the element on the screen, once it is scrolled to."""
        return tuple(self.run(f"""(() => {{
          const element = document.querySelector({json.dumps(selector)});
          element.scrollIntoView({{block: "center", behavior: "instant"}});
          const box = element.getBoundingClientRect();
          return [box.x + {across} * box.width, box.y + {down} * box.height];
        }})()"""))

    def screenshot(self, path: Path, whole: bool = False):
        more = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            more = {"captureBeyondViewport": True, "clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}
        Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png", **more)["data"]))
