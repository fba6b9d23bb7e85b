// Comfort for the checkout pages: nothing here is needed for an order or a charge to happen once.
(() => {
  "use strict";

  // Disable what was pressed, after the browser has taken the form's fields.
  const busy = (form, on) => {
    for (const button of form.querySelectorAll("button[type=submit]")) {
      button.disabled = on;
      if (on && form.dataset.busy) {
        button.dataset.label = button.textContent;
        button.textContent = form.dataset.busy;
      } else if (!on && button.dataset.label) {
        button.textContent = button.dataset.label;
      }
    }
  };

  for (const form of document.querySelectorAll("form[data-once]")) {
    form.addEventListener("submit", () => setTimeout(() => busy(form, true), 0));
  }

  // A page taken from the browser's memory after "back": buttons work again; an order's page is fetched anew.
  addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    if (document.querySelector("[data-renew]")) {
      location.reload();
      return;
    }
    for (const form of document.querySelectorAll("form[data-once]")) busy(form, false);
  });

  // The first of two equal requests is still running: send the same form again, slower each time, then leave it
  // to the button.
  const MOST_RESENDS = 10;
  const waiting = document.querySelector("form[data-resubmit]");
  if (waiting) {
    const token = new FormData(waiting).get("idempotency_token") || "";
    const name = "payonce.resend." + token.slice(-24);
    let count = 0;
    try {
      count = Number(sessionStorage.getItem(name)) || 0;
      sessionStorage.setItem(name, String(count + 1));
    } catch {
      count = MOST_RESENDS; // no storage, no counting: leave it to the button
    }
    if (count < MOST_RESENDS) setTimeout(() => waiting.submit(), 1000 + 500 * count);
  }

  for (const time of document.querySelectorAll("time[data-local]")) {
    const moment = new Date(time.dateTime);
    if (!Number.isNaN(moment.getTime())) {
      time.textContent = new Intl.DateTimeFormat(document.documentElement.lang || undefined, {
        dateStyle: "medium",
        timeStyle: "short",
      }).format(moment);
    }
  }

  // Be told when the order changes; where that does not work, ask, less often the longer it takes.
  const FIRST_WAIT_MS = 1500;
  const LONGEST_WAIT_MS = 10000;
  const order = document.querySelector("[data-poll]");
  if (order && !("final" in order.dataset)) {
    let wait = FIRST_WAIT_MS;
    let timer = 0;
    const ask = async () => {
      try {
        const answer = await fetch(order.dataset.poll, {
          headers: { Accept: "application/json" },
          credentials: "same-origin",
          cache: "no-store",
        });
        if (answer.status === 401 || answer.status === 404) {
          location.reload();
          return;
        }
        if (answer.ok && (await answer.json()).state !== order.dataset.state) {
          location.replace(location.pathname);
          return;
        }
      } catch {
        // offline or a server restarting: ask again later
      }
      wait = Math.min(wait * 1.25, LONGEST_WAIT_MS);
      plan();
    };
    const plan = () => {
      clearTimeout(timer);
      if (!document.hidden) timer = setTimeout(ask, wait);
    };
    const poll = () => {
      document.addEventListener("visibilitychange", () => {
        wait = FIRST_WAIT_MS;
        plan();
      });
      plan();
    };
    if (order.dataset.live && window.EventSource) {
      const live = new EventSource(order.dataset.live);
      live.addEventListener("status", (event) => {
        if (JSON.parse(event.data).state === order.dataset.state) return;
        live.close();
        location.replace(location.pathname);
      });
      // closed for good is what a refusal does; a broken connection is tried again by the browser itself
      live.addEventListener("error", () => {
        if (live.readyState === EventSource.CLOSED) poll();
      });
      addEventListener("pagehide", () => live.close());
    } else {
      poll();
    }
  }
})();
