/** Flight board: env rows lane by lane, worst first, with the reasons in words and a strip of chips.
 *
 * One scroll container, as high as all rows; only the lines in sight have elements, and these are used again.
 * The rows come from the server: the worst of all lanes, or a window over every row (`first=`, `grouped=no`).
 */

import { attr, framed, h, put } from "../dom.js";
import { makeTools } from "../filter.js";
import { whole } from "../format.js";
import { bind, BY } from "../keys.js";
import { fill, makeRow } from "../line.js";
import { CLOSED } from "./parts.js";
import * as rows from "../rows.js";
import { makeRollups } from "../rollups.js";

/** @import { Context, Panel } from "../app.js" */
/** @import { Row, Shape } from "../line.js" */
/** @import { Snapshot } from "../types.js" */
/** Where the cursor is: on an env, wherever that goes, else on a line. @typedef {{at: number, env: number | null}} Cursor */

const HIGH = { wide: 24, narrow: 46 };
/** Pixels below which a row has two lines. */
const NARROW = 640;
const SPARE = 6;
const HOLD_MS = 2000;
const ASK_MS = 200;
const ASCENDING_FIRST = ["env", "return", "reward", "fps", "metric"];
const KEPT = /** @type {const} */ (["run", "at", "sort", "order", "filter", "grouped"]);

class Board {
  /** @param {Context} ctx */
  constructor(ctx) {
    this.ctx = ctx;
    /** @type {Set<string>} */
    this.folded = new Set();
    /** @type {Row[]} */
    this.rows = [];
    /** @type {Shape} */
    this.shape = { columns: [], heads: [], hasSlots: false };
    this.key = "";
    /** @type {Cursor | null} */
    this.cursor = null;
    /** @type {Snapshot | null} */
    this.shown = null;
    /** @type {rows.Lines} */
    this.lines = { sections: [], count: 0 };
    /** Where to scroll to once the rows are there. @type {number | null} */
    this.jump = Number(ctx.link.place.first) || null;
    this.first = -1;
    this.tall = 400;
    this.acts = false;
    this.timer = 0;
    this.asked = -Infinity;
    this.high = HIGH.wide;
    this.note = h("span", { class: "muted" });
    this.head = h("div", { class: "b-line b-head", role: "row", "aria-rowindex": 1 });
    this.block = h("div", { class: "b-block", role: "rowgroup" });
    this.space = h("div", { class: "b-space", role: "presentation" }, this.block);
    this.grid = h("div", { class: "b-grid", role: "grid", tabindex: 0, "aria-label": "Environments",
      onscroll: () => this.scrolled(), onclick: (/** @type {MouseEvent} */ event) => this.clicked(event),
      onpointermove: this.hold }, h("div", { role: "rowgroup", class: "b-top" }, this.head), this.space);
    this.empty = h("p", { class: "muted" });
    this.tools = makeTools(ctx, this);
    this.rollups = makeRollups();
    this.node = h("section", { class: "board", "aria-label": "Flight board" },
      h("div", { class: "row" }, h("h2", {}, "Flight board"), this.note), this.tools.node, this.grid, this.empty, this.rollups.node);
    new ResizeObserver(() => {
      this.tall = this.grid.clientHeight;
      const isNarrow = this.grid.clientWidth < NARROW;
      this.high = isNarrow ? HIGH.narrow : HIGH.wide;
      attr(this.grid, "data-narrow", isNarrow);
      this.redraw();
    }).observe(this.grid);
    ctx.link.listen((place, before) => {
      if (KEPT.some((name) => place[name] !== before[name])) this.home();
      if (place.first !== before.first && !this.isKeeping) this.jump = Number(place.first) || null;
    });
  }

  get isFlat() {
    return this.ctx.link.place.grouped === "no";
  }
  get isWindow() {
    return this.isFlat || this.ctx.link.place.first !== "";
  }
  /** Envs that the reader marked. */
  get marked() {
    return new Set(this.ctx.link.place.marked.split(",").filter(Boolean));
  }
  isKeeping = false;
  held = 0;

