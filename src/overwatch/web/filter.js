/** What stands over the board: its filter, and which rows are shown. */

import { attr, h, put } from "./dom.js";

const WAYS = { worst: "worst of each lane", every: "all, lane by lane", flat: "all in one list" };

/** The filter with the server's word on it, and which rows there are.
 * @param {import("./app.js").Context} ctx @param {{home: () => void, grid: HTMLElement, isFlat: boolean, isWindow: boolean}} board */
export function makeTools(ctx, board) {
  const error = h("output", { class: "b-error", id: "board-error" });
  const field = /** @type {HTMLInputElement} */ (h("input", { type: "search", "aria-label": "Filter environments", id: "board-filter",
    placeholder: "filter: status=degraded gpu=0 slot=r1c1", autocomplete: "off", spellcheck: "false", "aria-describedby": "board-error" }));
  const ways = /** @type {HTMLSelectElement} */ (h("select", { "aria-label": "Rows" },
    ...Object.entries(WAYS).map(([value, text]) => h("option", { value }, text))));
  let timer = 0;
  let asked = ctx.link.place.filter;
  /** The board keeps what it shows until the server can read the filter. */
  async function ask() {
    const filter = asked = field.value.trim();
    const why = await ctx.source.ask("snapshot", { filter, rows: "1", run: ctx.link.place.run }).then(() => "", (bad) => bad.message);
    if (filter !== asked) return;
    put(error, why);
    attr(field, "aria-invalid", why ? "true" : null);
    // An address with a filter that cannot be read shows all; the field keeps it beside the error.
    if (!why || ctx.link.place.filter === filter) ctx.link.go({ filter: why ? "" : filter, first: ctx.link.place.first && "0" }, { quiet: true });
  }
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(ask, 250);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" && event.key !== "Enter") return;
    event.stopPropagation();
    if (event.key === "Escape") field.value = "";
    clearTimeout(timer);
    void ask();
    board.grid.focus();
  });
  ways.addEventListener("change", () => {
    const way = ways.value;
    board.home();
    ctx.link.go({ grouped: way === "flat" ? "no" : "yes", first: way === "every" ? "0" : "" });
  });
  field.value = asked;
  if (asked) void ask();
  return {
    node: h("div", { class: "b-tools" }, field, ways, error),
    field,
    update() {
      if (document.activeElement !== field && !error.textContent) field.value = ctx.link.place.filter;
      ways.value = board.isFlat ? "flat" : board.isWindow ? "every" : "worst";
    },
  };
}
