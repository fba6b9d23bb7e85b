// payonce.post(url, body): one effect, however often sent; see docs/how-to/retry-from-the-browser.md
(() => {
  "use strict";
  const running = new Map();
  const place = (intent) => "payonce:" + intent;
  const held = (intent) => JSON.parse(sessionStorage.getItem(place(intent)));
  const forget = (intent) => sessionStorage.removeItem(place(intent));

  // ms: random, up to double each time
  const wait = (count, { first = 250, most = 20000, least = 0 } = {}) =>
    Math.max(least, Math.random() * Math.min(most, first * 2 ** count));

  // disables buttons; the pressed one says data-busy
  const busy = (element, on, pressed) => {
    for (const button of element.matches("button") ? [element] : element.querySelectorAll("[type=submit]")) {
      const words = button.dataset.busy ?? element.dataset.busy;
      button.disabled = on;
      if (!words || (on && pressed && button !== pressed)) continue;
      button.dataset.label ??= button.textContent;
      button.textContent = on ? words : button.dataset.label;
    }
  };

  // outcome unknown: a repeat has the same key
  class GaveUp extends Error {
    constructor(message, about) {
      Object.assign(super(message), about);
    }
  }

  // [{intent, url, body}] without a final answer
  const pending = () =>
    Object.keys(sessionStorage).flatMap((name) => {
      const intent = name.slice(8);
      if (name !== place(intent)) return [];
      const { url, sent } = held(intent);
      return { intent, url, body: JSON.parse(sent) };
    });

  const ask = async (...request) => {
    const answer = await fetch(...request);
    const { ok, status, headers } = answer;
    const text = await answer.text();
    return { ok, status, headers, data: /json/.test(headers.get("Content-Type")) ? JSON.parse(text) : text };
  };

  const send = async (intent, url, body, { headers, attempts = 8, timeout = 30000, deadline = 120000 }) => {
    const found = held(intent);
    const key = found?.key ?? crypto.getRandomValues(new Uint32Array(4)).join("-");
    if (found && (found.sent !== body || found.url !== url)) {
      throw new GaveUp("this intent has another body already", { key, intent });
    }
    sessionStorage.setItem(place(intent), JSON.stringify({ key, url, sent: body }));
    const end = Date.now() + deadline;
    for (let count = 0, answer, cause; ; count += 1) {
      answer = cause = undefined;
      try {
        answer = await ask(url, {
          method: "POST",
          body,
          headers: { ...headers, "Content-Type": "application/json", "Idempotency-Key": key },
          signal: AbortSignal.timeout(timeout),
        });
      } catch (error) {
        cause = error;
      }
      const { status, data } = answer ?? { status: 500 };
      const again = [425, 429].includes(status) || status >= 500 || data?.code === "idempotency_in_progress";
      if (!again) {
        // 401 and 403 say nothing of earlier attempts
        if (status !== 202 && !([401, 403].includes(status) && (found || count))) forget(intent);
        return answer;
      }
      const hint = answer?.headers.get("Retry-After");
      const pause = wait(count, { least: hint * 1000 || Date.parse(hint) - Date.now() || 0 });
      if (count + 1 >= attempts || Date.now() + pause > end) throw new GaveUp("no answer", { key, intent, answer, cause });
      await new Promise((done) => setTimeout(done, pause));
    }
  };

  const post = (url, body, { intent = url, button, ...options } = {}) => {
    const sent = JSON.stringify(body ?? {});
    const call = JSON.stringify([intent, url, sent]);
    if (running.has(call)) return running.get(call);
    if (button) busy(button, true);
    const promise = send(intent, url, sent, options).finally(() => {
      running.delete(call);
      if (button) busy(button, false);
    });
    running.set(call, promise);
    return promise;
  };

  window.payonce = { post, pending, forget, busy, wait, GaveUp };
})();
