/** How the trainer was started: its revision, where it runs, and its settings. */

import { h, put } from "../dom.js";
import { Asked, facts } from "./parts.js";

/** @type {import("../app.js").Panel} */
export const panel = {
  name: "config", title: "Configuration", where: "main", pages: ["config"],
  make(ctx) {
    const asked = new Asked(ctx, { about: "yes", name: "-", columns: "1" });
    const state = h("p", { class: "muted" });
    const parts = ["Revision", "Where it runs", "Settings"].map((name) => ({ rows: facts(ctx), name }));
    const node = h("section", { "aria-label": "Configuration" }, h("h2", {}, "Configuration"), state,
      parts.map(({ rows, name }) => h("div", {}, h("h3", {}, name), rows.node)));
    return {
      node,
      update({ run }) {
        const about = asked.of(run.run_id)?.about;
        put(state, about ? "" : asked.error || "waiting for what the collector has of it");
        const none = [{ revision: "none was sent" }, { environment: "none was sent" },
          { settings: "none was sent; overwatch.run(config={...}) sends them" }];
        const found = about ? [about.revision, about.environment, about.config] : [];
        parts.forEach(({ rows }, place) => {
          const entries = Object.entries(found[place] ?? {});
          const sorted = place === 2 ? entries.sort(([one], [other]) => (one < other ? -1 : 1)) : entries;
          rows.update(about ? (sorted.length ? sorted : Object.entries(none[place])) : []);
        });
      },
    };
  },
};
