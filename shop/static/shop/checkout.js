// Comfort for the checkout pages: nothing here is needed for an order or a charge to happen once.
(() => {
  "use strict";
  const { busy, wait } = window.payonce;

  // The page's own navigation waits while the shopper's is under way, which it would cancel. No event says that the
  // shopper stopped that: after a while the page goes on, and a button pressed again sends the same token.
  const STOPPED_MS = 30000;
  const forms = document.querySelectorAll("form[data-once]");
  let leaving = 0;
  let postponed = null;
  const navigate = (go) => {
    if (leaving) postponed = go;
    else go();
  };
  const renew = ({ dataset }) => navigate(() => location.replace(dataset.page)); // may stand at a form's address
  const stay = () => {
    clearTimeout(leaving);
    leaving = 0;
    postponed?.();
    postponed = null;
    for (const form of forms) busy(form, false);
  };
  const leave = () => {
    clearTimeout(leaving);
    leaving = setTimeout(stay, STOPPED_MS);
  };
  for (const start of ["submit", "beforeunload"]) addEventListener(start, leave);
  // Safari on iOS has no "beforeunload"
  addEventListener("click", (event) => {
    const link = event.target.closest("a[href]:not([target], [href^='#'])");
    if (link && !(event.ctrlKey || event.metaKey || event.shiftKey)) leave();
  });

  // Disable the pressed button, after the browser has read the form's fields.
  for (const form of forms) {
    form.addEventListener("submit", (event) => setTimeout(() => busy(form, true, event.submitter), 0));
  }

  // A page taken from the browser's memory after "back": buttons work again; an order's page is fetched again.
  addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    if (document.querySelector("[data-renew]")) {
      location.reload();
      return;
    }
    stay();
  });

  // A sent order's token stays with its page's entry in the history: after "back" or a reload, Buy is the same order.
  // Opened from elsewhere, the page has an entry and a token of its own.
  const intent = document.querySelector("form[data-intent]");
  if (intent) {
    const token = intent.querySelector("input[name=idempotency_token]");
    const sent = history.state?.sent;
    const [opened] = performance.getEntriesByType("navigation");
    if (sent && ["back_forward", "reload"].includes(opened?.type)) token.value = sent;
    intent.addEventListener("submit", (event) => {
      if (event.submitter?.name === token.name) return; // that button has its own
      history.replaceState({ ...history.state, sent: token.value }, "");
    });
  }

  // The first of two equal requests is still running: send the same form again, slower each time, then leave it
  // to the button.
  const MOST_RESENDS = 10;
  const waiting = document.querySelector("form[data-resubmit]");
  if (waiting) {
    const token = new FormData(waiting).get("idempotency_token") || "";
    // "back" and a reload find the form, sent already, and not this answer to a POST, which no browser shows again
    history.replaceState({ sent: token }, "", location.href);
    const name = "payonce.resend." + token.slice(-24);
    let count = 0;
    try {
      count = Number(sessionStorage.getItem(name)) || 0;
      sessionStorage.setItem(name, String(count + 1));
    } catch {
      count = MOST_RESENDS; // no storage, no counting: leave it to the button
    }
    const send = () => navigate(() => waiting.submit());
    if (count < MOST_RESENDS) setTimeout(send, wait(count, { least: 1000, most: 6000 }));
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

  // Poll `address`, less often the longer it takes, and never while the page is hidden; `take` gets each answer and
  // returns true to stop.
  const FIRST_WAIT_MS = 1500;
  const poll = (address, take) => {
    let count = 0;
    let timer = 0;
    let over = false;
    const ask = async () => {
      try {
        const answer = await fetch(address, { headers: { Accept: "application/json" }, cache: "no-store" });
        if (answer.status === 401 || answer.status === 404) {
          navigate(() => location.reload());
          return;
        }
        over = answer.ok && take(await answer.json());
      } catch {
        // offline or a server restarting: ask again later
      }
      count += 1;
      plan();
    };
    const plan = () => {
      clearTimeout(timer);
      const longest = Math.min(FIRST_WAIT_MS * 1.25 ** count, 10000);
      if (!document.hidden && !over) timer = setTimeout(ask, wait(0, { least: longest * 0.8, first: longest * 1.2 }));
    };
    document.addEventListener("visibilitychange", () => {
      count = 0;
      plan();
    });
    plan();
  };

  // Listen for changes of the order; where that does not work, poll.
  const order = document.querySelector("[data-poll]");
  if (order && !("final" in order.dataset)) {
    const look = ({ state }) => {
      if (state === order.dataset.state) return false;
      renew(order);
      return true;
    };
    if (order.dataset.live && window.EventSource) {
      const live = new EventSource(order.dataset.live);
      live.addEventListener("status", (event) => {
        if (look(JSON.parse(event.data))) live.close();
      });
      // a refusal closes it for good; the browser itself retries a broken connection
      live.addEventListener("error", () => {
        if (live.readyState === EventSource.CLOSED) poll(order.dataset.poll, look);
      });
      addEventListener("pagehide", () => live.close());
    } else {
      poll(order.dataset.poll, look);
    }
  }

  // Without a network the page cannot update itself, and does not say so.
  const offline = document.querySelector("[data-offline]");
  if (offline) {
    const say = () => {
      offline.hidden = navigator.onLine;
    };
    addEventListener("offline", say);
    addEventListener("online", say);
    say();
  }

  // A flash sale: count down by the server's clock, then open the button; show what is left while it runs. A page
  // of a buyer, or of a sale that is over, has nothing to wait for.
  const RENEW_MS = 20 * 60 * 1000;
  const sale = document.querySelector("[data-sale]");
  if (sale && !("final" in sale.dataset)) {
    const follow = () =>
      poll(sale.dataset.sale, (found) => {
        if (found.state !== sale.dataset.state) {
          renew(sale);
          return true;
        }
        for (const part of sale.querySelectorAll("[data-show]")) {
          const value = String(found[part.dataset.show] ?? "");
          if (part.matches("progress")) part.value = Number(value);
          else if (part.textContent !== value) part.textContent = value;
        }
        return false;
      });
    const clock = sale.querySelector("[data-opens-in]");
    if (!clock) {
      follow();
      return;
    }
    const inDays = new Intl.NumberFormat(document.documentElement.lang || undefined, {
      style: "unit",
      unit: "day",
      unitDisplay: "long",
    });
    const opens = performance.now() + Number(clock.dataset.opensIn);
    setTimeout(() => renew(sale), RENEW_MS); // the form's token does not live for ever
    const tick = () => {
      const left = Math.ceil((opens - performance.now()) / 1000);
      if (left <= 0) {
        // no reload: everybody would, in this very second
        for (const part of sale.querySelectorAll("[data-before], [data-after]")) part.hidden = !part.hidden;
        sale.dataset.state = "open";
        follow();
        return;
      }
      const days = Math.floor(left / 86400);
      const parts = [Math.floor(left / 3600) % 24, Math.floor(left / 60) % 60, left % 60];
      const rest = parts.map((part) => String(part).padStart(2, "0")).join(":");
      clock.textContent = days ? `${inDays.format(days)} ${rest}` : rest;
      setTimeout(tick, (opens - performance.now()) % 1000 || 1000);
    };
    tick();
  }
})();
