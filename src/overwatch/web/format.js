/** Numbers and times as the terminal writes them: the rules of its grammar, held to it by tests. */

export const ABSENT = "–";
const BARS = "▁▂▃▄▅▆▇█";
/** @type {[number, string][]} */
const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
/** @type {[number, string][]} */
const LARGE = [[1e12, "T"], [1e15, "P"], [1e18, "E"]];

/** As Python writes it: the nearest, and of two that are as near the even one. @param {number} value @param {number} digits */
function rounded(value, digits) {
  const scaled = Math.abs(value) * 10 ** digits;
  if (scaled < 2 ** 52 && scaled % 1 !== 0.5) return value.toFixed(digits);
  const exact = value.toFixed(digits + 40);
  const cut = exact.slice(0, digits ? -40 : -41);
  return /50{39}$/.test(exact) && "02468".includes(cut.slice(-1)) ? cut : value.toFixed(digits);
}

/** A number with so many digits behind the point, and its sign where it is wanted; an absent one is a dash.
 * @param {number | null | undefined} value @param {number} [digits] @param {{signed?: boolean}} [how] */
export function fixed(value, digits = 2, how = {}) {
  if (value === null || value === undefined) return ABSENT;
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "Inf" : "-Inf";
  return (how.signed && !(value < 0) ? "+" : "") + rounded(value, digits);
}

/** @param {number | null | undefined} value */
export function percent(value) {
  return value === null || value === undefined ? ABSENT : `${fixed(100 * value, 0)}%`;
}

/** Three digits and a prefix: `31.2k`, `1.43G`, `42`; beyond all `7.6e18`. @param {number | null | undefined} value */
export function short(value) {
  if (value === null || value === undefined) return ABSENT;
  if (Math.abs(value) >= 1e15) return spec(value, ".1e").replace("e+", "e");
  for (const [scale, letter] of PREFIXES) {
    if (Math.abs(value) >= scale) {
      const scaled = Math.abs(value / scale);
      return rounded(value / scale, scaled < 9.995 ? 2 : scaled < 99.95 ? 1 : 0) + letter;
    }
  }
  return Math.abs(value) >= 10 || value === Math.trunc(value) ? rounded(value, 0) : rounded(value, 1);
}

/** A whole number with commas. @param {number | null | undefined} value */
export function whole(value) {
  return value === null || value === undefined ? ABSENT : Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ",");
}

/** A number in so many characters: with its digits, else with a prefix or an exponent, and never cut.
 * @param {number | null | undefined} value @param {number} digits @param {number} width @param {{signed?: boolean}} [how] */
export const number = (value, digits, width, how = {}) => formatted(value, `${how.signed ? "+" : ""}.${digits}f`, width);

/** Without the zero before the point: `.94`. @param {string} text */
const bare = (text) => text.replace(/^([+-]?)0\./, "$1.");

/** An age that grows on the page: tenths below ten seconds, then as a duration. @param {number | null | undefined} seconds */
export function age(seconds) {
  if (seconds === null || seconds === undefined) return ABSENT;
  return seconds < 9.95 ? `${fixed(Math.max(0, seconds), 1)}s` : duration(seconds);
}

/** `0.84s`, `41s`, `4m12s`, `1h12m`, `2d3h`. @param {number | null | undefined} seconds @param {{coarse?: boolean}} [how] */
export function duration(seconds, how = {}) {
  if (seconds === null || seconds === undefined) return ABSENT;
  if (seconds < 1) return `${rounded(Math.max(0, seconds), 2)}s`;
  const all = Math.trunc(seconds);
  if (all < 60) return `${all}s`;
  const minutes = Math.trunc(all / 60);
  if (minutes < 60) return how.coarse || !(all % 60) ? `${minutes}m` : `${minutes}m${two(all % 60)}s`;
  const hours = Math.trunc(minutes / 60);
  if (hours < 24) return minutes % 60 ? `${hours}h${two(minutes % 60)}m` : `${hours}h`;
  return hours % 24 ? `${Math.trunc(hours / 24)}d${hours % 24}h` : `${Math.trunc(hours / 24)}d`;
}

/** How long a finding is there, in five characters at most: `9m59s`, `29m`, `10h`. @param {number} seconds */
export function since(seconds) {
  if (seconds < 1) return "0s";
  const exact = [1, 60, 3600, 86400].filter((unit) => seconds >= unit).map((unit) => duration(Math.floor(seconds / unit) * unit));
  return exact.find((one) => one.length <= 5) ?? exact[exact.length - 1];
}

/** Moments of a text, which are in UTC, as time of day here; with the date where that is not the day of `now`.
 * @param {string} text @param {number} now */
export function moments(text, now) {
  return text.replace(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/g, (found) => {
    const at = Date.parse(found) / 1000;
    return Number.isNaN(at) ? found : day(at) === day(now) ? clock(at) : `${day(at)} ${clock(at)}`;
  });
}

/** @param {number} unix */
function day(unix) {
  const when = dated(unix);
  return `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())}`;
}

/** To the microsecond first, as the terminal does: what is cut from there is less than is shown. @param {number} unix */
function dated(unix) {
  const seconds = Math.floor(unix);
  return new Date(1000 * seconds + Math.floor(Math.round((unix - seconds) * 1e6) / 1000));
}

/** Time of day here. @param {number | null | undefined} unix @param {{millis?: boolean}} [how] */
export function clock(unix, how = {}) {
  if (unix === null || unix === undefined) return ABSENT;
  const when = dated(unix);
  const text = [when.getHours(), when.getMinutes(), when.getSeconds()].map(two).join(":");
  return how.millis ? `${text}.${String(when.getMilliseconds()).padStart(3, "0")}` : text;
}

