/** How the trainer was started: its revision, where it runs, and its settings. */

import { h, put } from "../dom.js";
import { asked, facts } from "./parts.js";

const NONE = { "–": "nothing was sent; overwatch.run(config={...}) sends settings" };

/** @type {import("../app.js").Panel} */
export const panel = {
  name: "config", title: "Configuration", where: "main", pages: ["config"],
  make(ctx) {
    const past = asked(ctx, { about: "yes", name: "-", columns: "1" });
    const [state, lists] = [h("p", { class: "muted" }), [facts(ctx), facts(ctx), facts(ctx)]];
    const names = ["Revision", "Where it runs", "Settings"];
    const parts = names.map((name, place) => [h("h3", {}, name), lists[place].node]);
    return {
      node: h("section", { "aria-label": "Configuration" }, h("h2", {}, "Configuration"), state, parts.flat()),
      update({ run }) {
        const { answer, error } = past(run.run_id);
        const about = answer?.about;
        put(state, about ? "" : error || "waiting for what the collector has of it");
        const found = about ? [about.revision, about.environment, about.config] : [];
        found.forEach((rows, place) => lists[place].update(Object.entries(Object.keys(rows).length ? rows : NONE)));
      },
    };
  },
};
