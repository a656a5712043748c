/** Canvases of the page: their colours, read once a theme, and when they are painted: some a frame, those in sight. */

import { framed } from "./dom.js";

const NAMES = ["ink", "muted", "line", "card", "accent", "ok", "info", "warning", "critical", "heat",
  "c0", "c1", "c2", "c3", "c4", "c5"];
// What is drawn is filled in when the frame is committed, at 8 ms of processor a chart of noise, so few a frame.
const [BUDGET_MS, BUDGET] = [8, 2];

/** `resize` takes the size of its place in the page, `paint` draws into the canvas's own pixels.
 * @typedef {{canvas: HTMLCanvasElement, wide: number, high: number, isSeen: boolean, onSeen?: () => void,
 *   paint: (g: CanvasRenderingContext2D, colours: Record<string, string>) => void}} Painted */
/** @type {Map<Element, Painted>} */
const ALL = new Map();
/** @type {Set<Painted>} */
const dirty = new Set();
/** @type {Record<string, string> | null} */
let colours = null;

const sizes = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    const one = /** @type {Painted} */ (ALL.get(target));
    [one.wide, one.high] = [contentRect.width, contentRect.height];
    repaint(one);
  }
});
const sights = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const one = /** @type {Painted} */ (ALL.get(target));
    one.isSeen = isIntersecting;
    if (isIntersecting) repaint(one);
    if (isIntersecting) one.onSeen?.();
  }
}, { rootMargin: "120px" });
function recolour() {
  colours = null;
  ALL.forEach(repaint);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
new MutationObserver(recolour).observe(document.documentElement, { attributes: true });

/** Paint this canvas from now on. @param {Painted} one */
export function painted(one) {
  ALL.set(one.canvas, one);
  sizes.observe(one.canvas);
  sights.observe(one.canvas);
}

/** @param {Painted} one */
export function repaint(one) {
  dirty.add(one);
  plan();
}

const plan = framed(() => {
  const until = performance.now() + BUDGET_MS;
  let left = BUDGET;
  for (const one of dirty) {
    if (performance.now() > until || !left) break;
    dirty.delete(one);
    if (!one.isSeen || !one.wide || !one.high) continue;
    paint(one);
    left -= 1;
  }
  const [next] = dirty;
  if (next) plan();
});

/** @param {Painted} one */
function paint({ canvas, wide, high, paint: draw }) {
  const ratio = devicePixelRatio;
  const [across, down] = [Math.round(wide * ratio), Math.round(high * ratio)];
  if (canvas.width !== across) canvas.width = across;
  if (canvas.height !== down) canvas.height = down;
  const g = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, wide, high);
  g.font = "11px system-ui, sans-serif";
  g.save();
  draw(g, palette());
  g.restore();
}

/** The colours of the theme, as a canvas takes them. */
function palette() {
  if (colours) return colours;
  const probe = document.body.appendChild(document.createElement("i"));
  colours = {};
  for (const name of NAMES) {
    probe.style.setProperty("color", `var(--${name})`);
    colours[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return colours;
}
