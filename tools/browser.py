"""A real browser without a driver: Chromium, controlled by its DevTools protocol over a pipe.

    with Browser() as browser:
        page = browser.open(dark=True)
        page.goto("http://127.0.0.1:8000/admin/")
        page.screenshot(Path("admin.png"))

A page collects in ``problems`` console errors, exceptions of scripts, and violations of its content security policy.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from tools.processes import ServerFailed, ServerNotFound, die_with_parent

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 20.0
"""Seconds to wait for one reply."""

# Chromium listens on 3 and writes to 4
LAUNCHER = (
    "import os, sys\nos.dup2(int(sys.argv[1]), 3)\nos.dup2(int(sys.argv[2]), 4)\nos.execv(sys.argv[3], sys.argv[3:])\n"
)
KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, ""), " ": (32, " "), "ArrowDown": (40, "")}


def find_browser() -> str:
    """
    Raises:
        ServerNotFound: no Chromium is installed.
    """
    for name in (os.environ.get("BROWSER_BINARY"), *NAMES):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise ServerNotFound(f"There is no browser: looked for {', '.join(NAMES)}, and at BROWSER_BINARY.")


class Browser:
    """`with Browser() as browser:`. At the end of the block its process ends, and its profile is removed."""

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        high = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out)]  # not 3 or 4
        options = [
            "--headless=new",
            "--remote-debugging-pipe",
            "--no-sandbox",  # CI runs as root
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            f"--user-data-dir={self._folder.name}",
        ]
        command = [
            *die_with_parent(),
            sys.executable,
            "-I",
            "-S",
            "-c",
            LAUNCHER,
            *map(str, high),
            find_browser(),
            *options,
        ]
        self._process = subprocess.Popen(
            command, pass_fds=high, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for end in (theirs_in, theirs_out, *high):
            os.close(end)
        self._rest, self._number = b"", 0
        self._pages: dict[str, Page] = {}
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.call("Browser.close")
        except (ServerFailed, OSError):
            self._process.kill()
        self._process.wait(PATIENCE)
        os.close(self._in)
        os.close(self._out)
        self._folder.cleanup()

    def open(self, width: int = 1280, height: int = 800, *, dark: bool = False, mobile: bool = False) -> Page:
        """Open a tab of this size in pixels, with separate cookies."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session, context)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        scheme = "dark" if dark else "light"
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        return page

    def call(self, method: str, session: str = "", **params: Any) -> Any:
        """Send a command and return its result. Events that arrive before it are passed to the pages."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE
        while True:
            answer = self.next(end, method)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise ServerFailed(f"{method}: {answer['error']}")
                return answer["result"]

    def next(self, end: float, doing: str) -> Any:
        """The next message of the browser."""
        while b"\0" not in self._rest:
            if not select.select([self._in], [], [], max(0.0, end - time.monotonic()))[0]:
                raise ServerFailed(f"The browser doesn't answer to {doing}.")
            some = os.read(self._in, 1 << 20)
            if not some:
                raise ServerFailed(f"The browser ended during {doing}.")
            self._rest += some
        raw, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(raw)
        page = self._pages.get(message.get("sessionId", ""))
        if page is not None and "method" in message:
            page.on_event(message["method"], message["params"])
        return message


class Page:
    """A tab."""

    def __init__(self, browser: Browser, session: str, context: str) -> None:
        self._browser, self._session, self._context = browser, session, context
        self._loads = 0
        self.problems: list[str] = []

    def call(self, method: str, **params: Any) -> Any:
        return self._browser.call(method, self._session, **params)

    def on_event(self, method: str, params: Any) -> None:
        if method == "Page.loadEventFired":
            self._loads += 1
        elif method == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(str([one.get("value", one) for one in params["args"]]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def close(self) -> None:
        """Close the tab and its connections."""
        self._browser.call("Target.disposeBrowserContext", browserContextId=self._context)

    def cookie(self, url: str, name: str, value: str) -> None:
        self.call("Network.setCookie", url=url, name=name, value=value)

    def goto(self, url: str) -> None:
        """Load a page, and wait until it has loaded."""
        before = self._loads
        failure = self.call("Page.navigate", url=url).get("errorText")
        if failure:
            raise ServerFailed(f"{url}: {failure}")
        self.loaded(before)

    def loaded(self, before: int) -> None:
        """Wait until more pages than ``before`` have loaded."""
        end = time.monotonic() + PATIENCE
        while self._loads <= before:
            self._browser.next(end, "the page to load")

    def press(self, *keys: str, loads: bool = False) -> None:
        """Press keys one after the other. ``loads``: wait for the page that the last one loads."""
        before = self._loads
        for key in keys:
            code, text = KEYS.get(key, (0, key))
            about = {"key": key, "windowsVirtualKeyCode": code, "text": text}
            self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **about)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)
        if loads:
            self.loaded(before)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def evaluate(self, script: str) -> Any:
        """Evaluate a JavaScript expression, and return its value."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise ServerFailed(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Save a screenshot of the visible part, or of the whole page."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))
