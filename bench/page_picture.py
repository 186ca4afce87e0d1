#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""page_picture.py CHROMIUM SERVE OUT.png: the page to chat with, after two questions to the embedded model, as a picture.

    python3 bench/page_picture.py chromium bin/chimere-serve-stdio bench/page.png
    pngquant --force -o bench/page.png 64 bench/page.png      # a third of the bytes

The questions are typed into the page, and the answers are the server's. Chromium is driven by tests/clients/page.py.
"""
import base64
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "clients"))
from page import Browser  # noqa: E402

QUESTIONS = ["What does the C function strtod do?", "What is 51945 + 292?"]


def main(chromium, serve, out):
    os.environ["NO_PROXY"] = "*"
    server = subprocess.Popen([serve, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    try:
        url = json.loads(server.stdout.readline())["url"]
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            browser = Browser(chromium, profile)
            browser.open(url)
            browser.size(860, 660)
            for i, question in enumerate(QUESTIONS):
                browser.say(question)
                browser.wait(f"document.querySelectorAll('article.assistant').length > {i}")
                browser.answered()
            browser.click("article.assistant:last-of-type summary")  # what it thought
            browser.look("document.activeElement.blur()")
            browser.wait("document.getAnimations().length == 0")
            picture = browser.call("Page.captureScreenshot", format="png")["data"]
            browser.call_browser("Browser.close")
            browser.process.wait()
        pathlib.Path(out).write_bytes(base64.b64decode(picture))
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
