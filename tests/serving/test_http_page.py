"""The page in a browser without a window: typing, n-best, keyboard, HTML in translations, colors of both schemes."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import PATIENCE, Client, FakeTranslator, served

from fairseq_depthwise.serving.http.messages import Limits

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")

#: A key, its code and what it types.
KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), " ": (32, " ")}


class Browser:
    """One page of chromium, by its DevTools protocol over two pipes."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        from_us, self._out = os.pipe()
        self._in, to_us = os.pipe()

        # The protocol is spoken over file descriptors 3 and 4; a shell can name them, whatever ours are.
        command = (
            f'exec 3<&{from_us} 4>&{to_us}; exec "$0" --headless --no-sandbox --disable-gpu --remote-debugging-pipe '
            f'--user-data-dir="$1" --no-first-run --window-size=900,1000 about:blank'
        )
        self._process = subprocess.Popen(
            ["bash", "-c", command, CHROMIUM, str(profile)],
            pass_fds=(from_us, to_us), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(from_us)
        os.close(to_us)
        os.set_blocking(self._in, False)
        self._number = 0
        self._rest = b""
        self._session: str | None = None
        self.errors: list[str] = []
        target = next(one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != self._number:
            if answer.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.errors.append(json.dumps(answer["params"]))
        assert "error" not in answer, answer
        return answer["result"]

    def _message(self) -> Any:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            assert time.monotonic() < end, "the browser does not answer"
            try:
                self._rest += os.read(self._in, 1 << 16)
            except BlockingIOError:
                time.sleep(0.01)
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def value(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + PATIENCE
        while not self.value(expression):
            assert time.monotonic() < end, (
                f"{expression} does not come to hold: {self.value('document.body.innerText')}"
            )
            time.sleep(0.02)

    def press(self, key: str, modifiers: int = 0) -> None:
        """Press and release a key; 2 is Ctrl, 8 is Shift."""
        code, text = KEYS[key]
        given = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        self.call(
            "Input.dispatchKeyEvent", type="keyDown", **given, **({"text": text} if text and not modifiers else {})
        )
        self.call("Input.dispatchKeyEvent", type="keyUp", **given)

    def open(self, port: int) -> None:
        """Open the page of a server."""
        self.errors.clear()
        self.call("Page.navigate", url=f"http://127.0.0.1:{port}/")
        self.wait_for("document.readyState == 'complete' && document.querySelectorAll('#nbest option').length > 1")

    def screenshot(self, path: Path) -> None:
        """Write what is seen as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]))

    def close(self) -> None:
        """End the browser."""
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    made = Browser(tmp_path_factory.mktemp("profile"))
    yield made
    made.close()


def picture(line: str, rank: int, source_lang: str, target_lang: str) -> dict[str, Any]:
    words = line.split()
    attention = [[float(row == column) for column in range(len(words))] for row in range(len(words))]
    gates = [{"layer": "1", "input": 0.5, "forget": 0.25, "output": 0.75}]
    return {
        "source": words, "target": words[::-1], "attention": attention, "text": line[::-1], "models": 1,
        "gates": {"encoder": gates, "decoder": gates}, "units": [[0.25, 0.5], [-1.0, 0.125]],
    }  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with served(FakeTranslator(), Limits(most_nbest=3, max_lines=4), explain=picture) as made:
        yield made


def test_by_keyboard_alone(browser: Browser, client: Client) -> None:
    browser.open(client.port)
    assert browser.value("document.activeElement.id") == "text"
    browser.call("Input.insertText", text="a b c\nlong")
    browser.press("Enter", modifiers=2)
    browser.wait_for("document.querySelectorAll('.results > li').length == 2")
    browser.wait_for("document.getElementById('status').innerText.startsWith('2 lines in')")
    rows = "[...document.querySelectorAll('.results > li:first-child tbody tr')].map(row => row.innerText.split('\\t'))"
    found = browser.value(rows)
    assert [row[:3] for row in found] == [
        ["1", "-1.500", "c b a"], ["2", "-2.500", "c b a!"], ["3", "-3.500", "c b a!!"]
    ]  # fmt: skip
    seen = []
    while (name := browser.value("document.activeElement.getAttribute('aria-label') || document.activeElement.id")) != (
        "Attention of translation 2"
    ):
        seen.append(name)
        assert len(seen) < 12, seen
        browser.press("Tab")
        if browser.value("document.activeElement !== document.body"):
            assert browser.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert {"nbest", "source", "target", "go"} <= set(seen)
    browser.press(" ")
    browser.wait_for("document.querySelectorAll('.heat').length == 2")
    cells = "[...document.querySelector('.heat').querySelectorAll('tbody td')].map(cell => cell.innerText)"
    assert browser.value(cells) == ["100", "", "", "", "100", "", "", "", "100"]
    assert browser.value("document.querySelectorAll('.bars').length") == 2
    browser.press(" ")
    browser.wait_for("document.querySelectorAll('.heat').length == 0")
    assert browser.errors == []


def test_html_is_text(browser: Browser, client: Client) -> None:
    browser.open(client.port)
    backwards = "<img src=x onerror=alert(1)><b>bold</b>"
    browser.call("Input.insertText", text=backwards[::-1])
    browser.value("document.getElementById('form').requestSubmit()")
    browser.wait_for("document.querySelector('td.text') !== null")
    assert browser.value("document.querySelector('td.text').innerText") == backwards
    assert browser.value("document.querySelectorAll('main img, main b').length") == 0


def test_what_the_server_refuses_is_shown(browser: Browser, client: Client) -> None:
    browser.open(client.port)
    browser.call("Input.insertText", text="a\nb\nc\nd\ne")
    browser.value("document.getElementById('go').click()")
    browser.wait_for("document.getElementById('error').innerText.includes('5 lines; at most 4')")
    assert browser.value("document.getElementById('go').innerText") == "Translate"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_sizes_and_contrast(scheme: str, browser: Browser, client: Client, tmp_path: Path) -> None:
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.open(client.port)
    browser.call("Input.insertText", text="a longer sentence of seven words here")
    browser.press("Enter", modifiers=2)
    browser.wait_for("document.querySelector('.nbest button') !== null")
    browser.value("document.querySelector('.nbest button').click()")
    browser.wait_for("document.querySelector('.heat') !== null")
    browser.screenshot(tmp_path / f"{scheme}.png")
    texts = """[...document.querySelectorAll('main *')].filter(element =>
      [...element.childNodes].some(node => node.nodeType == 3 && node.textContent.trim()) && element.offsetParent)
      .map(element => { let behind = element;
        while (getComputedStyle(behind).backgroundColor.endsWith(', 0)')) behind = behind.parentElement;
        const color = getComputedStyle(behind).backgroundColor;
        const draw = document.createElement('canvas').getContext('2d', { colorSpace: 'srgb' });
        const rgb = (text) => { draw.fillStyle = text; draw.fillRect(0, 0, 1, 1);
          return [...draw.getImageData(0, 0, 1, 1).data].slice(0, 3); };
        const style = getComputedStyle(element);
        return [element.textContent, parseFloat(style.fontSize), rgb(style.color), rgb(color)]; })"""
    found = browser.value(texts)
    assert len(found) > 30
    assert [text for text, size, _, _ in found if size < 14] == []
    assert [text for text, _, color, behind in found if contrast(color, behind) < 4.5] == []
    assert (luminance(browser_background(browser)) < 0.1) == (scheme == "dark")


def browser_background(browser: Browser) -> list[int]:
    color = browser.value("getComputedStyle(document.body).backgroundColor")
    return [int(number) for number in color.removeprefix("rgb(").rstrip(")").split(",")]


def luminance(color: list[int]) -> float:
    """Return the relative luminance of WCAG 2."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (c / 255 for c in color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: list[int], other: list[int]) -> float:
    """Return the contrast of WCAG 2."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)