  /** @param {Snapshot} snapshot */
  update(snapshot) {
    this.shown = rows.inOrder(snapshot, performance.now() < this.held ? this.shown : null);
    this.lines = rows.layout(this.shown, this.folded, this.isFlat);
    this.acts ||= snapshot.envs.some((env) => env.last_action);
    const columns = rows.columnsOf(snapshot, { isFlat: this.isFlat, acts: this.acts });
    const hasSlots = snapshot.run.slots_enabled;
    this.shape = { columns, hasSlots, heads: hasSlots ? rows.slotHeads(snapshot) : [] };
    const key = JSON.stringify([columns.map(({ head }) => head), this.shape.heads, hasSlots]);
    if (key !== this.key) this.rebuild(key, snapshot);
    this.titles(snapshot);
    this.tools.update();
    this.rollups.update(snapshot);
    this.draw();
    this.ask();
  }

  hold = () => (this.held = performance.now() + HOLD_MS);

  /** Other columns: the head and all rows anew. @param {string} key @param {Snapshot} snapshot */
  rebuild(key, snapshot) {
    const { columns, heads, hasSlots } = this.shape;
    this.key = key;
    const title = (/** @type {rows.Column} */ { name, head, sort }) => h("span", { class: `b-${name}`, role: "columnheader",
      "data-sort": sort }, sort ? h("button", { type: "button", onclick: () => this.sort(sort) }, head) : head);
    const names = heads.length ? heads.map((name) => h("span", { class: "b-chip" }, name)) : "slots";
    this.head.replaceChildren(...columns.map(title),
      ...(hasSlots ? [h("span", { class: "b-slots", role: "columnheader" }, ...[names].flat())] : []));
    const most = Math.max(6, ...snapshot.envs.map((env) => Object.keys(env.slots).length));
    this.grid.style.setProperty("--slots", `${heads.length ? heads.length * 46 : Math.min(17, most + 1) * 12}px`);
    this.rows = [];
    this.first = -1;
    this.block.replaceChildren();
    this.redraw();
  }

  /** @param {Snapshot} snapshot */
  titles({ board, run }) {
    const total = run.n_envs === null ? "" : `${whole(run.n_envs)} env: `;
    const many = board.matched === null ? total : `${whole(board.matched)} of ${total || "? env: "}`;
    const held = this.shown?.board.held ? " · held" : "";
    const sort = `sort ${board.sort} ${board.direction === "desc" ? "v" : "^"}${held}`;
    put(this.note, `${sort} · filter ${board.filter || "none"} · ${many}${rows.statusCounts(board.counts) || "none"}`);
    for (const cell of this.head.children) {
      const isSorted = cell.getAttribute("data-sort") === board.sort;
      attr(cell, "aria-sort", isSorted ? (board.direction === "desc" ? "descending" : "ascending") : null);
    }
    attr(this.grid, "aria-rowcount", this.lines.count + 1);
    put(this.empty, this.lines.count ? "" : board.filter ? "no environment passes the filter; Esc drops it" : "no env yet");
  }

  redraw = framed(() => this.draw());

  /** The lines in sight. */
  draw() {
    const { high, lines, shown, grid } = this;
    if (!shown) return;
    this.space.style.setProperty("height", `${lines.count * high}px`);
    if (this.jump !== null && shown.board.offset !== null) {
      grid.scrollTop = this.jump * high;
      this.jump = null;
    }
    const inSight = Math.ceil(this.tall / high) + 2 * SPARE;
    const first = Math.max(0, Math.min(Math.floor(grid.scrollTop / high) - SPARE, lines.count - inSight));
    this.recycle(first, Math.min(inSight, lines.count - first));
    const cursor = this.cursorAt(shown);
    const [isOld, open, marked] = [this.ctx.source.isOld(shown), this.ctx.link.place.env, this.marked];
    this.rows.forEach((row, place) => {
      const at = first + place;
      const line = rows.lineAt(lines, shown, at);
      const isOpen = line.env !== null && String(line.env.env_id) === open;
      const isMarked = line.env !== null && marked.has(String(line.env.env_id));
      fill(row, line, shown, this.shape, { at, isHere: at === cursor, isOpen, isOld, isMarked });
    });
    attr(grid, "aria-activedescendant", this.rows[cursor - first]?.node.id);
    if (first !== this.first) this.block.style.setProperty("transform", `translateY(${first * high}px)`);
    this.first = first;
  }

  /** So many elements from a line on: those that scrolled out on one side come in on the other.
   * @param {number} first @param {number} many */
  recycle(first, many) {
    while (this.rows.length < many) {
      const row = makeRow(this.shape);
      this.rows.push(row);
      this.block.append(row.node);
    }
    for (const gone of this.rows.splice(many)) gone.node.remove();
    const by = this.first < 0 ? 0 : first - this.first;
    if (Math.abs(by) >= many) return;
    if (by > 0) {
      const out = this.rows.splice(0, by);
      this.block.append(...out.map((row) => row.node));
      this.rows.push(...out);
    } else if (by < 0) {
      const out = this.rows.splice(by);
      this.block.prepend(...out.map((row) => row.node));
      this.rows.unshift(...out);
    }
  }

