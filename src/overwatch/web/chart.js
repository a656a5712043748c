/** A chart of one number: axes, limits with their bad side shaded, a band from the least to the most of each pixel,
 * findings on the axis of time, and what is read at the cursor that all charts share. */

import { along, axisNumber, axisTime, fitted, logTicks, place, ticks, timeTicks } from "./axes.js";
import { painted, repaint } from "./canvas.js";
import { attr, h, keyed, put } from "./dom.js";
import { ABSENT, clock, formatted } from "./format.js";
import { severity } from "./panels/parts.js";

/** @import { Curve, Moment } from "./types.js" */
/** A curve; its `begin` lies over the begin of the first one, which is that of the run.
 * @typedef {{curve: Curve, word: string, begin: number}} Series */
/** @typedef {{series: Series[], moments: readonly Moment[], isByUpdate: boolean, isLog: boolean}} Drawing */
/** @typedef {CanvasRenderingContext2D} Pen */
/** @typedef {Record<string, string>} Colours */

const [LEFT, RIGHT, TOP, BOTTOM] = [48, 8, 8, 18];
/** Dashes of the curves: colour is never all that distinguishes them. */
export const DASHES = [[], [6, 3], [2, 3], [10, 3, 2, 3], [12, 5], [1, 4]];
export const LETTERS = "abcdefgh";
const NEAR = 5;

/** Where things lie in a chart. @typedef {ReturnType<typeof framed>} Frame */
/** @param {Drawing} drawing @param {[number, number]} span @param {{wide: number, high: number}} size @param {boolean} isZoomed */
function framed(drawing, span, size, isZoomed) {
  const { series } = drawing;
  const [{ curve, begin: origin }] = series;
  const isByUpdate = drawing.isByUpdate && curve.update.length > 1 && curve.update.at(-1) !== null;
  const to = (/** @type {number} */ time) => (isByUpdate ? along(curve.at, curve.update, time) : time - origin);
  const from = (/** @type {number} */ x) => (isByUpdate ? along(curve.update, curve.at, x) : x + origin);
  const [first, last] = [to(span[0]), Math.max(to(span[1]), to(span[0]) + 1e-9)];
  const [left, right, top, bottom] = [LEFT, size.wide - RIGHT, TOP, size.high - BOTTOM];
  const x = (/** @type {number} */ one) => left + ((one - first) / (last - first)) * (right - left);
  const bands = series.map((one) => band(one, { first, last, x, isByUpdate }));
  const all = bands.flatMap((one) => one.flatMap(([, low, high]) => [low, high]));
  const isLog = drawing.isLog && all.some((one) => one > 0);
  const values = isLog ? all.filter((one) => one > 0) : all;
  const limits = curve.limits.filter((one) => !isLog || one.value > 0);
  const logs = isLog ? fitted(values.map(Math.log10), limits.map((one) => ({ value: Math.log10(one.value) }))) : null;
  const ends = logs ?? fitted(values, limits, isZoomed ? null : curve.scale);
  const [low, high] = ends[1] > ends[0] ? ends : [ends[0], ends[0] + 1];
  const y = (/** @type {number} */ value) => {
    const share = ((logs ? Math.log10(Math.max(value, 1e-300)) : value) - low) / (high - low);
    return bottom - Math.min(1, Math.max(0, share)) * (bottom - top);
  };
  const inside = logs ? [10 ** low, 10 ** high] : [low, high];
  return { left, right, top, bottom, first, last, x, y, low: inside[0], high: inside[1], bands, isByUpdate, isLog,
    px: (/** @type {number} */ time) => x(to(time)),
    time: (/** @type {number} */ px) => from(first + ((px - left) / (right - left)) * (last - first)) };
}

/** Least and most of each half pixel; a gap is NaN.
 * @param {Series} series @param {{first: number, last: number, x: (one: number) => number, isByUpdate: boolean}} frame */
function band({ curve: { at, update, low, high }, begin }, { first, last, x, isByUpdate }) {
  const [along_, shift] = isByUpdate ? [update, 0] : [at, begin];
  const until = Math.min(at.length - 1, place(along_, last + shift));
  /** @type {[number, number, number][]} */
  const found = [];
  let column = /** @type {[number, number, number] | undefined} */ (undefined);
  for (let i = Math.max(0, place(along_, first + shift) - 1); i <= until; i += 1) {
    const px = Math.round(2 * x(/** @type {number} */ (along_[i]) - shift)) / 2;
    const [least, most] = [low[i] ?? NaN, high[i] ?? NaN];
    if (column && column[0] === px && least === least && column[1] === column[1]) {
      if (least < column[1]) column[1] = least;
      if (most > column[2]) column[2] = most;
    } else {
      found.push((column = [px, least, most]));
    }
  }
  return found;
}

