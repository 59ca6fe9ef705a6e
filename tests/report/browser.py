"""A real browser without a window, driven through Chromium's debugging pipe."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_KEYS = {"Enter": (13, "\r"), "Tab": (9, ""), "ArrowLeft": (37, ""), "ArrowRight": (39, "")}

PROGRAM = next(filter(None, map(shutil.which, _NAMES)), None)


class Page:
    """A page in the browser.

    Attributes:
        messages: what the page has written to the console, and the browser's own complaints.
        requests: the addresses that the page has asked for.
    """

    def __init__(self, browser: Browser, path: pathlib.Path, width: int, height: int):
        self._browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.messages: list[str] = []
        self.requests: list[str] = []
        browser.events[self._session] = self._record
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        self.call("Page.navigate", url=path.resolve().as_uri())
        self._browser.wait_for(self._session, "Page.loadEventFired")

    def _record(self, method: str, values: dict[str, Any]) -> None:
        if method == "Runtime.consoleAPICalled":
            self.messages.append(str(values["args"]))
        elif method == "Runtime.exceptionThrown":
            self.messages.append(str(values["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.messages.append(values["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(values["request"]["url"])

    def call(self, method: str, **values: Any) -> dict[str, Any]:
        """Calls a method of Chromium's protocol in this page."""
        return self._browser.call(method, self._session, **values)

    def resize(self, width: int, height: int) -> None:
        """Changes the size of the window, in pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Presses a key as a user does."""
        code, text = _KEYS[key]
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                **({"text": text} if text and kind == "keyDown" else {}),
            )

    def click(self, selector: str) -> None:
        """Clicks on the middle of an element with the mouse."""
        x, y = self.hover(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def hover(self, selector: str, share: float = 0.5) -> tuple[float, float]:
        """Moves the pointer onto an element, to a share of its width; returns its place."""
        x, y = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center', behavior: 'instant'});"
            "const r = e.getBoundingClientRect();"
            f"return [r.x + r.width * {share}, r.y + r.height / 2]; }})()"
        )
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        return x, y

    def reload_without_scripts(self) -> None:
        """Loads the page again, as in a browser that runs no scripts of pages."""
        self.call("Emulation.setScriptExecutionDisabled", value=True)
        self._browser.forget(self._session, "Page.loadEventFired")
        self.call("Page.reload")
        self._browser.wait_for(self._session, "Page.loadEventFired")

    def picture(self, path: pathlib.Path) -> None:
        """Saves a picture of the whole page."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True)["data"])


class Browser:
    """A running browser.

    Attributes:
        events: by session, what receives its events.
    """

    def __init__(self, to_browser: int, from_browser: int):
        self._out = os.fdopen(to_browser, "wb", buffering=0)
        self._in = os.fdopen(from_browser, "rb")
        self._numbers = itertools.count(1)
        self.events: dict[str, Any] = {}
        self._seen: set[tuple[str, str]] = set()

    def call(self, method: str, session: str = "", **values: Any) -> dict[str, Any]:
        """Calls a method of Chromium's protocol and waits for the answer."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": values}
        if session:
            message["sessionId"] = session
        self._out.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def wait_for(self, session: str, method: str) -> None:
        """Waits until an event has happened."""
        while (session, method) not in self._seen:
            self._receive()

    def forget(self, session: str, method: str) -> None:
        """Makes `wait_for` wait for the next event of this kind."""
        self._seen.discard((session, method))

    def _receive(self) -> dict[str, Any]:
        message = bytearray()
        while (byte := self._in.read(1)) != b"\0":
            assert byte, "the browser has ended"
            message += byte
        answer = json.loads(message)
        if "method" in answer and "sessionId" in answer:
            session = answer["sessionId"]
            self._seen.add((session, answer["method"]))
            self.events.get(session, lambda *_: None)(answer["method"], answer["params"])
        return answer

    def open(self, path: pathlib.Path, width: int = 1400, height: int = 900) -> Page:
        """Opens a file in a page of its own."""
        return Page(self, path, width, height)

    def close(self) -> None:
        """Closes the pipes, which ends the browser."""
        self._out.close()
        self._in.close()


@contextlib.contextmanager
def started() -> Iterator[Browser]:
    """Starts the browser, and ends it with the block."""
    # The browser reads from its descriptor 3 and writes to 4, so these must be free.
    ends = (*os.pipe(), *os.pipe())
    pipes = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    read, to_browser, from_browser, write = pipes
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        flags = (
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
        )
        process = subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" 3<&{read} 4>&{write}', str(PROGRAM), *flags],
            pass_fds=(read, write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        browser = Browser(to_browser, from_browser)
        try:
            yield browser
        finally:
            browser.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
