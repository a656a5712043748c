/** Envs, or GPUs, over the time of the whole run: a row each, a cell a while. */

import { axisTime, timeTicks } from "../axes.js";
import { painted, repaint } from "../canvas.js";
import { gestures } from "../chart.js";
import { attr, h, put } from "../dom.js";
import { clock, whole } from "../format.js";
import { bind, BY } from "../keys.js";
import { button } from "./parts.js";

/** @import { Context } from "../app.js" */
/** @import { HeatMap } from "../types.js" */

const [REFRESH_MS, AGAIN_MS, ROW, BOTTOM, MOST] = [2000, 120, 14, 20, 512];
/** @param {number} wide */
const leftOf = (wide) => (wide < 500 ? 66 : 104);
/** Colour, opacity and share of the row's height of a cell: what is worse differs in more than colour.
 * @param {"env" | "gpu"} of @param {string} one @param {string | undefined} mark @returns {[string, number, number]} */
function look(of, one, mark) {
  if (mark === "?") return ["muted", 1, 0.15];
  if (of === "env") return one === "x" ? ["ink", 1, 0.55] : ["heat", 0.05 + Number(one) * 0.1, 1];
  return mark === "!!" ? ["critical", 1, 1] : mark === "!" ? ["warning", 0.9, 0.7] : ["ok", 0.4, 0.4];
}

/** @param {Context} ctx */
const kind = (ctx) => /** @type {"env" | "gpu"} */ (ctx.link.place.of === "gpu" ? "gpu" : "env");

/** Asks for the rows in sight, at most every two seconds while nothing else is wanted.
 * @param {Context} ctx */
function past(ctx) {
  const it = { heat: /** @type {HeatMap | null} */ (null), first: 0, run: "", trouble: "", wanted: "", ask };
  let [asked, isAsking] = [0, false];
  /** @param {string} run @param {number} first @param {number} rows @param {number} wide */
  async function ask(run, first, rows, wide) {
    const { of, filter, sort, at } = ctx.link.place;
    const { sight } = ctx;
    const [from, to] = sight.isZoomed ? sight.span.map(String) : ["", ""];
    const query = { run, of, filter: of === "gpu" ? "" : filter, sort: sort === "env" ? "" : "worst", offset: String(first), rows: String(rows),
      columns: String(Math.min(MOST, Math.max(16, Math.floor(wide)))), to: to || at };
    const wanted = JSON.stringify({ ...query, zoom: ctx.link.place.from });
    const isSame = wanted === it.wanted;
    if (isAsking || performance.now() - asked < (isSame ? REFRESH_MS : AGAIN_MS) || (isSame && at)) return;
    [isAsking, asked, it.wanted] = [true, performance.now(), wanted];
    try {
      const heat = await ctx.source.ask("heat", { ...query, from });
      [it.heat, it.first, it.run, it.trouble] = [heat, first, run, ""];
    } catch (error) {
      it.trouble = error instanceof Error ? error.message : String(error);
    }
    isAsking = false;
    ctx.redraw();
  }
  return it;
}

/** @param {CanvasRenderingContext2D} g @param {Record<string, string>} colours @param {HeatMap} heat
 * @param {{first: number, top: number, high: number, of: "env" | "gpu", x: (time: number) => number, left: number, end: number}} at */
function cells(g, colours, heat, { first, top, high, of, x, left: edge, end }) {
  const [since, step] = [heat.since ?? 0, heat.step_s ?? 1];
  g.textAlign = "right";
  heat.rows.forEach(({ id, group, cells: text }, row) => {
    const y = (first + row) * ROW - top;
    if (y < -ROW || y > high) return;
    [g.fillStyle, g.globalAlpha] = [colours.ink, 1];
    g.fillText(`${of === "env" ? `${group ?? ""}  ` : ""}${id}`.slice(-16), edge - 6, y + 11, edge - 8);
    for (let i = 0; i < text.length;) {
      let next = i + 1;
      while (next < text.length && text[next] === text[i]) next += 1;
      const one = text[i];
      const [left, right] = [Math.max(edge, x(since + i * step)), Math.min(end, x(since + next * step))];
      i = next;
      if (one === " " || right <= left) continue;
      const [colour, alpha, share] = look(of, one, heat.legend[one]?.mark);
      [g.fillStyle, g.globalAlpha] = [colours[colour], alpha];
      const tall = Math.max(2, (ROW - 1) * share);
      g.fillRect(left, y + (ROW - 1 - tall) / 2, Math.max(right - left, 1), tall);
    }
  });
  g.globalAlpha = 1;
}

/** The time below. @param {CanvasRenderingContext2D} g @param {Record<string, string>} colours
 * @param {[number, number]} span @param {number} begin @param {{x: (time: number) => number, wide: number, high: number}} at */