/** @param {Pen} g @param {Frame} frame @param {Colours} colours */
function axes(g, { left, right, top, bottom, first, last, x, y, low, high, isByUpdate, isLog }, colours) {
  [g.lineWidth, g.strokeStyle, g.fillStyle] = [1, colours.line, colours.muted];
  g.textAlign = "right";
  for (const value of isLog ? logTicks(low, high) : ticks(low, high, Math.max(2, (bottom - top) / 32))) {
    const at = Math.round(y(value)) + 0.5;
    stroke(g, [left, at, right, at]);
    g.fillText(axisNumber(value), left - 5, at + 3.5);
  }
  const about = Math.max(2, (right - left) / 80);
  g.textAlign = "center";
  for (const one of isByUpdate ? ticks(first, last, about) : timeTicks(first, last, about)) {
    g.fillText(isByUpdate ? axisNumber(one) : axisTime(one), Math.min(right - 12, x(one)), bottom + 14);
  }
}

/** @param {Pen} g @param {number[]} ends */
function stroke(g, [x0, y0, x1, y1]) {
  g.beginPath();
  g.moveTo(x0, y0);
  g.lineTo(x1, y1);
  g.stroke();
}

/** @param {Pen} g @param {Frame} frame @param {Curve} curve @param {Colours} colours */
function limits(g, { left, right, top, bottom, y, low, high }, curve, colours) {
  g.setLineDash([4, 3]);
  for (const { value, severity, above, text } of curve.limits) {
    if (value < low || value > high) continue;
    [g.strokeStyle, g.fillStyle, g.globalAlpha] = [colours[severity], colours[severity], 0.08];
    g.fillRect(left, above ? top : y(value), right - left, above ? y(value) - top : bottom - y(value));
    g.globalAlpha = 1;
    stroke(g, [left, y(value), right, y(value)]);
    g.textAlign = "right";
    g.fillText(text, right - 2, above ? Math.max(top + 11, y(value) - 3) : Math.min(bottom - 3, y(value) + 11));
  }
  g.setLineDash([]);
}

/** @param {Pen} g @param {Frame} frame @param {readonly Moment[]} moments @param {Colours} colours */
function marks(g, { left, right, top, bottom, px }, moments, colours) {
  for (const { since, severity } of moments) {
    const at = Math.round(px(since)) + 0.5;
    if (at < left || at > right) continue;
    [g.strokeStyle, g.fillStyle, g.globalAlpha] = [colours[severity] ?? colours.muted, colours[severity] ?? colours.muted, 0.45];
    g.setLineDash([2, 3]);
    stroke(g, [at, top, at, bottom]);
    g.globalAlpha = 1;
    g.beginPath();
    g.moveTo(at, bottom - 6);
    g.lineTo(at - 4, bottom);
    g.lineTo(at + 4, bottom);
    g.fill();
  }
  g.setLineDash([]);
}

/** Both edges of the band and what is between them; ticks at the top or bottom for what is beyond.
 * @param {Pen} g @param {Frame} frame @param {[number, number, number][]} columns @param {{colour: string, dash: number[]}} how */
function curve_(g, { top, bottom, y, low, high }, columns, { colour, dash }) {
  [g.strokeStyle, g.fillStyle, g.lineWidth, g.lineJoin, g.lineCap] = [colour, colour, 1.4, "round", "round"];
  for (let first = 0; first < columns.length; first += 1) {
    let last = first;
    while (last < columns.length && columns[last][1] === columns[last][1]) last += 1;
    const run = columns.slice(first, last);
    first = last;
    if (!run.length) continue;
    const [upper, whole] = [new Path2D(), new Path2D()];
    for (const [x, , most] of run) upper.lineTo(x, y(most));
    if (run.length === 1) upper.lineTo(run[0][0] + 0.1, y(run[0][2]));
    whole.addPath(upper);
    const lower = new Path2D();
    for (let i = run.length - 1; i >= 0; i -= 1) {
      whole.lineTo(run[i][0], y(run[i][1]));
      lower.lineTo(run[i][0], y(run[i][1]));
    }
    g.globalAlpha = 0.22;
    g.fill(whole);
    g.globalAlpha = 1;
    g.setLineDash(dash);
    g.stroke(upper);
    g.stroke(lower);
    g.setLineDash([]);
  }
  for (const [x, least, most] of columns) {
    if (most > high) g.fillRect(x - 1, top - 5, 2, 4);
    if (least < low) g.fillRect(x - 1, bottom + 1, 2, 4);
  }
}