  /** The line of the cursor: with its env, else where it was, at first the worst. @param {Snapshot} snapshot */
  cursorAt(snapshot) {
    const { lines } = this;
    const open = this.ctx.link.place.env;
    if (!this.cursor && open) this.cursor = { at: 0, env: Number(open) };
    if (!this.cursor || !lines.count) return lines.sections[0]?.group ? 1 : 0;
    const found = this.cursor.env === null ? -1 : rows.placeOf(lines, snapshot, this.cursor.env);
    const at = found >= 0 ? found : Math.max(0, Math.min(this.cursor.at, lines.count - 1));
    const { kind, env } = rows.lineAt(lines, snapshot, at);
    this.cursor = { at, env: kind === "env" && !env ? this.cursor.env : env?.env_id ?? null };
    return at;
  }

  scrolled() {
    this.hold();
    this.redraw();
    this.ask();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.keep(), ASK_MS);
  }

  /** The address has the place among all rows. */
  keep() {
    this.ask();
    if (!this.isWindow || this.jump !== null) return;
    const first = Math.floor(this.grid.scrollTop / this.high);
    this.isKeeping = true;
    this.ctx.link.go({ first: this.isFlat && !first ? "" : String(first) }, { quiet: true });
    this.isKeeping = false;
  }

  /** Have the server send the rows around those in sight, or the worst. */
  ask() {
    const { ctx, shown, jump } = this;
    const wanted = { first: /** @type {number | null} */ (null), rows: rows.ROWS };
    if (this.isWindow) {
      const lines = shown && jump !== null ? rows.layout(rows.asWindow(shown), this.folded, this.isFlat) : this.lines;
      const top = jump ?? Math.floor(this.grid.scrollTop / this.high);
      wanted.first = rows.windowAround(lines, top + Math.floor(this.tall / this.high / 2));
      wanted.rows = rows.WINDOW;
    }
    if (wanted.first === ctx.window.first && wanted.rows === ctx.window.rows) return;
    const now = performance.now();
    if (this.isWindow && ctx.window.first !== null && now < this.asked + ASK_MS) return;
    this.asked = now;
    ctx.window = wanted;
    ctx.view();
  }

  /** @param {MouseEvent} event */
  clicked(event) {
    const place = this.rows.findIndex((row) => row.node.contains(/** @type {Node} */ (event.target)));
    if (place >= 0) this.open(this.first + place);
  }

  /** What Enter or a click on a line does. @param {number} at */
  open(at) {
    if (!this.shown || !this.lines.count) return;
    const { kind, section, env } = rows.lineAt(this.lines, this.shown, at);
    this.cursor = { at, env: env?.env_id ?? null };
    if (kind === "head") this.fold(section);
    else if (env) this.ctx.link.go({ env: String(env.env_id), slot: "", lane: "", finding: "" });
    else if (kind === "fold") {
      const all = rows.layout(rows.asWindow(this.shown), this.folded, this.isFlat);
      const same = all.sections[this.lines.sections.indexOf(section)];
      this.ctx.link.go({ first: String(same.begin + 1 + section.rows) });
    }
    this.redraw();
  }

  /** @param {rows.Section} section */
  fold(section) {
    const lane = section.group?.gpu_id ?? "";
    if (!this.folded.delete(lane)) this.folded.add(lane);
    this.cursor = { at: section.begin, env: null };
    if (this.shown) this.lines = rows.layout(this.shown, this.folded, this.isFlat);
    this.redraw();
  }

  /** What a key does to the line of the cursor. @param {(at: number, line: rows.Line) => void} does */
  here(does) {
    if (!this.shown || !this.lines.count) return;
    const at = this.cursorAt(this.shown);
    does(at, rows.lineAt(this.lines, this.shown, at));
  }

  /** @param {number} by */
  move(by) {
    this.hold();
    this.here((from) => {
      const at = Math.max(0, Math.min(from + by, this.lines.count - 1));
      const { env } = rows.lineAt(this.lines, /** @type {Snapshot} */ (this.shown), at);
      this.cursor = { at, env: env?.env_id ?? null };
      const [top, room] = [at * this.high, this.tall - 2 * this.high];
      if (top < this.grid.scrollTop) this.grid.scrollTop = top;
      else if (top > this.grid.scrollTop + room) this.grid.scrollTop = top - room;
      if (this.ctx.link.place.env && env) this.ctx.link.go({ env: String(env.env_id) }, { quiet: true });
      this.redraw();
    });
  }

  home() {
    this.cursor = null;
    this.held = 0;
    this.grid.scrollTop = 0;
  }

  /** Another order; the same one turns around. @param {string} sort */
  sort(sort) {
    const { place } = this.ctx.link;
    const turned = place.order === "desc" ? "asc" : "desc";
    const order = place.sort === sort ? turned : ASCENDING_FIRST.includes(sort) ? "asc" : "desc";
    this.ctx.link.go({ sort, order, first: place.first && "0" });
  }

  /** The env that is open, else that of the cursor. */
  mark() {
    const { place } = this.ctx.link;
    const marked = this.marked;
    let id = place.env;
    if (!id) this.here((_, { env }) => (id = env ? String(env.env_id) : ""));
    if (!id) return this.ctx.note("no environment is under the cursor");
    if (!marked.delete(id)) marked.add(id);
    this.ctx.link.go({ marked: [...marked].sort((one, other) => Number(one) - Number(other)).join(",") }, { quiet: true });
  }

  onlyMarked() {
    const { filter, marked, first } = this.ctx.link.place;
    const wanted = `env=${marked}`;
    if (filter !== wanted && !marked) return this.ctx.note("nothing is marked; m marks the environment under the cursor");
    this.ctx.link.go({ filter: filter === wanted ? "" : wanted, first: first && "0" });
  }

  sortNext() {
    const known = this.shown ? rows.sorts(this.shown) : ["anomaly"];
    const next = known[(known.indexOf(this.ctx.link.place.sort) + 1) % known.length];
    if (next !== this.ctx.link.place.sort) this.sort(next);
  }
}