function axis(g, colours, [first, last], begin, { x, wide, high }) {
  [g.fillStyle, g.textAlign] = [colours.card, "center"];
  g.fillRect(0, high - BOTTOM, wide, BOTTOM);
  g.fillStyle = colours.muted;
  for (const one of timeTicks(first - begin, last - begin, Math.max(2, wide / 90))) {
    g.fillText(axisTime(one), Math.min(wide - 14, x(begin + one)), high - 6);
  }
}

/** What the cells in sight are drawn as, in the answer's words. @param {HeatMap} heat @param {string} those */
function legend({ of, legend: words }, those) {
  return [...those].map((one) => {
    const [colour, alpha, share] = look(/** @type {"env"} */ (of), one, words[one]?.mark);
    const box = h("i");
    box.style.setProperty("background", `var(--${colour})`);
    box.style.setProperty("opacity", String(alpha));
    box.style.setProperty("height", `${Math.max(2, 12 * share)}px`);
    return h("span", {}, box, words[one]?.text ?? one);
  });
}

/** The kinds of cells that have a place in the legend: of envs each third score, of GPUs those in sight. @param {HeatMap} heat */
function those({ of, rows, legend: words }) {
  const seen = new Set(rows.flatMap((row) => [...row.cells]));
  return Object.keys(words).filter((one) => (of === "env" ? "0369x?".includes(one) : one !== " " && seen.has(one))).join("");
}

/** The page's map, for the keys. @type {{move: (by: number) => void, open: () => void} | null} */
let map = null;

/** What a cell is, in words. @param {Context} ctx @param {HeatMap} heat @param {HeatMap["rows"][number]} row @param {number} when */
function wordsAt(ctx, heat, row, when) {
  const [since, step] = [heat.since ?? 0, heat.step_s ?? 1];
  const column = Math.min(row.cells.length - 1, Math.floor((when - since) / step));
  const begin = since + column * step;
  const env = kind(ctx) === "env" ? ctx.snapshot?.envs.find((one) => one.env_id === row.id) : null;
  const why = env?.anomaly.reasons.length ? ` · now ${env.status}: ${env.anomaly.reasons.join(" · ")}` : "";
  return `${kind(ctx)} ${row.id} ${row.group ?? ""} · ${clock(begin)} to ${clock(begin + step)} · `
    + `${heat.legend[row.cells[column]]?.text ?? "not there"}${why}`;
}

/** The map: a canvas as high as what is in sight, and what is read on it. @param {Context} ctx @param {ReturnType<typeof past>} asking */
function drawnMap(ctx, asking) {
  const { sight } = ctx;
  const read = h("p", { class: "read" });
  const canvas = h("canvas", { role: "img", "aria-label": "nothing yet" });
  const [cursor, row, chosen] = ["at", "row", "chosen"].map((name) => h("i", { class: name }));
  const plot = h("div", { class: "plot" }, canvas, cursor, row, chosen);
  const node = h("div", { class: "heat", tabindex: 0, role: "group", "aria-label": "Rows" }, plot, h("div", { class: "space" }));
  /** @type {import("../canvas.js").Painted} */
  const it = { canvas: /** @type {HTMLCanvasElement} */ (canvas), wide: 0, high: 0, isSeen: false, onSeen: ctx.redraw, paint };
  const at = { top: 0, row: 0, rows: 0, y: /** @type {number | null} */ (null) };
  const room = () => it.wide - leftOf(it.wide) - 8;
  const long = () => sight.span[1] - sight.span[0];
  const x = (/** @type {number} */ time) => leftOf(it.wide) + ((time - sight.span[0]) / long()) * room();
  const time = (/** @type {number} */ px) => sight.span[0] + ((px - leftOf(it.wide)) / room()) * long();
  const found = () => asking.heat?.rows[at.row - asking.first];
  /** @param {CanvasRenderingContext2D} g @param {Record<string, string>} colours */
  function paint(g, colours) {
    const { heat, first } = asking;
    if (!heat || heat.of !== kind(ctx)) return;
    const place = { first, top: at.top, high: it.high - BOTTOM, of: kind(ctx), x, left: leftOf(it.wide), end: it.wide - 8 };
    cells(g, colours, heat, place);
    axis(g, colours, sight.span, sight.whole[0], { x, wide: it.wide, high: it.high });
    point();
  }
  /** The row and the time that are read: the row is that below the pointer, until a key moves it. */
  function point() {
    if (at.y !== null) at.row = Math.min(at.rows - 1, Math.max(0, Math.floor((at.y + at.top) / ROW)));
    const [one, when] = [found(), sight.at ?? sight.span[1]];
    row.style.setProperty("transform", `translateY(${at.row * ROW - at.top}px)`);
    cursor.style.setProperty("transform", `translateX(${x(when)}px)`);
    attr(cursor, "hidden", sight.at === null);
    put(read, one && asking.heat ? wordsAt(ctx, asking.heat, one, when) : "");
  }
  function open() {
    const one = found();
    if (!one) return;
    const moment = sight.at === null ? ctx.link.place.at : sight.at.toFixed(1);
    ctx.link.go({ at: moment, ...(kind(ctx) === "env" ? { env: String(one.id) } : { lane: String(one.id) }) });
  }
  function move(/** @type {number} */ by) {
    [at.y, at.row] = [null, Math.min(at.rows - 1, Math.max(0, at.row + by))];
    const [y, room] = [at.row * ROW, it.high - BOTTOM - ROW];
    if (y < at.top || y > at.top + room) node.scrollTop = Math.max(0, y - (by > 0 ? room : 0));
    point();
  }
  const over = (/** @type {MouseEvent} */ event) => {
    at.y = event.offsetY;
    point();
  };
  return { node, read, plot, chosen, it, at, room, time, point, open, move, over };
}