/** The first one last, so that it lies on top. @param {Pen} g @param {Frame} frame @param {Series[]} series @param {Colours} colours */
function curves(g, frame, series, colours) {
  for (let i = series.length - 1; i >= 0; i -= 1) {
    const own = series[0].curve.status;
    const colour = i ? colours[`c${i % 6}`] : own === "warning" || own === "critical" ? colours[own] : colours.c0;
    curve_(g, frame, frame.bands[i], { colour, dash: DASHES[i % DASHES.length] });
  }
}

/** Least and most at a time, as words; nothing is known of other times. @param {Series} series @param {Frame} frame @param {number} time */
function reading({ curve, begin }, frame, time) {
  const x = frame.first + ((frame.px(time) - frame.left) / (frame.right - frame.left)) * (frame.last - frame.first);
  const i = Math.min(frame.isByUpdate ? place(curve.update, x - 1e-6) : place(curve.at, x + begin - 1e-6), curve.at.length - 1);
  if (i < 0) return ABSENT;
  const [low, high] = [curve.low[i], curve.high[i]].map((one) => (one == null ? ABSENT : formatted(one, curve.fmt) + curve.suffix));
  const update = curve.update[i];
  return `${update == null ? "" : `@${update.toLocaleString("en")} `}${low === high ? low : `${low} to ${high}`}`;
}

/** What stands beside the name while nothing is read. @param {Curve} curve */
function notes(curve) {
  const words = curve.limits.map((one) => one.text);
  if (!words.length && curve.best !== null && curve.direction === "up") {
    words.push(`best ${formatted(curve.best, curve.fmt)}${curve.suffix}${curve.best_update === null ? "" : ` @${curve.best_update}`}`);
  }
  return [...words, curve.non_finite ? `${curve.non_finite} not finite` : ""].filter(Boolean).join(" ");
}

/** @param {import("./sight.js").Sight} sight @param {() => void} onSeen */
export function chart(sight, onSeen) {
  const canvas = h("canvas", { role: "img", "aria-label": "no samples yet" });
  const [cursor, chosen] = [h("i", { class: "at" }), h("i", { class: "chosen" })];
  const plot = h("div", { class: "plot" }, canvas, cursor, chosen);
  const [value, word, read] = [h("span"), h("b"), h("span", { class: "read" })];
  const legend = h("p", { class: "legend" });
  const figures = h("details", {}, h("summary", {}, "Numbers"), h("table"));
  const node = h("div", { class: "chart" }, h("p", { class: "values" }, value, word, read), plot, legend, figures);
  /** @type {Drawing | null} */
  let drawing = null;
  /** @type {Frame | null} */
  let frame = null;
  /** @type {import("./canvas.js").Painted} */
  const it = { canvas: /** @type {HTMLCanvasElement} */ (canvas), wide: 0, high: 0, isSeen: false, onSeen, paint };
  /** @param {Pen} g @param {Colours} colours */
  function paint(g, colours) {
    if (!drawing) return;
    const { series, moments, isLog } = drawing;
    frame = framed(drawing, sight.span, it, sight.isZoomed || isLog);
    axes(g, frame, colours);
    limits(g, frame, series[0].curve, colours);
    marks(g, frame, moments, colours);
    g.beginPath();
    g.rect(frame.left - 1, 0, frame.right - frame.left + 2, it.high);
    g.clip();
    curves(g, frame, series, colours);
    showCursor();
  }
  function showCursor() {
    const at = sight.at;
    const px = at === null || !frame ? -1 : frame.px(at);
    const isIn = frame !== null && px >= frame.left - 1 && px <= frame.right + 1;
    attr(cursor, "hidden", !isIn);
    cursor.style.setProperty("transform", `translateX(${px}px)`);
    if (!drawing || !frame || at === null || !isIn) return drawing && put(read, notes(drawing.series[0].curve));
    const [near] = drawing.moments.filter((one) => Math.abs(/** @type {Frame} */ (frame).px(one.since) - px) < NEAR);
    const found = near ? ` · ${severity(near.severity)} ${near.code} ${near.subject ?? ""}` : "";
    put(read, `${clock(at)} ${reading(drawing.series[0], frame, at)}${found}`);
    [...legend.querySelectorAll("output")].forEach((one, i) => put(one, reading(
      /** @type {Drawing} */ (drawing).series[i], /** @type {Frame} */ (frame), at)));
  }
  gestures(plot, chosen, sight, (px) => (frame ? frame.time(px) : 0));
  painted(it);
  sight.listeners.add((isMoved) => it.isSeen && node.isConnected && (isMoved ? repaint(it) : showCursor()));
  /** @param {Drawing} next */
  function update(next) {
    drawing = next;
    const [{ curve }] = next.series;
    put(value, curve.text);
    put(word, curve.limits.length || curve.status !== "ok" ? severity(curve.status) : "");
    attr(node, "data-severity", curve.status);
    attr(canvas, "aria-label", `${curve.label} ${curve.text} ${severity(curve.status)}; ${notes(curve) || "no limits"}`);
    keyed(legend, next.series.length > 1 ? next.series : [], (one) => one.word, (one) => entry(one.word));
    if (/** @type {HTMLDetailsElement} */ (figures).open) table(/** @type {Element} */ (figures.lastChild), next);
    repaint(it);
  }
  figures.addEventListener("toggle", () => drawing && update(drawing));
  return { node, update, it };
}