/** Time of day with its zone: `17:33:59 UTC+01:00`. @param {number} unix */
export function zoned(unix) {
  const ahead = -dated(unix).getTimezoneOffset();
  const [hours, minutes] = [Math.trunc(Math.abs(ahead) / 60), Math.abs(ahead) % 60].map(two);
  return `${clock(unix)} UTC${ahead ? `${ahead < 0 ? "-" : "+"}${hours}:${minutes}` : ""}`;
}

/** @param {number} value */
const two = (value) => String(value).padStart(2, "0");

/** @param {number | null | undefined} used @param {number | null | undefined} total */
export function memory(used, total) {
  if (used === null || used === undefined) return ABSENT;
  const gib = (/** @type {number} */ bytes) => rounded(bytes / 2 ** 30, 1);
  return total === null || total === undefined ? `${gib(used)}G` : `${gib(used)}/${gib(total)}G`;
}

/** Bars of the newest values, as the terminal draws them: between the ends, else around the median.
 * @param {readonly (number | null)[]} values @param {number} width @param {readonly number[] | null} [ends] */
export function sparkline(values, width, ends = null) {
  const shown = values.slice(-width);
  const finite = /** @type {number[]} */ (shown.filter((one) => one !== null && Number.isFinite(one))).sort((a, b) => a - b);
  const [low, high] = ends ?? window_(finite);
  const bars = shown.map((one) => (one === null ? " " : Number.isFinite(one) ? BARS[level(one, low, high)] : "!"));
  return bars.join("").padStart(width);
}

/** @param {number[]} finite */
function window_(finite) {
  if (!finite.length) return [0, 1];
  const last = finite[finite.length - 1];
  const least = 0.05 * Math.abs(finite[finite.length >> 1]) || 1e-9;
  const span = Math.max(last - finite[0], least);
  const middle = (finite[0] + last) / 2;
  return [middle - span / 2, middle + span / 2];
}

/** @param {number} value @param {number} low @param {number} high */
function level(value, low, high) {
  if (low === high) return 0;
  const share = (value - low) / (high - low);
  return share >= 1 ? 7 : Math.min(6, Math.max(0, Math.round(share * 7)));
}

/** A value as Python's `format` writes it: `.4f`, `+.2f`, `,.0f`, `.0%`, `.1e`, `.4g`.
 * @param {number} value @param {string} how */
export function spec(value, how) {
  const [, plus, comma, digits, kind] = /^(\+?)(,?)\.(\d+)([fge%])$/.exec(how) ?? ["", "", "", "4", "g"];
  const most = Number(digits);
  let text = kind === "e" ? exponential(value, most) : kind === "g" ? general(value, most)
    : kind === "%" ? `${rounded(100 * value, most)}%` : rounded(value, most);
  if (comma) text = text.replace(/^-?\d+/, (whole_) => whole_.replace(/\B(?=(\d{3})+$)/g, ","));
  return plus && !text.startsWith("-") ? `+${text}` : text;
}

/** Python's `e`, exact ties to the even digit. @param {number} value @param {number} digits */
function exponential(value, digits) {
  let [mantissa, power] = value.toExponential(digits).split("e");
  const isTie = /50{39}e/.test(value.toExponential(digits + 40));
  if (isTie && Number(mantissa.at(-1)) % 2) mantissa = mantissa.slice(0, -1) + (Number(mantissa.at(-1)) - 1);
  return `${mantissa}e${power.replace(/([+-])(\d)$/, "$10$2")}`;
}

/** @param {number} value @param {number} digits */
function general(value, digits) {
  if (value === 0) return "0";
  const written = exponential(value, Math.max(0, digits - 1));
  const power = Number(written.slice(written.indexOf("e") + 1));
  if (power >= -4 && power < Math.max(1, digits)) return trimmed(rounded(value, Math.max(0, digits - 1 - power)));
  return written.replace(/^[^e]*/, trimmed);
}

/** @param {string} text */
const trimmed = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

/** A value in at most so many characters: by its format, else with a prefix or an exponent; never cut.
 * @param {number | null | undefined} value @param {string} how @param {number} [width] */
export function formatted(value, how, width = 9) {
  if (value === null || value === undefined) return ABSENT;
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "Inf" : "-Inf";
  let text = spec(value, how);
  if (value && how.endsWith(".2f") && !Number(text)) {
    // A small value is not nothing: one digit more, where there is room without the leading zero.
    const finer = bare(spec(value, how.replace(".2f", ".3f")));
    if (finer.length <= width && Number(finer)) text = finer;
  }
  if (text.length <= width) return text;
  if (bare(text).length <= width) return bare(text);
  const sign = how.startsWith("+") ? "+" : "";
  const [scale, letter] = PREFIXES.find(([one]) => Math.abs(value) >= one) ?? [1, ""];
  for (const digits of [2, 1, 0]) {
    text = spec(value / scale, `${sign}.${digits}f`) + letter;
    if (text.length <= width) return text;
  }
  text = spec(value, `${sign}.0e`).replace(/e([+-])0?/, (_, way) => (way === "-" ? "e-" : "e"));
  if (text.length <= width) return text;
  for (const [large, of] of LARGE) {
    const part = [".1f", ".0f"].map((one) => bare(spec(value / large, one))).find((one) => one.length < width && Number(one));
    if (part) return part + of;
  }
  return text.replace(/^\++/, "");
}