/** What is shown of what. @param {Context} ctx */
function tools(ctx) {
  const filter = /** @type {HTMLInputElement} */ (h("input", {
    type: "search", placeholder: "status=degraded gpu=0", "aria-label": "Filter of the board",
    onchange: () => ctx.link.go({ filter: filter.value.trim() }) }));
  const of = button("", () => ctx.link.go({ of: kind(ctx) === "gpu" ? "env" : "gpu" })).node;
  const sort = button("", () => ctx.link.go({ sort: ctx.link.place.sort === "env" ? "anomaly" : "env" })).node;
  const node = h("div", { class: "bar" }, of, sort, filter, button("Whole run", () => ctx.sight.all()).node);
  return { node, update() {
    attr(filter, "hidden", kind(ctx) === "gpu");
    put(of, kind(ctx) === "gpu" ? "Show envs" : "Show GPUs");
    put(sort, ctx.link.place.sort === "env" ? "Worst first" : "By id");
    if (document.activeElement !== filter) filter.value = ctx.link.place.filter;
  } };
}

/** @type {import("../app.js").Panel} */
export const panel = {
  name: "heat", title: "Heat", where: "main", pages: ["heat"],
  make(ctx) {
    const { sight } = ctx;
    const [asking, bar] = [past(ctx), tools(ctx)];
    const [title, words] = [h("h2"), h("p", { class: "legend" })];
    const drawn = map = drawnMap(ctx, asking);
    const { it, at } = drawn;
    drawn.plot.addEventListener("pointermove", drawn.over);
    drawn.plot.addEventListener("pointerleave", () => (at.y = null));
    gestures(drawn.plot, drawn.chosen, sight, drawn.time, (event) => {
      drawn.over(event);
      drawn.open();
    });
    drawn.node.addEventListener("scroll", () => {
      at.top = drawn.node.scrollTop;
      repaint(it);
      ctx.redraw();
    });
    painted(it);
    sight.listeners.add((isMoved) => isMoved ? repaint(it) : drawn.point());
    let [shown, kinds] = [/** @type {HeatMap | null} */ (null), ""];
    return {
      node: h("section", { "aria-label": "Heat" }, title, bar.node, words, drawn.read, drawn.node),
      update(snapshot) {
        const { heat } = asking;
        const ends = [heat?.since ?? snapshot.run.started ?? 0, Math.max(snapshot.time, heat?.until ?? 0)];
        if (!sight.isZoomed || !heat) sight.whole = /** @type {[number, number]} */ (ends);
        const of = kind(ctx) === "gpu" ? "GPUs" : "envs";
        at.rows = heat?.total ?? 0;
        const first = Math.max(0, Math.floor(at.top / ROW) - 10);
        asking.ask(snapshot.run.run_id, first, Math.ceil(it.high / ROW) + 20, drawn.room());
        drawn.node.style.setProperty("--tall", `${at.rows * ROW + BOTTOM}px`);
        put(title, `${of === "GPUs" ? of : "Envs"} over time: ${whole(at.rows)}${asking.trouble && ` · none came: ${asking.trouble}`}`);
        bar.update();
        attr(it.canvas, "aria-label", `${at.rows} ${of} over time; j, k and the arrows read one cell`);
        if (!heat || heat === shown) return;
        shown = heat;
        const now = those(heat);
        if (kinds !== heat.of + now) words.replaceChildren(...legend(heat, now));
        kinds = heat.of + now;
        repaint(it);
      },
    };
  },
};

/** @param {"env" | "gpu"} of */
const turn = (of) => (/** @type {import("../app.js").Context} */ ctx) => {
  const isOn = ctx.link.place.page === "heat" && kind(ctx) === of;
  ctx.link.go({ page: isOn ? "flight" : "heat", of });
};
bind([
  { keys: ["H"], shown: "H", does: "envs over the time of the run, or back", run: turn("env") },
  { keys: ["G"], shown: "G", does: "GPUs over the time of the run, or back", run: turn("gpu") },
  { keys: Object.keys(BY), shown: "j k", does: "to the row below, above; PgDn, PgUp: ten", pages: ["heat"],
    run: (_, key) => map?.move(BY[key]) },
  { keys: ["Enter"], shown: "Enter", does: "open the env, or the GPU, at the time that is read", pages: ["heat"], run: () => map?.open() },
]);
