# SPDX-License-Identifier: Apache-2.0
"""The page of chimere-serve-stdio --listen in headless Chromium, which is spoken to through two pipes.

page.py CHROMIUM URL: sends a question, reads the answer from the page, stops another one. Run by tests/cli/http.bats.
"""
import json
import os
import subprocess
import sys
import tempfile
import time


class Browser:
    def __init__(self, program, profile):
        here, theirs = os.pipe(), os.pipe()  # what it reads on 3, what it writes to 4
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" 3<&{here[0]} 4>&{theirs[1]}', program, "--headless", "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server", "--remote-debugging-pipe",
             f"--user-data-dir={profile}"],
            pass_fds=(here[0], theirs[1]), stderr=subprocess.DEVNULL)
        os.close(here[0])
        os.close(theirs[1])
        self.to, self.back, self.n, self.session, self.rest = here[1], theirs[0], 0, None, b""

    def call(self, method, **params):
        self.n += 1
        message = {"id": self.n, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                part = os.read(self.back, 1 << 16)
                if not part:
                    raise SystemExit("the browser has ended")
                self.rest += part
            line, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(line)
            if answer.get("id") == self.n:
                assert "error" not in answer, answer
                return answer["result"]

    def look(self, expression):
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in got, got
        return got["result"].get("value")

    def wait(self, expression):
        for _ in range(200):
            if self.look(f"!!({expression})"):
                return
            time.sleep(0.1)
        raise AssertionError(f"waited for {expression}: " + str(self.look("document.body.innerText")))


def visit(browser, url):
    page = browser.call("Target.createTarget", url=url)["targetId"]
    browser.session = browser.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
    browser.wait("document.readyState === 'complete' && document.getElementById('model')?.textContent.endsWith('.gguf')")


def ask(browser, text, **values):
    for name, value in {**values, "text": text}.items():
        browser.look(f"document.getElementById('{name}').value = {json.dumps(value)}")
    browser.look("document.getElementById('send').click()")


def main():
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(sys.argv[1], profile)
        try:
            visit(browser, sys.argv[2] + "/")
            ask(browser, "What is 347 + 58? <b>", temperature="0")
            browser.wait("!running && messages.length === 2")
            assert browser.look("document.querySelector('.assistant').lastChild.textContent.length > 0")
            assert "347" in browser.look("document.querySelector('details.reasoning').lastChild.textContent")
            assert browser.look("document.querySelector('details.reasoning').open") is False
            assert browser.look("document.querySelector('.user b')") is None  # text is text
            assert "tokens/s" in browser.look("document.getElementById('state').textContent")
            tool = [{"type": "function", "function": {"name": "create_event", "description": "Create a calendar event.",
                     "parameters": {"type": "object", "properties": {"title": {"type": "string"}, "date": {"type": "string"}},
                                    "required": ["title", "date"]}}}]
            browser.look("document.getElementById('fresh').click()")
            ask(browser, "Please add an event called paper planes on 2026-12-19.", tools=json.dumps(tool))
            browser.wait("!running && due.length === 1")
            assert browser.look("document.querySelector('.call').textContent").startswith("create_event {")
            ask(browser, '{"ok": true}')
            browser.wait("!running && messages.length === 4 && messages[2].role === 'tool'")
            browser.look("document.getElementById('fresh').click()")
            browser.look("body = () => ({messages: messages, stream: true, max_tokens: 5000, ignore_eos: true})")
            ask(browser, "Go on and on.")
            browser.wait("document.querySelector('.assistant')")
            browser.look("document.getElementById('stop').click()")
            browser.wait("!running && document.getElementById('state').textContent.endsWith('stopped')")
            loaded = browser.look("performance.getEntriesByType('resource').map(r => r.name).join(' ')").split()
            assert loaded and all(name.startswith(sys.argv[2]) for name in loaded), loaded
        finally:
            browser.process.kill()
            browser.process.wait()


main()
