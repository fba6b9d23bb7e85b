// Swagger has its words in English alone: whatever its components draw goes through the page's catalogue.
(() => {
  "use strict";
  const words = new Map(Object.entries(JSON.parse(document.querySelector("[data-words]").dataset.words)));
  const SHOWN = ["title", "aria-label", "ariaLabel", "placeholder", "source"]; // a source is a line of Markdown
  const PART = /(?<=^<i>)[\w ]+(?=<\/i>)|(?<=\d\]? )\w+$|^matches(?= )/; // "≤ 32 characters"
  const NAME = /^\s*[a-z_]+\s*$/; // of the API's own, such as "items"
  const said = (text) => {
    if (typeof text !== "string" || NAME.test(text)) return text;
    return words.get(text.trim()) ?? text.replace(PART, (part) => words.get(part) ?? part);
  };

  const translate = ({ React }) => {
    const draw = React.createElement;
    React.createElement = (type, props, ...children) => {
      const names = SHOWN.filter((name) => typeof props?.[name] === "string");
      const shown = names.map((name) => [name, said(props[name])]);
      return draw(type, shown.length ? { ...props, ...Object.fromEntries(shown) } : props, ...children.map(said));
    };
  };
  SwaggerUIBundle.presets.apis = [SwaggerUIBundle.presets.apis, translate];
})();
