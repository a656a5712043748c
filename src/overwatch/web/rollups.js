/** Below the board: the census of the seeds, the mix of actions, both ends of the fleet, the best episodes. */

import { STAGES, label, tone } from "./chips.js";
import { attr, h, keyed, put } from "./dom.js";
import { fixed, number, percent, short } from "./format.js";
import { metricWord, operation } from "./rows.js";

/** @import { Snapshot } from "./types.js" */

const OPS = ["WAIT", "GERM", "ADV", "SETA", "FOSS", "PRUNE"];

/** The usual operations in the order of a seed's life, then others. @param {Snapshot} snapshot */
function actions({ aggregates }) {
  const shares = new Map(Object.entries(aggregates.actions).map(([name, share]) => [operation(name), share]));
  const names = [...OPS.filter((name) => shares.has(name)), ...[...shares.keys()].filter((name) => !OPS.includes(name))];
  return names.map((name) => `${name} ${percent(shares.get(name))}`).join("  ");
}

/** @param {Snapshot} snapshot @param {"best" | "worst"} end */
const ends = (snapshot, end) => snapshot.aggregates[end].map(({ env_id, field, value }) => {
  const isMetric = field === "metric";
  return `env ${env_id} ${isMetric ? metricWord(snapshot) : field} ${number(value, 2, 8, { signed: !isMetric })}`;
}).join(" · ");

/** The best first: env, number, best value and its step, growth, fossils, then the mean of all bests.
 * @param {Snapshot} snapshot */
function episodes({ aggregates }) {
  if (!aggregates.episodes.some((one) => "best" in one.values)) return "";
  const words = aggregates.episodes.map(({ env_id, number: nth, values: { best, best_step, growth_ratio, fossils } }) => [
    `env ${env_id} #${nth}`, best === undefined ? "" : number(best, 2, 8), best_step === undefined ? "" : `@${fixed(best_step, 0)}`,
    growth_ratio === undefined ? "" : `×${number(growth_ratio, 1, 6)}`, fossils === undefined ? "" : `${fixed(fossils, 0)} fossils`,
  ].filter(Boolean).join(" "));
  return words.join(" · ") + (aggregates.mean_best === null ? "" : `  mean ${number(aggregates.mean_best, 2, 6)}`);
}

export function makeRollups() {
  const census = h("span", { class: "r-census" });
  /** @type {[string, (snapshot: Snapshot) => string][]} */
  const words = [["actions", actions], ["best", (one) => ends(one, "best")], ["worst", (one) => ends(one, "worst")], ["episodes", episodes]];
  const parts = words.map(([name, text]) => ({ text, value: h("span"), name }));
  const seeds = h("p", {}, h("span", { class: "muted" }, "seeds "), census);
  const lines = parts.map(({ name, value }) => h("p", {}, h("span", { class: "muted" }, `${name} `), value));
  return {
    node: h("div", { class: "rollups" }, seeds, ...lines),
    /** @param {Snapshot} snapshot */
    update(snapshot) {
      const counts = snapshot.aggregates.seed_census;
      const stages = snapshot.run.slots_enabled ? Object.keys(STAGES).filter((stage) => stage in counts) : [];
      attr(seeds, "hidden", !stages.length);
      keyed(census, stages, (stage) => stage, (stage) => {
        const count = h("span");
        const node = h("span", { title: label(stage) }, h("b", { "data-tone": tone(stage) }, STAGES[stage][0]), "\u00a0", count, " ");
        return { node, update: () => put(count, short(snapshot.aggregates.seed_census[stage])) };
      });
      parts.forEach(({ text, value }, place) => {
        put(value, text(snapshot));
        attr(lines[place], "hidden", !value.textContent);
      });
    },
  };
}
