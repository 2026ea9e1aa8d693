"""The widget in a page that no Jupyter server made: VS Code's renderer, a saved notebook.

VS Code runs a widget's module in a sandboxed frame of an origin of its own, under a content security policy, with a
model that only a comm connects with the kernel. The page here is such a frame; the model is the smallest that keeps
to anywidget's contract.
"""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from jupyter_gpupool.widget.usage import built

SUMMARY = "state: attached\nshare: 0.2 GPU of node/gpu0 <b>not bold</b>"
AT = 1_800_000_000

#: A frame without an origin, that may run scripts and reach nothing.
OUTER = '<!doctype html><title>editor</title><iframe sandbox="allow-scripts" src="/frame.html" width="700" height="500"></iframe>'
FRAME = """<!doctype html><html lang="en"><title>output</title><style nonce="n">%(css)s</style><div id="cell"></div>
<script type="module" nonce="n">
const listeners = new Map();
const state = { kernel_id: 'k-1', summary: %(summary)s, taken_at: %(at)d };
window.sent = [];
window.model = {
  get: name => state[name],
  set(name, value) { state[name] = value; listeners.get(`change:${name}`)?.forEach(f => f()); },
  save_changes() {},
  send(content) { window.sent.push(content); },
  on(name, f) { listeners.set(name, [...(listeners.get(name) ?? []), f]); },
  off(name, f) { listeners.set(name, (listeners.get(name) ?? []).filter(one => one !== f)); }
};
const url = URL.createObjectURL(new Blob([%(module)s], { type: 'text/javascript' }));
const widget = (await import(url)).default;
window.end = widget.render({ model: window.model, el: document.getElementById('cell') });
</script></html>
"""
POLICY = "default-src 'none'; script-src 'nonce-n' blob:; style-src 'nonce-n'; connect-src 'none'"


@pytest.fixture
def elsewhere(context: BrowserContext) -> Iterator[Page]:
    """The page; its console must stay empty."""
    frame = FRAME % {
        "css": built("usage.css"),
        "summary": json.dumps(SUMMARY).replace("</", "<\\/"),
        "at": AT,
        # The text of a script element ends where it says so.
        "module": json.dumps(built("usage.js")).replace("</", "<\\/"),
    }

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            if self.path == "/frame.html":
                self.send_header("Content-Security-Policy", POLICY)
            self.end_headers()
            self.wfile.write((frame if self.path == "/frame.html" else OUTER).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = context.new_page()
    said: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(f"http://127.0.0.1:{server.server_port}/")
    yield page
    page.close()
    server.shutdown()
    said = [text for text in said if "favicon" not in text]
    assert said == []
    assert [url for url in requests if "gpupool" in url] == []


def test_the_last_figures_stand_there_and_the_kernel_is_asked_on_a_click_only(elsewhere: Page) -> None:
    frame = elsewhere.frames[1]
    view = frame.get_by_role("region", name="GPU use of this kernel")
    expect(view).to_contain_text("share: 0.2 GPU of node/gpu0 <b>not bold</b>")
    expect(view.get_by_role("status")).to_contain_text("no way to the Jupyter server")
    expect(view.get_by_role("status")).to_contain_text("2027")
    elsewhere.wait_for_timeout(1500)
    assert frame.evaluate("window.sent") == []

    refresh = view.get_by_role("button", name="Refresh")
    refresh.click()
    assert frame.evaluate("window.sent") == [{"type": "refresh"}]
    expect(refresh).to_be_disabled()
    frame.evaluate("model.set('summary', 'state: parked'); model.set('taken_at', 1900000000)")
    expect(view).to_contain_text("state: parked")
    expect(view.get_by_role("status")).to_contain_text("2030")
    expect(refresh).to_be_enabled()


def test_a_kernel_that_does_not_answer_is_said(elsewhere: Page) -> None:
    frame = elsewhere.frames[1]
    view = frame.get_by_role("region", name="GPU use of this kernel")
    view.get_by_role("button", name="Refresh").click()
    expect(view.get_by_role("status")).to_contain_text("has not answered yet")
    expect(view.get_by_role("button", name="Refresh")).to_be_enabled()
    frame.evaluate("window.end()")
    expect(frame.locator("#cell")).to_be_empty()
