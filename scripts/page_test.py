#!/usr/bin/env python3
"""Uses the gateway's page as a person does, in a headless Chromium: `make page-test`.

    scripts/page_test.py [--model DIR] [--text TEXT] [--screenshot FILE.png]

Opens the page, types a text, waits for the answer and reads the ledger. The page may ask nobody but the gateway, and by
a foreign host name it is refused (DNS rebinding). The browser is driven over a pipe, by its DevTools protocol.
"""

import argparse
import base64
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from two_processes import ROOT, Failed, Listening, Server

TINY = ROOT / "crates/hushed-model/tests/golden/tiny/roberta"
#: Seconds until something must have happened.
PATIENCE = 120


def until(what, ask):
    """What `ask` answers, once it is something."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if answer := ask():
            return answer
        time.sleep(0.1)
    sys.exit(f"page_test: {what} did not happen in {PATIENCE} s")


class Browser:
    """A page of a headless Chromium."""

    def __init__(self, program, folder, *arguments):
        (self.out, theirs), (back, self.into) = os.pipe(), os.pipe()

        def files():
            # It reads commands from file 3 and writes answers to file 4, each ended by a zero.
            ours = os.dup(theirs)
            os.dup2(back, 3)
            os.dup2(ours, 4)

        command = [program, "--headless", "--remote-debugging-pipe", f"--user-data-dir={folder}", "--no-first-run"]
        command += ["--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb"]
        command += ["--no-sandbox"] if os.geteuid() == 0 else []
        self.process = subprocess.Popen(
            [*command, *arguments], preexec_fn=files, close_fds=False, stderr=subprocess.DEVNULL
        )
        os.close(theirs)
        os.close(back)
        self.number, self.rest, self.events, self.session = 0, b"", [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.call(f"{domain}.enable")

    def message(self):
        while b"\0" not in self.rest:
            more = os.read(self.out, 1 << 16)
            if not more:
                sys.exit("page_test: the browser has ended")
            self.rest += more
        first, _, self.rest = self.rest.partition(b"\0")
        return json.loads(first)

    def call(self, method, **parameters):
        self.number += 1
        said = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            said["sessionId"] = self.session
        os.write(self.into, json.dumps(said).encode() + b"\0")
        while True:
            heard = self.message()
            if heard.get("id") == self.number:
                if "error" in heard:
                    sys.exit(f"page_test: {method}: {heard['error']}")
                return heard["result"]
            self.events.append(heard)

    def ask(self, expression):
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            sys.exit(f"page_test: {expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def text(self, id):
        return self.ask(f"document.getElementById({json.dumps(id)}).innerText")

    def open(self, url):
        self.call("Page.navigate", url=url)
        until(f"{url} is loaded", lambda: self.ask("document.readyState") == "complete")

    def seen(self, method):
        return [event["params"] for event in self.events if event["method"] == method]

    def close(self):
        self.process.terminate()
        self.process.wait()


def check(what, holds):
    if not holds:
        sys.exit(f"page_test: {what}")
    print(f"ok  {what}")


def use(browser, home, arguments):
    browser.open(f"{home}/")
    until("the page knows the server", lambda: "Model hash" in browser.text("facts"))
    rows = "[...document.querySelectorAll('#lines tr')].map(row => [...row.cells].map(cell => cell.textContent))"
    passes = lambda: [line for line in browser.ask(rows) if line[1] == "pass"]
    check("the ledger has no pass yet", passes() == [])
    browser.ask("document.getElementById('text').focus()")
    browser.call("Input.insertText", text=arguments.text)
    box = "(b => [b.x + b.width / 2, b.y + b.height / 2])(document.getElementById('go').getBoundingClientRect())"
    x, y = browser.ask(box)
    for kind in ("mousePressed", "mouseReleased"):
        browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    said = until("an answer", lambda: re.fullmatch(r"(\d+) numbers in .* s; the text has (\d+) tokens\.", browser.text("state")))
    check(f"the answer came: {said[0]}", browser.text("answer").count(",") == 8)
    lines = until("a line of the ledger", passes)
    check(f"the ledger has the pass, with its tokens: {lines}", [line[2] for line in lines] == [said[2]])
    check("the text is not in the ledger", arguments.text not in browser.ask("fetch('/ledger').then(l => l.text())"))
    if arguments.screenshot:
        size = browser.ask("[document.documentElement.scrollWidth, Math.ceil(document.querySelector('main').getBoundingClientRect().bottom + 24)]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
        image = browser.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        pathlib.Path(arguments.screenshot).write_bytes(base64.b64decode(image["data"]))
    asked = {event["request"]["url"] for event in browser.seen("Network.requestWillBeSent")}
    check("the page asks nobody but the gateway", all(url.startswith(f"{home}/") for url in asked))
    check("the page raised nothing", not browser.seen("Runtime.exceptionThrown"))
    evil = f"http://evil.example:{home.rpartition(':')[2]}/"
    browser.open(evil)
    status = [e["response"]["status"] for e in browser.seen("Network.responseReceived") if e["response"]["url"] == evil]
    check("by a foreign host name it is refused", status == [403])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default=TINY)
    parser.add_argument("--text", default="the private world")
    parser.add_argument("--screenshot")
    arguments = parser.parse_args()
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next((found for name in names if (found := shutil.which(name))), None)
    if not program:
        sys.exit("page_test: chromium is missing. On Debian: apt-get install chromium")
    rules = "--host-resolver-rules=MAP evil.example 127.0.0.1"
    with tempfile.TemporaryDirectory() as work, Server(arguments.model, "--cert-dir", f"{work}/cert") as server:
        with Listening("gateway", "--server", server.address, "--pin", server.pin) as gateway:
            browser = Browser(program, f"{work}/browser", "--window-size=920,900", rules)
            try:
                use(browser, gateway.address, arguments)
            finally:
                browser.close()


if __name__ == "__main__":
    try:
        main()
    except Failed as problem:
        sys.exit(f"page_test: {problem}")
