/** Where a recording stands: play, step, speed, and a timeline with the alarms. Of a live run: back to a moment. */

import { attr, h, keyed, put } from "../dom.js";
import { clock } from "../format.js";
import { bind } from "../keys.js";
import { polled } from "./parts.js";

/** @import { Timeline } from "../types.js" */

const [TICK_MS, EVERY_MS] = [100, 5000];
/** What the keys move. */
const state = { playing: false, speed: 1, line: /** @type {Timeline | null} */ (null) };

/** The moment that is shown; the last one where none is asked for. @param {import("../app.js").Context} ctx */
const moment = (ctx) => Number(ctx.link.place.at) || state.line?.last || 0;

/** @param {import("../app.js").Context} ctx @param {number} at @param {boolean} [quiet] */
function seek(ctx, at, quiet = true) {
  const line = state.line;
  if (line === null) return;
  const isEnd = at >= line.last && line.live;
  ctx.link.go({ at: isEnd ? "" : String(Math.round(10 * Math.min(line.last, Math.max(line.first, at))) / 10) }, { quiet });
}

/** @param {import("../app.js").Context} ctx @param {boolean} playing */
function play(ctx, playing) {
  if (playing && state.line && moment(ctx) >= state.line.last) seek(ctx, state.line.first);
  state.playing = playing;
  ctx.redraw();
}

/** @param {import("../app.js").Context} ctx @param {number} by */
function jump(ctx, by) {
  const places = (state.line?.marks ?? []).map((mark) => mark.place).filter((at) => (at - moment(ctx)) * by > 0.05);
  if (places.length) seek(ctx, by > 0 ? Math.min(...places) : Math.max(...places), false);
}

/** @param {import("../app.js").Context} ctx @param {number} by */
function step(ctx, by) {
  state.playing = false;
  seek(ctx, Math.round(moment(ctx)) + by);
}

/** What is open, a second before or later. @param {import("../app.js").Context} ctx @param {number} by */
function past(ctx, by) {
  if (!state.line?.live) jump(ctx, by);
  else if (state.line.past) step(ctx, by);
  else ctx.note("nothing is recorded here, so only the newest moment can be shown");
}

/** @param {import("../app.js").Context} ctx @param {number} by */
function faster(ctx, by) {
  state.speed = Math.min(1000, Math.max(0.125, state.speed * by));
  ctx.redraw();
}

bind([
  { keys: [" "], shown: "Space", does: "play or pause", run: (ctx) => play(ctx, !state.playing) },
  { keys: [".", ","], shown: ", .", does: "one second back, one second on", run: (ctx, key) => step(ctx, key === "." ? 1 : -1) },
  { keys: ["<", ">"], shown: "< >", does: "play half as fast, twice as fast", run: (ctx, key) => faster(ctx, key === ">" ? 2 : 0.5) },
  { keys: ["[", "]"], shown: "[ ]", does: "to the alarm before on the timeline, to the next", run: (ctx, key) => jump(ctx, key === "]" ? 1 : -1) },
  { keys: ["[", "]"], shown: "[ ]", does: "of a live run: what is open as it was a second before; a second on; else the alarm before, the next",
    pages: ["drawer", "full"], run: (ctx, key) => past(ctx, key === "]" ? 1 : -1) },
]);

/** @type {import("../app.js").Panel} */
export const panel = {
  name: "transport", title: "Time", where: "top",
  make(ctx) {
    /** @param {string} text @param {string} title @param {() => void} does */
    const button = (text, title, does) => h("button", { type: "button", title, "aria-label": title, onclick: does }, text);
    const start = button("▶", "play or pause", () => play(ctx, !state.playing));
    const now = h("span", { class: "num" });
    const range = /** @type {HTMLInputElement} */ (h("input", { type: "range", step: "0.1", "aria-label": "moment of the run",
      oninput: () => seek(ctx, Number(range.value)) }));
    const marks = h("div", { class: "marks", "aria-hidden": "true" });
    const speed = h("span", { class: "num" });
    const live = button("live", "to the newest moment", () => ctx.link.go({ at: "" }));
    const node = h("div", { class: "transport", role: "group", "aria-label": "Time" }, start,
      button("‹", "one second back", () => step(ctx, -1)), button("›", "one second on", () => step(ctx, 1)),
      now, h("div", { class: "track" }, range, marks), speed, live);
    let played = performance.now();

    setInterval(() => {
      const elapsed = (performance.now() - played) / 1000;
      if (!state.playing || !state.line || ctx.source.isWaiting) return;
      played = performance.now();
      seek(ctx, moment(ctx) + Math.min(elapsed, 1) * state.speed);
      if (moment(ctx) >= state.line.last) play(ctx, false);
    }, TICK_MS);
    const ask = polled(EVERY_MS, (run) => {
      ctx.source.ask("timeline", { run }).then((line) => {
        state.line = line;
        keyed(marks, line.marks, (mark, place) => `${mark.place} ${mark.code} ${place}`, (mark) => {
          const tick = h("i", { "data-severity": mark.severity, title: mark.code });
          return { node: tick, update: (one) => tick.style.setProperty("left",
            `${(100 * (one.place - line.first)) / Math.max(1e-9, line.last - line.first)}%`) };
        });
        ctx.redraw();
      }, () => { state.line = null; });
    });
    return {
      node,
      update(snapshot) {
        ask(snapshot.run.run_id);
        const line = state.line;
        attr(node, "hidden", !line?.past);
        if (!line?.past) return;
        if (!state.playing) played = performance.now();
        for (const [name, value] of [["min", line.first], ["max", line.last]]) attr(range, String(name), value);
        range.value = String(moment(ctx));
        put(start, state.playing ? "❚❚" : "▶");
        attr(start, "aria-pressed", state.playing ? "true" : "false");
        put(now, `${clock(moment(ctx))} of ${clock(line.last)}`);
        put(speed, `${state.speed}×`);
        attr(live, "hidden", !line.live || !ctx.link.place.at);
      },
    };
  },
};
