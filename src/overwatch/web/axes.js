/** Axes: their ends, and round numbers and times within them; the rules of the report's charts. Pure. */

import { duration, spec } from "./format.js";

const STEPS = [1, 2, 5];
const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];

/** @param {number} step @param {number} first @param {number} last */
const multiples = (step, first, last) => Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => (first + i) * step);

/** Round numbers within two ends. @param {number} low @param {number} high @param {number} [about] */
export function ticks(low, high, about = 4) {
  const span = high - low;
  if (!(span > 0) || !Number.isFinite(span)) return [low];
  const scale = 10 ** Math.floor(Math.log10(span / about));
  const step = STEPS.map((unit) => unit * scale).find((one) => one >= span / about) ?? 10 * scale;
  return multiples(step, Math.ceil(low / step - 1e-9), Math.floor(high / step + 1e-9));
}

/** Round times, in seconds. @param {number} low @param {number} high @param {number} [about] */
export function timeTicks(low, high, about = 8) {
  const step = SECONDS.find((unit) => (high - low) / unit <= about);
  return step ? multiples(step, Math.ceil(low / step), Math.floor(high / step)) : ticks(low, high, about);
}

/** Powers of ten within two ends above 0; round numbers where there are less than two.
 * @param {number} low @param {number} high */
export function logTicks(low, high) {
  const [first, last] = [Math.ceil(Math.log10(low)), Math.floor(Math.log10(high))];
  return last > first ? multiples(1, first, last).map((power) => 10 ** power) : ticks(low, high);
}

/** A number as an axis shows it. @param {number} value */
export function axisNumber(value) {
  const isFar = value !== 0 && (Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3);
  return isFar ? spec(value, ".2e").replace(/\.?0*e([+-])0?/, (_, way) => (way === "-" ? "e-" : "e")) : spec(value, ",.6g");
}

/** A time as an axis shows it. @param {number} value */
export const axisTime = (value) => (value ? duration(value) : "0");

/** A scale that holds all values; else ends around them without the outermost hundredth, with the limits near them,
 * over no less than 5 % of their median. @param {readonly number[]} values @param {readonly {value: number}[]} [limits]
 * @param {readonly [number, number] | null} [scale] @returns {readonly [number, number]} */
export function fitted(values, limits = [], scale = null) {
  const finite = Float64Array.from(values.filter(Number.isFinite)).sort();
  if (scale && !(finite[0] < scale[0] || finite[finite.length - 1] > scale[1])) return scale;
  if (!finite.length) return [0, 1];
  const cut = Math.floor(finite.length / 100);
  let [low, high] = [finite[cut], finite[finite.length - 1 - cut]];
  const least = 0.05 * Math.abs(finite[finite.length >> 1]) || 1e-9;
  if (high - low < least) [low, high] = [(low + high - least) / 2, (low + high + least) / 2];
  const span = high - low;
  for (const { value } of limits) {
    if (low - span <= value && value <= high + span) [low, high] = [Math.min(low, value), Math.max(high, value)];
  }
  return [low - 0.06 * (high - low), high + 0.06 * (high - low)];
}

/** The first place whose value is not below. @param {ArrayLike<number | null>} sorted @param {number} value */
export function place(sorted, value) {
  let [first, last] = [0, sorted.length];
  while (first < last) {
    const middle = (first + last) >> 1;
    if (/** @type {number} */ (sorted[middle]) < value) first = middle + 1;
    else last = middle;
  }
  return first;
}

/** Where a value is along one list, as a value along another. @param {readonly (number | null)[]} from
 * @param {readonly (number | null)[]} to @param {number} value */
export function along(from, to, value) {
  const after = Math.min(Math.max(1, place(from, value)), from.length - 1);
  const [x0, x1, y0, y1] = /** @type {number[]} */ ([from[after - 1], from[after], to[after - 1], to[after]]);
  return x1 > x0 ? y0 + Math.min(1, Math.max(0, (value - x0) / (x1 - x0))) * (y1 - y0) : y1;
}
