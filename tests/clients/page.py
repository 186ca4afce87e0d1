# SPDX-License-Identifier: Apache-2.0
"""The page of chimere-serve-stdio --listen in headless Chromium, used with mouse, keys and files as a person would.

page.py CHROMIUM URL KEY [CASE ...]: URL is a server with the embedded model and --api-key-file, KEY one of its keys.
Run by tests/cli/http.bats where a Chromium is installed; by hand:
    echo secret > keys; chimere-serve-stdio --listen 127.0.0.1:8080 --api-key-file keys &
    python3 tests/clients/page.py chromium http://127.0.0.1:8080 secret
The browser is spoken to through two pipes, in the DevTools protocol; Python needs no packages. Answers that the model would
not give (Markdown, an attack) are put in the server's place with the browser's Fetch domain; all others are the server's.
"""
import base64
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time
import urllib.request

WAIT_S = 60  # for something that happens, however busy the machine is


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
        self.to, self.back, self.n, self.session, self.rest, self.events = here[1], theirs[0], 0, None, b"", []
        self.holding = False  # the next request is for us, not for the server

    def read_message(self):
        while b"\0" not in self.rest:
            if not select.select([self.back], [], [], WAIT_S)[0]:
                raise SystemExit("the browser says nothing")
            part = os.read(self.back, 1 << 16)
            if not part:
                raise SystemExit("the browser has ended")
            self.rest += part
        line, self.rest = self.rest.split(b"\0", 1)
        return json.loads(line)

    def send(self, session, method, **params):
        self.n += 1
        message = {"id": self.n, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        return self.n

    def call(self, method, **params):
        asked = self.send(self.session, method, **params)
        while True:
            answer = self.read_message()
            if answer.get("id") == asked:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            self.keep_event(answer)

    def keep_event(self, event):
        if event.get("method") == "Fetch.requestPaused" and not self.holding:
            self.send(event["sessionId"], "Fetch.continueRequest", requestId=event["params"]["requestId"])
        elif "method" in event:
            self.events.append(event)

    def event(self, method):
        while True:
            for i, event in enumerate(self.events):
                if event.get("method") == method:
                    return self.events.pop(i)["params"]
            self.keep_event(self.read_message())

    def look(self, expression):
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True)
        assert "exceptionDetails" not in got, got
        return got["result"].get("value")

    def wait(self, expression):
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            if self.look(f"!!({expression})"):
                return
            time.sleep(0.05)
        raise AssertionError(f"waited for {expression}: " + str(self.look("document.body.innerText"))[-800:])

    # ---- what a person does ----

    def open(self, url, before="", ready="document.body?.dataset.ready"):
        page = self.call_browser("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call_browser("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "DOM", "Log", "Accessibility"):
            self.call(domain + ".enable")
        self.call("Fetch.enable", patterns=[{"urlPattern": "*/v1/chat/completions"}])
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        self.size(1280, 800)
        if before:
            self.call("Page.addScriptToEvaluateOnNewDocument", source=before)
        self.call("Page.navigate", url=url)
        self.wait(ready)
        return self.session

    def call_browser(self, method, **params):
        session, self.session = self.session, None
        try:
            return self.call(method, **params)
        finally:
            self.session = session

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def reload(self):
        self.events = [event for event in self.events if event.get("method") != "Page.loadEventFired"]
        self.call("Page.reload")
        self.event("Page.loadEventFired")
        self.wait("document.body?.dataset.ready")

    def click(self, selector):
        """The mouse, at the middle of an element, which must be there to be hit."""
        find = f"document.querySelector({json.dumps(selector)})"
        self.wait(f"""(() => {{ const e = {find}; if (!e || e.disabled) return false;
            e.scrollIntoView({{ block: 'nearest' }}); const r = e.getBoundingClientRect();
            return e.contains(document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2)); }})()""")
        x, y = self.look(f"(r => [r.x + r.width / 2, r.y + r.height / 2])({find}.getBoundingClientRect())")
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left" if kind != "mouseMoved" else "none",
                      clickCount=0 if kind == "mouseMoved" else 1)

    def key(self, name, shift=False, control=False):
        codes = {"Enter": 13, "Escape": 27, "Tab": 9, " ": 32, "ArrowDown": 40, "a": 65}
        text = {"text": "\r"} if name == "Enter" else {"text": " "} if name == " " else {}
        more = {"commands": ["selectAll"]} if control and name == "a" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code="Key" + name.upper() if len(name) == 1 else name,
                      windowsVirtualKeyCode=codes[name], modifiers=(8 if shift else 0) | (2 if control else 0),
                      **(text if kind == "keyDown" and not control else {}), **(more if kind == "keyDown" else {}))

    def type(self, text):
        self.call("Input.insertText", text=text)

    def fill(self, selector, text):
        self.click(selector)
        self.key("a", control=True)
        self.type(text)

    def drop(self, *paths):
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=600, y=300,
                      data={"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1})

    def choose(self, selector, *paths):
        """The files that somebody picks in the browser's own window."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(path) for path in paths])

    def say(self, text):
        self.fill("#text", text)
        self.key("Enter")

    def answered(self):
        self.wait("!document.body.classList.contains('running') && document.querySelector('article.assistant:last-of-type .figures')")

    # ---- in the server's place ----

    def lose(self, ask):
        """The next request finds no server."""
        self.call("Fetch.failRequest", requestId=self.hold(ask)["requestId"], errorReason="ConnectionRefused")

    def hold(self, ask):
        self.holding = True
        ask()
        paused = self.event("Fetch.requestPaused")
        self.holding = False
        return paused

    def answer(self, *deltas, ask=None):
        """The next answer is these pieces of text, or deltas; returns the body of the request."""
        paused = self.hold(ask)
        deltas = [{"content": delta} if isinstance(delta, str) else delta for delta in deltas]
        events = [{"choices": [{"delta": delta, "finish_reason": None}]} for delta in deltas]
        events += [{"choices": [{"delta": {}, "finish_reason": "stop"}]}]
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        self.call("Fetch.fulfillRequest", requestId=paused["requestId"], responseCode=200,
                  responseHeaders=[{"name": "Content-Type", "value": "text/event-stream"}],
                  body=base64.b64encode(body.encode()).decode())
        self.answered()
        return json.loads(paused["request"]["postData"])

    def change(self, ask, **members):
        """The next request reaches the server with these members, too."""
        paused = self.hold(ask)
        body = {**json.loads(paused["request"]["postData"]), **members}
        self.call("Fetch.continueRequest", requestId=paused["requestId"],
                  postData=base64.b64encode(json.dumps(body).encode()).decode())


URL = KEY = None


def metric(name):
    request = urllib.request.Request(URL + "/metrics", headers={"Authorization": "Bearer " + KEY})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as reply:
        lines = reply.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("chimere_" + name))


def texts(browser, selector):
    return browser.look(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent)")


def fresh(browser):
    browser.click("#fresh")
    browser.wait("document.querySelectorAll('article').length === 0 && document.activeElement.id === 'text'")


def case_key(browser, place):
    """The server's 401 is a question, once; a wrong key is asked for again, Escape leaves the message on the line."""
    asked = "document.getElementById('question')?.open && document.body.dataset.ready"
    browser.open(URL + "/", ready=asked)
    browser.key("Escape")
    browser.wait("document.querySelector('.error')?.textContent.includes('key')")
    browser.say("Are you there?")
    browser.wait(asked)
    browser.key("Escape")
    browser.wait("document.getElementById('text').value === 'Are you there?' && !document.querySelector('article')")
    browser.key("Enter")
    browser.wait(asked)
    browser.type("wrong")
    browser.key("Enter")
    browser.wait("document.getElementById('question-text').textContent.includes('refused')")
    browser.wait(asked)
    browser.type(KEY)
    browser.key("Enter")
    browser.wait("document.querySelector('article.assistant')")
    browser.answered()
    browser.wait("document.getElementById('model').textContent.endsWith('.gguf')")
    browser.reload()
    browser.wait("document.getElementById('model').textContent.endsWith('.gguf')")
    assert browser.look("document.getElementById('question').open") is False
    assert browser.look("sessionStorage['chimere.key']") == KEY
    assert browser.look(f"Object.values(localStorage).join().includes({json.dumps(KEY)})") is False


def case_turns(browser, place):
    """Two turns, reasoning folded, figures; a reload keeps them; the answer is said once."""
    fresh(browser)
    browser.look("window.said = 0; new MutationObserver(() => said++).observe(document.getElementById('said'),"
                 " { childList: true, characterData: true, subtree: true })")
    browser.click("#settings-open")
    browser.fill("#set-temperature", "0")
    browser.click("#settings-close")
    browser.say("What is 347 + 58? <b>")
    browser.answered()
    browser.say("And 12 + 30?")
    browser.wait("document.querySelectorAll('article').length === 4")
    browser.answered()
    assert browser.look("said") == 2
    assert browser.look("document.getElementById('log').getAttribute('aria-live')") == "off"
    assert browser.look("document.getElementById('said').textContent").startswith("Answer: ")
    assert all(len(text) > 0 for text in texts(browser, ".assistant > .body"))
    assert browser.look("document.querySelector('.user b')") is None  # text is text
    assert browser.look("document.querySelector('.thought').open") is False
    browser.click(".thought summary")
    browser.wait("document.querySelector('.thought').lastChild.textContent.includes('347')")
    assert "tokens/s" in texts(browser, ".figures")[0]
    assert "of 4,096 tokens used" in browser.look("document.getElementById('context').textContent")
    before = texts(browser, "article > .body")
    browser.reload()
    assert texts(browser, "article > .body") == before and len(before) == 4
    assert browser.look("document.getElementById('set-temperature').value") == "0"
    assert browser.look("document.getElementById('title').textContent") == "What is 347 + 58? <b>"


def case_list(browser, place):
    """Rename, search, another window, delete with a question."""
    fresh(browser)
    browser.answer("Blue.", ask=lambda: browser.say("A colour?"))
    browser.click("#talks .current button[aria-label^=Rename]")
    browser.wait("document.getElementById('question').open")
    browser.type("Colours <i>")
    browser.key("Enter")
    browser.wait("document.querySelector('#talks .current .talk').textContent === 'Colours <i>'")
    browser.fill("#find", "blue")
    assert texts(browser, "#talks .talk") == ["Colours <i>"]
    browser.fill("#find", "no such words")
    assert texts(browser, "#talks li") == ["Nothing found"]
    browser.fill("#find", " ")
    first = browser.session
    second = browser.open(URL + "/", f"sessionStorage['chimere.key'] = {json.dumps(KEY)}")
    browser.wait("document.querySelectorAll('#talks .talk').length > 1")
    browser.look("[...document.querySelectorAll('#talks .talk')].find(e => e.textContent === 'Colours <i>').click()")
    browser.wait("document.querySelector('article.assistant .body').textContent.trim() === 'Blue.'")
    browser.answer("Red.", ask=lambda: browser.say("Another?"))
    browser.session = first
    browser.wait("document.querySelectorAll('article').length === 4")  # what the other window has added
    browser.click("#talks .current button[aria-label^=Delete]")
    browser.wait("document.getElementById('question').open && document.activeElement.id === 'question-no'")
    browser.key("Enter")
    browser.wait("!document.getElementById('question').open")
    assert "Colours <i>" in texts(browser, "#talks .talk")
    browser.click("[popovertarget=menu]")
    browser.click("#delete")
    browser.click("#question-yes")
    browser.wait("document.querySelectorAll('article').length === 0")
    browser.wait("![...document.querySelectorAll('#talks .talk')].some(e => e.textContent === 'Colours <i>')")
    browser.session = second
    browser.wait("![...document.querySelectorAll('#talks .talk')].some(e => e.textContent === 'Colours <i>')")
    browser.call("Page.close")
    browser.session = first
    browser.reload()
    assert "Colours <i>" not in texts(browser, "#talks .talk")


def case_export(browser, place):
    """Markdown to read, JSON as chimere-run --messages takes it, which can be opened again."""
    fresh(browser)
    browser.click("#settings-open")
    browser.fill("#set-system", "Be brief.")
    browser.click("#settings-close")
    browser.answer({"reasoning_content": "Hm."}, "**Paris**", ask=lambda: browser.say("The capital of France?"))
    saved = place / "saved"
    browser.call_browser("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(saved))
    for what in ("markdown", "json"):
        browser.click("[popovertarget=menu]")
        browser.click("#export-" + what)
    markdown, messages = saved / "The-capital-of-France.md", saved / "The-capital-of-France.json"
    end = time.monotonic() + WAIT_S
    while not (markdown.exists() and messages.exists()) and time.monotonic() < end:
        time.sleep(0.05)
    assert markdown.read_text() == ("# The capital of France?\n\n## System\n\nBe brief.\n\n## You\n\nThe capital of France?\n\n"
                                    "## Answer\n\n**Paris**\n")
    assert json.loads(messages.read_text()) == [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "The capital of France?"},
        {"role": "assistant", "content": "**Paris**", "reasoning_content": "Hm."}]
    (saved / "other.json").write_text('{"a": 1}')
    fresh(browser)
    browser.choose("#saved", saved / "other.json", messages)
    browser.wait("document.querySelectorAll('article').length === 2 && document.querySelector('.error')")
    assert "other.json: has no messages" in texts(browser, ".error")[0]
    sent = browser.answer("Yes.", ask=lambda: browser.say("Sure?"))
    assert sent["messages"] == json.loads(messages.read_text()) + [{"role": "user", "content": "Sure?"}]


def case_settings(browser, place):
    """The panel is the conversation's; empty fields are not sent; its values can be those of new ones."""
    fresh(browser)
    browser.click("#settings-open")
    for name, value in (("temperature", "0.25"), ("top_p", "0.9"), ("top_k", "40"), ("min_p", "0.05"), ("max_tokens", "77"),
                        ("reasoning_budget", "11"), ("system", "Be kind.")):
        browser.fill("#set-" + name, value)
    browser.look("document.getElementById('set-thinking').value = 'off';"
                 "document.getElementById('set-thinking').dispatchEvent(new Event('change', { bubbles: true }))")
    sent = browser.answer("Yes.", ask=lambda: browser.say("Set?"))
    members = {name: sent[name] for name in sent if name not in ("messages", "stream", "stream_options")}
    assert members == {"temperature": 0.25, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "max_tokens": 77, "reasoning_budget": 11,
                       "chat_template_kwargs": {"enable_thinking": False}}, members
    assert sent["messages"] == [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Set?"}]
    browser.say("Does the server take all of that?")
    browser.wait("document.querySelectorAll('article').length === 4")
    browser.answered()
    fresh(browser)
    assert browser.look("document.getElementById('set-top_k').value") == ""
    sent = browser.answer("No.", ask=lambda: browser.say("Set?"))
    assert set(sent) == {"messages", "stream", "stream_options"}, sent
    browser.fill("#set-top_k", "5")
    browser.click("#settings-keep")
    fresh(browser)
    assert browser.look("document.getElementById('set-top_k').value") == "5"
    browser.fill("#set-top_k", "")
    browser.key("Tab")
    browser.look("document.getElementById('set-top_k').dispatchEvent(new Event('change', { bubbles: true }))")
    browser.click("#settings-keep")
    browser.click("#settings-close")


def case_versions(browser, place):
    """A message that is edited, an answer that is asked for again: the other versions stay."""
    fresh(browser)
    browser.answer("One.", ask=lambda: browser.say("First"))
    browser.answer("Two.", ask=lambda: browser.click("article.assistant button[title='Answer again']"))
    assert texts(browser, "article > .body") == ["First", "Two."]
    assert texts(browser, ".versions") == ["2 / 2"]
    browser.answer("Next.", ask=lambda: browser.say("Go on"))

    def edit():
        browser.click("article.user button[title='Edit message']")
        browser.key("a", control=True)
        browser.type("Second")
        browser.key("Enter")
    sent = browser.answer("Three.", ask=edit)
    assert sent["messages"] == [{"role": "user", "content": "Second"}]
    assert texts(browser, "article > .body") == ["Second", "Three."]
    browser.click("article.user .versions button")
    browser.wait("document.querySelectorAll('article').length === 4")
    assert texts(browser, "article > .body") == ["First", "Two.", "Go on", "Next."]
    browser.click("article.assistant .versions button")
    assert texts(browser, "article > .body") == ["First", "One."]
    browser.wait("indexedDB")
    browser.reload()
    assert texts(browser, "article > .body") == ["First", "One."]
    browser.click("article.user button[title='Edit message']")
    browser.key("Escape")
    assert texts(browser, "article > .body") == ["First", "One."]


def case_stop(browser, place):
    """Escape and the button stop an answer, which is marked; the server is free again."""
    for stop in (lambda: browser.click("#stop"), lambda: browser.key("Escape")):
        fresh(browser)
        before = metric("cancelled_total")
        browser.change(lambda: browser.say("Go on and on."), ignore_eos=True)
        browser.wait("document.querySelector('article.assistant .thought:not([hidden]), article.assistant .body > *')")
        stop()
        browser.answered()
        assert texts(browser, ".assistant .end") == ["Stopped"]
        assert browser.look("document.activeElement.id") == "text"
        assert browser.look("document.getElementById('said').textContent") == "The answer was stopped."
        end = time.monotonic() + WAIT_S
        while (metric("cancelled_total") <= before or metric("requests_running")) and time.monotonic() < end:
            time.sleep(0.05)
        assert metric("cancelled_total") == before + 1 and metric("requests_running") == 0
    browser.reload()
    assert texts(browser, ".assistant .end") == ["Stopped"]


def case_too_long(browser, place):
    """A message that the server refuses is told about and back on the line; the talk goes on without it."""
    fresh(browser)
    browser.answer("Hello.", ask=lambda: browser.say("Hi"))
    browser.say("word " * 9000)
    browser.wait("document.querySelector('.error')")
    assert "context" in texts(browser, ".error")[0] and "4096" in texts(browser, ".error")[0]
    browser.wait("document.querySelector('.error').getBoundingClientRect().bottom <= "
                 "document.getElementById('form').getBoundingClientRect().top")
    assert browser.look("document.getElementById('text').value") == "word " * 9000
    assert texts(browser, "article > .body") == ["Hi", "Hello."]
    (place / "kept.txt").write_text("kept")
    browser.choose("#pick", place / "kept.txt")
    browser.wait("document.querySelectorAll('#files li').length === 1")
    browser.click("#fresh")  # another conversation has another line
    browser.wait("document.querySelectorAll('#files li').length === 0 && document.getElementById('text').value === ''")
    browser.click("#talks .talk")
    browser.wait("document.querySelectorAll('#files li').length === 1")
    assert browser.look("document.getElementById('text').value") == "word " * 9000
    browser.click("#files li button")
    browser.say("Short")
    browser.wait("document.querySelectorAll('article').length === 4")
    browser.answered()
    assert browser.look("document.querySelector('.error')") is None
    browser.click("article.user button[title='Edit message']")
    browser.key("a", control=True)
    browser.type("word " * 9000)
    browser.key("Enter")
    browser.wait("document.querySelector('.error') && document.querySelector('.editor textarea')")
    assert browser.look("document.querySelector('.editor textarea').value") == "word " * 9000
    browser.key("Escape")
    assert len(texts(browser, "article")) == 4
    browser.lose(lambda: browser.say("Anybody?"))
    browser.wait("document.querySelector('.error')")
    assert texts(browser, ".error") == ["Not sent: the server does not answer."]
    assert browser.look("document.getElementById('text').value") == "Anybody?" and len(texts(browser, "article")) == 4
    browser.lose(lambda: browser.click("article:last-of-type button[title='Answer again']"))
    browser.wait("!document.body.classList.contains('running') && document.querySelector('.error')")
    assert len(texts(browser, "article")) == 4 and texts(browser, ".versions") == []
    fresh(browser)
    browser.say("word " * 9000)
    browser.wait("document.querySelector('.error')")
    browser.fill("#text", "")
    assert not any(title.startswith("word") for title in texts(browser, "#talks .talk"))


def case_files(browser, place):
    """Text files by the button and by the mouse; binary and large ones are refused; names are text."""
    fresh(browser)
    attack = place / "<img src=x onerror=hit=1>.txt"
    attack.write_text("alpha\n```\nbeta")
    (place / "data.bin").write_bytes(b"\x00\x01\xff")
    (place / "latin.txt").write_bytes("é".encode("latin-1"))
    (place / "large.txt").write_text("x" * ((1 << 20) + 1))
    browser.choose("#pick", attack)
    browser.wait("document.querySelectorAll('#files li').length === 1")
    browser.drop(place / "data.bin", place / "latin.txt", place / "large.txt")
    browser.wait("document.querySelector('.error')")
    told = texts(browser, ".error")[0]
    assert "data.bin is not a text file" in told and "latin.txt is not a text file" in told, told
    assert "large.txt has 1.0 MB, at most 1.0 MB" in told, told
    browser.drop(attack)
    browser.wait("document.querySelectorAll('#files li').length === 2")
    browser.click("#files li:last-child button")
    assert len(texts(browser, "#files li")) == 1
    sent = browser.answer("Read.", ask=lambda: browser.say("What is in it?"))
    assert sent["messages"][0]["content"] == f"File {attack.name}:\n````\nalpha\n```\nbeta\n````\n\nWhat is in it?"
    assert attack.name in texts(browser, ".user .files summary")[0]
    assert browser.look("document.querySelector('.files img, article img')") is None and browser.look("window.hit") is None
    browser.click(".user .files summary")
    browser.wait("document.querySelector('.user .files pre').textContent.includes('beta')")


ATTACK = """<img src=x onerror="window.hit=1"> and <b onclick="hit=1">bold</b>

<script>window.hit = 2</script>

<iframe srcdoc="<script>parent.hit=3</script>"></iframe>

[a](javascript:window.hit=4) [b](JaVaScRiPt:window.hit=4) [c](data:text/html,<script>hit=4</script>) [d](&#106;avascript:hit=4)
[e](vbscript:x) [f](//evil.example/) [g](/v1/models) [h](https://good.example/a?b=1&c=2) [i](mailto:a@good.example)
![picture](https://evil.example/track.png) <https://good.example> <javascript:hit=5>

```"><img src=x onerror=hit=6>
</code><img src=x onerror=hit=6>
```

| <img src=x onerror=hit=7> |
|---|
| <svg onload=hit=7> one<br>two |

`<img src=x onerror=hit=8>` &lt;img src=x onerror=hit=9&gt; [x]: javascript:hit
# <img src=x onerror=hit=10>
<style>* { display: none }</style>
"""


def case_attack(browser, place):
    """An answer's HTML is text, its links lead to the web alone, nothing is loaded."""
    fresh(browser)
    browser.answer({"reasoning_content": ATTACK}, *[ATTACK[i:i + 7] for i in range(0, len(ATTACK), 7)],
                   ask=lambda: browser.say("<img src=x onerror=hit=11>"))
    browser.click(".thought summary")
    browser.wait("document.querySelector('.thought').lastChild.textContent.length > 100")
    assert browser.look("window.hit") is None
    assert browser.look("document.querySelectorAll('#messages :is(img, script, iframe, style, b, object, form)').length") == 0
    assert browser.look("document.querySelectorAll('#messages .body svg:not(.i)').length") == 0
    assert browser.look("[...document.querySelectorAll('#messages *')].every(e => ![...e.attributes].some(a => /^on/i.test(a.name)))")
    links = browser.look("[...document.querySelectorAll('#messages .assistant > .body a')].map(a => a.getAttribute('href'))")
    assert links == ["https://good.example/a?b=1&c=2", "mailto:a@good.example", "https://evil.example/track.png",
                     "https://good.example/"], links
    assert browser.look("[...document.querySelectorAll('#messages a')].every(a => a.rel.includes('noopener') && a.target === '_blank')")
    shown = browser.look("document.querySelector('.assistant > .body').textContent")
    for text in ('<img src=x onerror="window.hit=1">', "<script>window.hit = 2</script>", "<img src=x onerror=hit=9>"):
        assert text in shown, (text, shown)
    assert texts(browser, ".user > .body") == ["<img src=x onerror=hit=11>"]
    assert texts(browser, "#title") == ["<img src=x onerror=hit=11>"]
    loaded = browser.look("performance.getEntriesByType('resource').map(r => r.name)")
    assert loaded and all(name.startswith(URL) for name in loaded), loaded
    deep = "> " * 20000 + "deep"
    browser.answer(deep, ask=lambda: browser.say("Deeper"))
    assert "deep" in browser.look("document.querySelector('article:last-child > .body').textContent")


MARKDOWN = """# One

Text with **strong**, *emphasis*, ~~gone~~, `code` &amp; a line\nthat goes on.

- a
  1. b
- [x] c

| left | right |
|:---|---:|
| 1 | 2 |

> quoted

---

```python
print("a < b")
```
"""


def case_markdown(browser, place):
    """Markdown becomes elements; the code block names its language and copies its text."""
    fresh(browser)
    browser.answer(*[MARKDOWN[i:i + 3] for i in range(0, len(MARKDOWN), 3)], ask=lambda: browser.say("Show all"))
    for selector, text in (("h3.h1", "One"), ("strong", "strong"), ("em", "emphasis"), ("del", "gone"), ("p > code", "code"),
                           ("ul > li > ol > li", "b"), ("th.right", "right"), ("td.right", "2"), ("blockquote", "quoted"),
                           (".language", "python"), ("pre > code", 'print("a < b")')):
        assert [t.strip() for t in texts(browser, ".assistant > .body " + selector)] == [text], selector
    assert texts(browser, ".code .is-string") == ['"a < b"']
    assert "code & a line" in browser.look("document.querySelector('.body p').textContent")
    assert browser.look("document.querySelector('li.task input').checked") is True
    browser.call_browser("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    browser.click(".code .copy")
    browser.wait("document.getElementById('status').textContent === 'Copied'")
    assert browser.look("navigator.clipboard.readText()") == 'print("a < b")'
    browser.click("article.assistant button[title='Copy message']")
    browser.wait(f"navigator.clipboard.readText().then(t => t === {json.dumps(MARKDOWN)})")


def case_tools(browser, place):
    """A tool of the settings is called, the line asks for its result."""
    tool = [{"type": "function", "function": {"name": "create_event", "description": "Create a calendar event.",
             "parameters": {"type": "object", "properties": {"title": {"type": "string"}, "date": {"type": "string"}},
                            "required": ["title", "date"]}}}]
    fresh(browser)
    browser.click("#settings-open")
    browser.click("#settings summary")
    browser.fill("#set-tools", "[{]")
    browser.key("Tab")
    browser.wait("document.getElementById('set-tools').getAttribute('aria-invalid') === 'true'")
    browser.say("Hi")
    browser.wait("document.querySelector('.error')?.textContent.startsWith('Not sent: the tools in the settings are no JSON')")
    browser.fill("#text", "")
    browser.fill("#set-tools", json.dumps(tool))
    browser.fill("#set-temperature", "0")
    browser.click("#settings-close")
    browser.say("Please add an event called paper planes on 2026-12-19.")
    browser.wait("document.querySelector('.call') && document.getElementById('hint').textContent === 'Result of create_event'")
    browser.answered()
    assert texts(browser, ".call")[0].startswith("create_event {")
    browser.say('{"ok": true}')
    browser.wait("document.querySelectorAll('article').length === 4")
    browser.answered()
    assert browser.look("[...document.querySelectorAll('article')].map(a => a.className.split(' ')[0]).join()") == \
        "user,assistant,tool,assistant"
    assert browser.look("document.querySelector('.error')") is None


def case_rate(browser, place):
    """An answer of the log is rated, up at once, down with a field for a better one; others have no thumbs."""
    fresh(browser)
    browser.answer("Not the server's.", ask=lambda: browser.say("Hello"))
    assert browser.look("document.querySelector('.thumbs').hidden") is True
    fresh(browser)
    browser.say("What is 2 + 2?")
    browser.wait("document.querySelector('article.assistant')")
    browser.answered()
    rated = "document.querySelector('[aria-pressed=true]')?.getAttribute('aria-label') === "
    browser.click("button[title='Good answer']")
    browser.wait(rated + "'Good answer' && document.activeElement.getAttribute('aria-pressed') === 'true'")
    browser.click("button[title='Bad answer']")
    browser.key("Escape")
    browser.wait("!document.querySelector('.editor') && document.activeElement.title === 'Bad answer'")
    browser.key("Enter")
    browser.type("Four <b>.")
    browser.click(".editor .strong")
    browser.wait(rated + "'Bad answer' && !document.querySelector('.editor')")
    browser.reload()
    browser.wait(rated + "'Bad answer' && !document.querySelector('.thumbs').hidden")
    browser.wait("document.querySelectorAll('[aria-pressed=true]').length === 1 && !document.querySelector('.error')")


def case_storage(browser, place):
    """A full or forbidden storage is told and costs nothing of what is on the screen; room again is used."""
    fresh(browser)
    browser.answer("Kept.", ask=lambda: browser.say("Before"))
    browser.look("""const put = IDBObjectStore.prototype.put; window.room = () => { IDBObjectStore.prototype.put = put; };
        IDBObjectStore.prototype.put = function (...values) { /* as the browser ends a transaction for which it has no room */
            Object.defineProperty(this.transaction, 'error', { value: new DOMException('', 'QuotaExceededError') });
            const request = put.apply(this, values);
            this.transaction.abort();
            return request; };""")
    browser.answer("Still here.", ask=lambda: browser.say("Full"))
    browser.wait("!document.getElementById('notice').hidden")
    assert "full" in texts(browser, "#notice")[0]
    assert texts(browser, "article > .body") == ["Before", "Kept.", "Full", "Still here."]
    browser.look("room()")
    browser.answer("Again.", ask=lambda: browser.say("After"))
    browser.wait("document.getElementById('notice').hidden")
    browser.reload()
    assert len(texts(browser, "article")) == 6
    first = browser.session
    browser.open(URL + "/", f"sessionStorage['chimere.key'] = {json.dumps(KEY)}; Object.defineProperty(window, 'indexedDB',"
                 " { get() { throw new DOMException('denied', 'SecurityError'); } });")
    browser.wait("!document.getElementById('notice').hidden")
    assert "keeps nothing" in texts(browser, "#notice")[0]
    for n in (2, 4):
        browser.say("Hi")
        browser.wait(f"document.querySelectorAll('article').length === {n}")
        browser.answered()
    assert "denied" in texts(browser, "#notice")[0]
    browser.session = first


def case_keyboard(browser, place):
    """Everything is reached with Tab, has a name and shows where the focus is; Enter sends, Shift+Enter makes a line."""
    fresh(browser)
    browser.type("one")
    browser.key("Enter", shift=True)
    browser.type("two")
    assert browser.look("document.getElementById('text').value") == "one\ntwo"
    sent = browser.answer("```c\nint x;\n```", ask=lambda: browser.key("Enter"))
    assert sent["messages"] == [{"role": "user", "content": "one\ntwo"}]
    reached, first = [], None
    for _ in range(80):
        browser.key("Tab")
        here = browser.look("""(e => { const s = getComputedStyle(e.id === 'text' ? document.getElementById('form') : e);
            return [e.id || e.getAttribute('aria-label') || e.textContent, e === document.body,
                    s.outlineStyle !== 'none' || s.boxShadow !== 'none', getComputedStyle(e).opacity]; })(document.activeElement)""")
        if not here[1]:
            assert here[2] and here[3] != "0", f"the focus is not to be seen: {here}"
        reached.append(here[0])
        first = first or here[0]
        if len(reached) > 10 and here[0] == first:
            break
    for name in ("fresh", "find", "theme", "settings-open", "More", "Copy message", "Edit message", "Answer again", "Copy", "text",
                 "attach", "Code, c"):
        assert name in reached, (name, reached)
    nodes = browser.call("Accessibility.getFullAXTree")["nodes"]
    for node in nodes:
        role = node.get("role", {}).get("value")
        if not node.get("ignored") and role in ("button", "textbox", "searchbox", "combobox", "spinbutton", "checkbox", "link"):
            assert node.get("name", {}).get("value", "").strip(), node
    roles = [node.get("role", {}).get("value") for node in nodes if not node.get("ignored")]
    for role in ("navigation", "main", "log", "article", "heading"):
        assert role in roles, (role, set(roles))
    browser.look("document.getElementById('settings-open').focus()")
    browser.key("Enter")
    browser.wait("document.activeElement.id === 'set-system'")
    browser.key("Escape")
    browser.wait("document.getElementById('settings').hidden && document.activeElement.id === 'settings-open'")
    browser.look("document.getElementById('theme').focus()")
    colours = set()
    for _ in range(3):
        browser.key("Enter")
        colours.add((browser.look("document.documentElement.dataset.theme"), browser.look("getComputedStyle(document.body).backgroundColor")))
    assert {theme for theme, _ in colours} == {"light", "dark", ""} and len({colour for _, colour in colours}) == 2, colours


def case_phone(browser, place):
    """360 pixels: nothing is wider, the line stays at the bottom, the list comes from the side."""
    fresh(browser)
    browser.answer(MARKDOWN + "\n`" + "x" * 200 + "`\n\n```\n" + "y" * 300 + "\n```\n", ask=lambda: browser.say("z" * 300))
    browser.size(360, 740)
    browser.wait("innerWidth === 360")
    assert browser.look("document.documentElement.scrollWidth") == 360
    assert browser.look("document.getElementById('log').scrollWidth === document.getElementById('log').clientWidth")
    assert browser.look("(r => r.bottom <= innerHeight && r.bottom > innerHeight - 60)(document.getElementById('form').getBoundingClientRect())")
    browser.wait("getComputedStyle(document.getElementById('side')).visibility === 'hidden'")
    browser.click("#side-open")
    browser.wait("document.getElementById('side').getBoundingClientRect().x === 0")
    browser.key("Escape")
    browser.wait("document.activeElement.id === 'side-open'")
    browser.click("#side-open")
    browser.wait("document.getElementById('side').getBoundingClientRect().x === 0")
    browser.click("#talks .talk")
    browser.wait("getComputedStyle(document.getElementById('side')).visibility === 'hidden'")
    browser.click("#settings-open")
    assert browser.look("(r => r.left >= 0 && r.right <= 360)(document.getElementById('settings').getBoundingClientRect())")
    browser.click("#settings-close")
    browser.size(1280, 800)


def main():
    global URL, KEY
    URL, KEY = sys.argv[2], sys.argv[3]
    wanted = ["key"] + sys.argv[4:] if len(sys.argv) > 4 else [name[5:] for name in globals() if name.startswith("case_")]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile, \
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as files:
        browser = Browser(sys.argv[1], profile)
        try:
            for name in wanted:
                globals()["case_" + name](browser, pathlib.Path(files))
                print("ok", name, flush=True)
            said = [e["params"]["entry"]["text"] for e in browser.events if e.get("method") == "Log.entryAdded"]
            assert not any("Content Security Policy" in text for text in said), said
        finally:
            browser.process.kill()
            browser.process.wait()


if __name__ == "__main__":
    main()
