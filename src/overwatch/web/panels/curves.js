/** Every number of the run as a chart, of ranks and other runs beside it; one alone where the address names it. */

import { chart } from "../chart.js";
import { attr, h, keyed, put } from "../dom.js";
import { bind } from "../keys.js";
import { aim, button, jump, searched } from "./parts.js";

/** @import { Curve, History, Snapshot } from "../types.js" */
/** The past of one run, as far as it was asked for. @typedef {{past: History, curves: Map<string, Curve>}} Past */

/** The terminal's order. */
const FIRST = ["return", "eval_return", "proxy_return", "kl_divergence", "entropy", "explained_variance", "policy_loss",
  "value_loss", "total_loss", "clip_fraction", "grad_norm", "learning_rate"];
const REFRESH_MS = 1000;
const MOST = { columns: 512, curves: 64 };

/** The names that pass: with the text in them, or fitting a pattern with `*`. @param {string} name @param {string} match */
function passes(name, match) {
  if (!match.includes("*")) return name.includes(match);
  const parts = match.split("*").map((one) => one.replace(/[.+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(`^${parts.join(".*")}$`).test(name);
}

/** Asks for the past of the charts in sight, at most once a second; each answer replaces what there was of a name.
 * @param {import("../app.js").Context} ctx @param {Map<string, ReturnType<typeof chart>>} charts */
function pasts(ctx, charts) {
  const { sight } = ctx;
  const it = { /** @type {Map<string, Past>} */ runs: new Map(), run: "", trouble: "", turn: 0, ask, stale };
  let [asked, isAsking, isStale] = [0, false, true];
  function stale() {
    isStale = true;
  }
  /** @param {Snapshot} snapshot @param {string[]} names */
  async function ask(snapshot, names) {
    const { at, over } = ctx.link.place;
    const isMoment = at !== "" && !isStale;
    if (isAsking || isMoment || performance.now() - asked < (isStale ? 100 : REFRESH_MS)) return;
    [isAsking, isStale, asked] = [true, false, performance.now()];
    const wide = Math.max(64, ...names.map((name) => charts.get(name)?.it.wide ?? 0));
    const ranks = over === "ranks" ? snapshot.run.ranks ?? 1 : 0;
    const each = Math.max(1, Math.floor(MOST.curves / (1 + ranks)));
    try {
      for (let i = 0; i < Math.max(1, names.length); i += each) {
        const some = names.slice(i, i + each);
        const wanted = { name: ranks ? some.flatMap((one) => [one, `${one}#*`]) : some, at,
          columns: String(Math.min(MOST.columns, Math.ceil(wide))) };
        await Promise.all([snapshot.run.run_id, ...others(ctx)].map((run) => one(run, snapshot, wanted)));
      }
      it.trouble = "";
    } catch (error) {
      it.trouble = error instanceof Error ? error.message : String(error);
    }
    isAsking = false;
    it.turn += 1;
    ctx.redraw();
  }
  /** @param {string} run @param {Snapshot} snapshot @param {Record<string, string | string[]>} wanted */
  async function one(run, snapshot, wanted) {
    const isOwn = run === snapshot.run.run_id;
    const own = it.runs.get(snapshot.run.run_id);
    const before = it.runs.get(run);
    const shift = isOwn ? 0 : (before?.past.since ?? NaN) - (own?.past.since ?? NaN);
    const [first, last] = sight.span;
    const wide = (last - first) / 10;
    const isPart = sight.isZoomed && shift === shift && (isOwn ? own : ctx.link.place.by !== "update");
    /** @type {Record<string, string>} */
    const span = isPart ? { from: String(Math.max(0, first + shift - wide)), to: String(last + shift + wide) } : {};
    const past = await ctx.source.ask("history", { ...wanted, ...span, run, at: isOwn ? wanted.at : "" });
    const curves = before?.curves ?? new Map();
    for (const curve of past.curves) curves.set(curve.name, curve);
    it.runs.set(run, { past, curves });
    if (isOwn && past.since != null) sight.whole = [past.since, Math.max(past.until ?? 0, past.since + 1)];
  }
  ctx.link.listen(stale);
  return it;
}

/** @param {import("../app.js").Context} ctx */
const others = (ctx) => ctx.link.place.beside.split(",").filter((run) => run && run !== ctx.snapshot?.run.run_id);

/** What is drawn of a number: its own curve, then those that lie over it.
 * @param {string} name @param {Map<string, Past>} runs @param {import("../app.js").Context} ctx */
function seriesOf(name, runs, ctx) {
  const run = /** @type {Snapshot} */ (ctx.snapshot).run.run_id;
  const own = runs.get(run);
  const curve = own?.curves.get(name);
  if (!own || !curve) return [];
  const begin = own.past.since ?? 0;
  const ranks = ctx.link.place.over !== "ranks" ? []
    : [...own.curves.values()].filter((one) => one.name.startsWith(`${name}#`))
      .map((one) => ({ curve: one, word: `rank ${one.rank}`, begin }));
  const beside = others(ctx).flatMap((other) => {
    const found = runs.get(other)?.curves.get(name);
    return found ? [{ curve: found, word: other, begin: runs.get(other)?.past.since ?? 0 }] : [];
  });
  return [{ curve, word: run, begin }, ...ranks, ...beside];
}

/** The runs that may lie over this one, as boxes to tick. @param {import("../app.js").Context} ctx */
function choice(ctx) {
  const list = h("div");
  const node = h("details", { class: "beside", ontoggle: async () => {
    const { runs } = await ctx.source.ask("runs");
    keyed(list, runs.filter((one) => one.run_id !== ctx.snapshot?.run.run_id), (one) => one.run_id, (one) => {
      const box = h("input", { type: "checkbox", onchange: (/** @type {Event} */ event) => {
        const rest = others(ctx).filter((run) => run !== one.run_id);
        const isOn = /** @type {HTMLInputElement} */ (event.target).checked;
        ctx.link.go({ beside: (isOn ? [...rest, one.run_id] : rest).join(",") });
      } });
      return { node: h("label", {}, box, ` ${one.run_id}`), update: () => attr(box, "checked", others(ctx).includes(one.run_id)) };
    });
  } }, h("summary", {}, "Other runs"), list);
  return node;
}

/** What lies in the address while its button is pressed. @type {[string, "log" | "over" | "by", string][]} */
const TOGGLES = [["Log scale", "log", "yes"], ["Ranks", "over", "ranks"], ["By update", "by", "update"]];
/** @param {import("../app.js").Context} ctx @param {"log" | "over" | "by"} key @param {string} value */
const toggle = (ctx, key, value) => ctx.link.go({ [key]: ctx.link.place[key] === value ? "" : value });

/** @type {import("../app.js").Panel} */
export const panel = {
  name: "curves", title: "Curves", where: "main", pages: ["curves"],
  make(ctx) {
    const { sight } = ctx;
    /** @type {Map<string, ReturnType<typeof chart>>} */
    const charts = new Map();
    const past = pasts(ctx, charts);
    const title = h("h2");
    const match = searched(ctx, "match", { placeholder: "name, or name*", "aria-label": "Only numbers with this name" });
    const toggles = TOGGLES.map(([text, key, value]) => button(text, () => toggle(ctx, key, value)));
    const whole = button("Whole run", () => sight.all()).node;
    const bar = h("div", { class: "bar" }, match.node, toggles.map((one) => one.node), whole, choice(ctx));
    const grid = h("div", { class: "curves" });
    let drawn = "";

    /** @param {string} name */
    function make(name) {
      const one = charts.get(name) ?? chart(sight, () => {
        past.stale();
        ctx.redraw();
      });
      charts.set(name, one);
      const link = jump(ctx, { name });
      const node = h("figure", { tabindex: 0, "data-name": name }, h("figcaption", {}, link), one.node);
      return { node, update: () => {
        const series = seriesOf(name, past.runs, ctx);
        aim(ctx, link, { name: ctx.link.place.name ? "" : name });
        put(link, series[0]?.curve.label ?? name);
        if (!series.length) return;
        const { by, log } = ctx.link.place;
        const { moments } = /** @type {Past} */ (past.runs.get(series[0].word)).past;
        one.update({ series, moments, isByUpdate: by === "update", isLog: log === "yes" });
      } };
    }
    return {
      node: h("section", { "aria-label": "Curves" }, title, bar, grid),
      update(snapshot) {
        const { name, match: text, over } = ctx.link.place;
        const known = past.runs.get(snapshot.run.run_id)?.past;
        const all = new Set([...Object.keys(snapshot.policy).filter((one) => snapshot.policy[one].status !== "absent"), ...known?.names ?? []]);
        const ordered = [...new Set([...FIRST.filter((one) => all.has(one)), ...all])]
          .filter((one) => (name ? one === name : passes(one, text) && !(over === "ranks" && one.includes("#"))));
        past.ask(snapshot, ordered.filter((one) => name || charts.get(one)?.it.isSeen));
        const state = `${past.turn} ${ctx.link.to({})} ${ordered.length} ${snapshot.run.run_id}`;
        if (state === drawn) return;
        drawn = state;
        TOGGLES.forEach(([, key, value], place) => toggles[place].update(ctx.link.place[key] === value));
        attr(whole, "disabled", !sight.isZoomed);
        match.update();
        const trouble = past.trouble ? ` · the past did not come: ${past.trouble}` : "";
        put(title, `Curves: ${name ? "one number; Enter shows all" : `${ordered.length} numbers`}${trouble}`);
        attr(grid, "class", name ? "curves alone" : "curves");
        keyed(grid, ordered, (one) => one, make);
      },
    };
  },
};

const here = () => /** @type {HTMLElement | null} */ (document.activeElement?.closest(".curves figure") ?? null);
/** @param {number} by */
function move(by) {
  const all = /** @type {HTMLElement[]} */ ([...document.querySelectorAll(".curves figure")]);
  const now = here();
  all[now ? Math.min(all.length - 1, Math.max(0, all.indexOf(now) + by)) : 0]?.focus();
}
bind([
  { keys: ["j", "k"], shown: "j k", does: "to the next chart, to the one before", pages: ["curves"],
    run: (_, key) => move(key === "j" ? 1 : -1) },
  { keys: ["Enter"], shown: "Enter", does: "the chart alone, or all again", pages: ["curves"],
    run: (ctx) => ctx.link.go({ name: ctx.link.place.name ? "" : here()?.dataset.name ?? "" }) },
  { keys: ["Escape"], shown: "", does: "", pages: ["curves"], run: (ctx) => ctx.link.go({ name: "", match: "" }) },
  { keys: ["L"], shown: "L", does: "logarithmic scale, or no longer", pages: ["curves"],
    run: (ctx) => toggle(ctx, "log", "yes") },
  { keys: ["o"], shown: "o", does: "over each curve: ranks, or nothing", pages: ["curves"],
    run: (ctx) => toggle(ctx, "over", "ranks") },
  { keys: ["/"], shown: "/", does: "only the numbers with that text in their name", pages: ["curves"],
    run: () => document.getElementById("match")?.focus() },
]);
