/** Every key, from the one table of keys; how the page looks; and what a link holds. */

import { h } from "../dom.js";
import { KEYS } from "../keys.js";

/** @param {import("../app.js").Context} ctx @param {"theme" | "palette"} name @param {string} label @param {[string, string][]} words */
function choice(ctx, name, label, words) {
  const select = /** @type {HTMLSelectElement} */ (h("select", { id: name, onchange: () => ctx.link.go({ [name]: select.value }, { quiet: true }) },
    words.map(([value, text]) => h("option", { value, selected: ctx.link.place[name] === value }, text))));
  return h("p", {}, h("label", { for: name }, `${label} `), select);
}

/** @type {import("../app.js").Panel} */
export const panel = {
  name: "help", title: "Help", where: "main", pages: ["help"],
  make(ctx) {
    const rows = KEYS.filter((key) => key.shown).map((key) => h("tr", {}, h("th", { scope: "row" }, h("kbd", {}, key.shown)), h("td", {}, key.does),
      h("td", { class: "muted" }, key.pages ? key.pages.join(", ") : "everywhere")));
    const node = h("section", { "aria-label": "Help" }, h("h2", {}, "Look"),
      choice(ctx, "theme", "Theme", [["", "as the system"], ["light", "light"], ["dark", "dark"]]),
      choice(ctx, "palette", "Colours", [["", "usual"], ["blind", "for the colour-blind"]]),
      h("p", {}, h("button", { type: "button", onclick: () => ctx.login() }, "Enter a token …"), " to view protected runs, or to acknowledge."),
      h("h2", {}, "Links"), h("p", {}, "The address holds what you see: run, moment, environment, filter, page. Who opens it sees the same."),
      h("h2", {}, "Keys"), h("div", { class: "wide" }, h("table", {}, h("tbody", {}, rows))));
    return { node, update: () => {} };
  },
};
