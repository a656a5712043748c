/** Ask for a token once; the collector keeps it as a cookie that no script can read. */

import { h, put } from "./dom.js";

/** @param {import("./source.js").Source} source @param {() => void} after */
export function dialog(source, after) {
  const box = /** @type {HTMLDialogElement} */ (document.getElementById("dialog"));
  if (box.open) return;
  const token = /** @type {HTMLInputElement} */ (h("input", { id: "token", type: "password", autocomplete: "off", required: true }));
  const wrong = h("p", { role: "alert" });
  const form = h("form", { onsubmit: async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    try {
      await source.ask("login", {}, { method: "POST", body: token.value.trim() });
      box.close();
      source.again();
      after();
    } catch (error) {
      put(wrong, error instanceof Error ? error.message : String(error));
    }
  } }, h("label", { for: "token" }, "A token of this collector, to read or to control: "), token, wrong,
  h("p", {}, h("button", {}, "Use it"), " ", h("button", { type: "button", onclick: () => box.close() }, "Not now")));
  box.replaceChildren(form);
  box.showModal();
}
