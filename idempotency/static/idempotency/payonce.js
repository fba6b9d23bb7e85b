// payonce.post(url, body): one effect, however often sent; see docs/how-to/retry-from-the-browser.md
(() => {
  "use strict";
  const running = new Map();
  const place = (intent) => "payonce:" + intent;
  const store = (work, instead) => {
    try {
      return work(sessionStorage);
    } catch (cause) {
      if (instead) return instead;
      throw new Error("payonce: sessionStorage is blocked or full; nothing was sent", { cause });
    }
  };
  const held = (intent) => store((all) => JSON.parse(all.getItem(place(intent))));
  const forget = (intent) => store((all) => all.removeItem(place(intent)), true);

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

  // {sent}: JSON; {sent, type}: a character for each byte, the same for the same form
  const pack = async (url, body, headers) => {
    if (body instanceof ReadableStream) throw new TypeError("payonce: a stream cannot be sent again; post a Blob");
    const kinds = [FormData, URLSearchParams, Blob, ArrayBuffer];
    if (typeof body !== "string" && !ArrayBuffer.isView(body) && !kinds.some((kind) => body instanceof kind)) {
      return { sent: JSON.stringify(body ?? {}) };
    }
    const request = new Request(url, { method: "POST", body, headers });
    const type = request.headers.get("Content-Type") ?? "";
    const bytes = new Uint8Array(await request.arrayBuffer());
    const sent = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
    const random = body instanceof FormData && type.split("boundary=")[1];
    let boundary = "payonce";
    while (sent.includes(boundary)) boundary += "-";
    return random ? { sent: sent.replaceAll(random, boundary), type: type.replace(random, boundary) } : { sent, type };
  };
  const unpack = ({ sent, type }) => new Blob([Uint8Array.from(sent, (byte) => byte.charCodeAt())], { type });

  // [{intent, url, body}] without a final answer
  const pending = () =>
    store(Object.keys, []).flatMap((name) => {
      const intent = name.slice(8);
      if (name !== place(intent)) return [];
      const { url, ...packed } = held(intent);
      return { intent, url, body: "type" in packed ? unpack(packed) : JSON.parse(packed.sent) };
    });

  const ask = async (...request) => {
    const answer = await fetch(...request);
    const { ok, status, headers, redirected, url } = answer;
    const text = await answer.text();
    const data = /json/.test(headers.get("Content-Type")) ? JSON.parse(text) : text;
    return { ok, status, headers, redirected, url, data };
  };

  const send = async (intent, url, packed, { headers, attempts = 8, timeout = 30000, deadline = 120000 }) => {
    const found = held(intent);
    const key = found?.key ?? crypto.getRandomValues(new Uint32Array(4)).join("-");
    if (found && (found.sent !== packed.sent || found.url !== url)) {
      throw new GaveUp("this intent has another body already", { key, intent });
    }
    const { sent, type } = found ?? packed;
    store((all) => all.setItem(place(intent), JSON.stringify({ key, url, sent, type })));
    const body = type === undefined ? sent : unpack({ sent, type });
    headers = new Headers(headers);
    headers.set("Idempotency-Key", key);
    if (type !== "") headers.set("Content-Type", type ?? "application/json");
    const end = Date.now() + deadline;
    for (let count = 0, answer, cause; ; count += 1) {
      answer = cause = undefined;
      try {
        answer = await ask(url, {
          method: "POST",
          body,
          headers,
          signal: AbortSignal.timeout(timeout),
        });
      } catch (error) {
        cause = error;
      }
      const { status, data } = answer ?? { status: 500 };
      const again = [425, 429].includes(status) || status >= 500 || data?.code === "idempotency_in_progress";
      if (!again) {
        if (answer.redirected) throw new GaveUp("redirected to " + answer.url, { key, intent, answer });
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

  const post = async (url, body, { intent = url, button, ...options } = {}) => {
    if (button) busy(button, true);
    try {
      const packed = await pack(url, body, options.headers);
      const call = JSON.stringify([intent, url, packed.sent]);
      if (!running.has(call)) {
        running.set(call, send(intent, url, packed, options).finally(() => running.delete(call)));
      }
      return await running.get(call);
    } finally {
      if (button) busy(button, false);
    }
  };

  window.payonce = { post, pending, forget, busy, wait, GaveUp };
})();