/** @type {Board | null} */
let board = null;
/** @param {(board: Board, key: string) => void} run @returns {(ctx: Context, key: string) => void} */
const on = (run) => (_, key) => board && run(board, key);
const pages = ["flight"];
bind([
  { keys: Object.keys(BY), shown: "j k", does: "cursor to the next line, to the one before; PgDn, PgUp: ten", pages,
    run: on((it, key) => it.move(BY[key])) },
  { keys: ["Enter"], shown: "Enter", does: "open the environment, or the closed lane", pages, run: on((it) => it.here((at) => it.open(at))) },
  { keys: ["s"], shown: "s", does: "sort by anomaly, env, return, fps, metric in turn", pages, run: on((it) => it.sortNext()) },
  { keys: ["S"], shown: "S", does: "turn the order around", pages, run: on((it) => it.sort(it.ctx.link.place.sort)) },
  { keys: ["o"], shown: "o", does: "fold or unfold the lane of the cursor", pages, run: on((it) => it.here((_, { section }) => it.fold(section))) },
  { keys: ["/"], shown: "/", does: "filter the environments", pages, run: on((it) => it.tools.field.focus()) },
  { keys: ["m"], shown: "m", does: "mark the environment, or no longer", run: on((it) => it.mark()),
    pages: ["flight", "feed", "heat", "drawer", "full"] },
  { keys: ["M"], shown: "M", does: "only marked environments, or all", pages, run: on((it) => it.onlyMarked()) },
  { keys: ["e"], shown: "e", does: "keys to the flight board", pages, run: on((it) => it.grid.focus()) },
  { keys: ["i"], shown: "i", does: "all about the lane of the cursor", pages, run: on((it) => it.here((_, { section, env }) => {
    const lane = section.group?.gpu_id ?? env?.gpu_id;
    return lane ? it.ctx.link.go({ ...CLOSED, lane }) : it.ctx.note("there is no lane under the cursor");
  })) },
  { keys: ["g", "Home"], shown: "g Home", does: "the overview, cursor on the worst environment", run: (ctx) => {
    board?.home();
    ctx.link.go({ ...CLOSED, page: "flight", first: "" });
  } },
]);

/** @type {Panel} */
export const panel = {
  name: "board", title: "Flight board", where: "main", pages,
  make(ctx) {
    const it = board = new Board(ctx);
    return { node: it.node, update: (snapshot) => it.update(snapshot) };
  },
};