const SVG = "http://www.w3.org/2000/svg";
/** A curve in the legend: its dashes, its letter and word, and its value at the cursor. @param {string} word */
function entry(word) {
  const line = document.createElementNS(SVG, "line");
  const svg = document.createElementNS(SVG, "svg");
  svg.append(line);
  const [name, output] = [h("span"), h("output")];
  for (const [key, value] of [["x1", 0], ["x2", 30], ["y1", 5], ["y2", 5], ["stroke-width", 2]]) attr(line, String(key), value);
  return { node: h("span", {}, svg, name, output), update: (/** @type {Series} */ series, /** @type {number} */ i) => {
    attr(line, "class", `s${i % 6}`);
    attr(line, "stroke-dasharray", DASHES[i % DASHES.length].join(" "));
    put(name, i ? `${LETTERS[(i - 1) % 8]} ${word}` : word);
    put(output, series.curve.text);
  } };
}

/** The columns in numbers, the newest first. @param {Element} node @param {Drawing} drawing */
function table(node, { series: [{ curve }] }) {
  const text = (/** @type {number | null} */ one) => (one === null ? ABSENT : formatted(one, curve.fmt, 12) + curve.suffix);
  const head = h("tr", {}, ...["time", "update", "least", "most"].map((one) => h("th", { scope: "col" }, one)));
  const rows = curve.at.map((at, i) => h("tr", {}, ...[clock(at), curve.update[i] ?? ABSENT, text(curve.low[i]), text(curve.high[i])]
    .map((one) => h("td", {}, one))));
  node.replaceChildren(head, ...rows.reverse());
}

/** Read under the pointer; drag, wheel or pinch to zoom; a double click shows all again, a click picks.
 * @param {HTMLElement} plot @param {HTMLElement} chosen @param {import("./sight.js").Sight} sight
 * @param {(px: number) => number} time @param {(event: PointerEvent) => void} [pick] */
export function gestures(plot, chosen, sight, time, pick) {
  /** @type {Map<number, number>} */
  const held = new Map();
  let from = NaN;
  let [isDrag, isPinch] = [false, false];
  attr(chosen, "hidden", true);
  plot.addEventListener("pointerdown", (event) => {
    held.set(event.pointerId, event.offsetX);
    from = event.offsetX;
    isPinch = held.size > 1;
    isDrag = event.pointerType !== "touch" && !event.button;
    if (isDrag) plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener("pointermove", (event) => {
    const before = [...held.values()];
    if (held.has(event.pointerId)) held.set(event.pointerId, event.offsetX);
    const now = [...held.values()];
    if (now.length === 2) {
      const [was, is] = [before, now].map(([one, other]) => Math.max(20, Math.abs(one - other)));
      return sight.zoom(was / is, time((now[0] + now[1]) / 2));
    }
    sight.read(time(event.offsetX));
    if (!isDrag) return undefined;
    attr(chosen, "hidden", Math.abs(event.offsetX - from) < NEAR);
    chosen.style.setProperty("left", `${Math.min(from, event.offsetX)}px`);
    chosen.style.setProperty("width", `${Math.abs(event.offsetX - from)}px`);
    return undefined;
  });
  const ended = (/** @type {PointerEvent} */ event) => {
    held.delete(event.pointerId);
    attr(chosen, "hidden", true);
    const [start, x, wasDrag] = [from, event.offsetX, isDrag];
    isDrag = false;
    if (event.type !== "pointerup" || event.button || isPinch) return;
    if (Math.abs(x - start) < NEAR) pick?.(event);
    else if (wasDrag) sight.show(time(Math.min(start, x)), time(Math.max(start, x)));
  };
  plot.addEventListener("pointerup", ended);
  plot.addEventListener("pointercancel", ended);
  plot.addEventListener("pointerleave", () => held.size || sight.read(null));
  plot.addEventListener("dblclick", () => sight.all());
  plot.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey && !plot.closest(".alone")) return;
    event.preventDefault();
    sight.zoom(Math.exp((event.deltaY || event.deltaX) / 400), time(event.offsetX));
  });
}
