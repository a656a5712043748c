/** Elements: made once, changed only where they differ. All text goes in as text nodes. */

const FOREIGN = /[^\P{Cc}\n\t]|[\p{Cf}\p{Zl}\p{Zp}]|\p{M}{3}/u;

/** Text that turns nothing around and hides nothing: controls are `?`, what has no width goes, as in the terminal.
 * @param {string} text */
export function clean(text) {
  if (!FOREIGN.test(text)) return text;
  return text.replace(/\p{Cf}/gu, "").replace(/[^\P{Cc}\n\t]|[\p{Zl}\p{Zp}]/gu, "?").replace(/(\p{M}{2})\p{M}+/gu, "$1");
}

/** @typedef {string | number | Node | null | undefined | false} Child */
/** @typedef {Record<string, string | number | boolean | null | undefined | ((event: any) => void)>} Attributes */

/** @param {string} tag @param {Attributes} [attributes] @param {...(Child | Child[])} inside @returns {HTMLElement} */
export function h(tag, attributes = {}, ...inside) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else attr(node, name, value);
  }
  node.append(...inside.flat().filter((one) => one !== null && one !== undefined && one !== false).map(textual));
  return node;
}

/** @param {any} one @returns {Node | string} */
const textual = (one) => (one instanceof Node ? one : clean(String(one)));

/** Set an attribute, or remove it where the value is null or false.
 * @param {Element} node @param {string} name @param {unknown} value */
export function attr(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
    return;
  }
  const text = value === true ? "" : String(value);
  if (node.getAttribute(name) !== text) node.setAttribute(name, text);
}

/** Set the text of a node that holds nothing else. @param {Node} node @param {string} text */
export function put(node, text) {
  text = clean(text);
  const only = node.firstChild;
  if (only instanceof Text && only === node.lastChild) {
    if (only.data !== text) only.data = text;
  } else {
    node.textContent = text;
  }
}

/** What asks for a call in the next frame, however often it is asked. @param {() => void} call */
export function framed(call) {
  let isPlanned = false;
  return () => {
    if (!isPlanned) requestAnimationFrame(() => {
      isPlanned = false;
      call();
    });
    isPlanned = true;
  };
}

/** @typedef {{node: HTMLElement, update: (item: any, place: number) => void}} Part */
/** @type {WeakMap<Element, Map<unknown, Part>>} */
const PARTS = new WeakMap();

/** One child an item, in the items' order; a child stays as long as its key does.
 * @template T @param {Element} parent @param {readonly T[]} items @param {(item: T, place: number) => unknown} key
 * @param {(item: T) => {node: HTMLElement, update: (item: T, place: number) => void}} make */
export function keyed(parent, items, key, make) {
  const before = PARTS.get(parent) ?? new Map();
  const parts = new Map();
  let at = /** @type {ChildNode | null} */ (parent.firstChild);
  items.forEach((item, place) => {
    let name = key(item, place);
    if (parts.has(name)) name = `${String(name)}#${place}`;
    const part = before.get(name) ?? make(item);
    before.delete(name);
    parts.set(name, part);
    part.update(item, place);
    if (at && part.node === at) at = at.nextSibling;
    else parent.insertBefore(part.node, at);
  });
  for (const gone of before.values()) gone.node.remove();
  PARTS.set(parent, parts);
}
