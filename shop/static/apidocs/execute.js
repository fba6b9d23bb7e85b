// The demo token filled in where there is one, and a fresh key for every Execute, unless the reader typed one.
(() => {
  "use strict";
  const { token, exampleKey } = document.querySelector("[data-example-key]").dataset;
  const configs = ui.getConfigs(); // of Swagger's own script
  const send = configs.requestInterceptor;
  const name = "Idempotency-Key";
  configs.requestInterceptor = (request) => {
    if (request.headers?.[name] === exampleKey) {
      request.headers[name] = crypto.getRandomValues(new Uint32Array(4)).join("-");
    }
    return send(request);
  };
  // fill it in once: it loads the description again, which calls this again
  let filled = !token;
  configs.onComplete = () => {
    if (filled) return;
    filled = true;
    ui.preauthorizeApiKey("tokenAuth", `Token ${token}`);
  };
})();
