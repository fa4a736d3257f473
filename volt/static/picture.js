// The picture of an image's trees: SVG that is changed where the trees did, not drawn anew.

import { bytes, byName, CONDITIONS, conditions, hitRate, MARKS, percent, STATES } from "./format.js";
import { layout, line, round } from "./layout.js";
import { gettext } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const SHAPES = {
  source: "M-1 -1H1V1H-1Z",
  inner: "M-1 0A1 1 0 1 1 1 0A1 1 0 1 1 -1 0Z",
  leaf: "M0 -1L1 0L0 1L-1 0Z",
};
const COLOURS = 8;
const STEPS = 5;
// px between neighbours from which on they have labels, and px around a tree for these
const LABELS = { level: { between: 76, margin: 42 }, radial: { between: 12, margin: 76 } };
const MARGIN = 26; // px around a tree without labels
const ZOOM = { least: 0.02, most: 6 };

function draw(kind, parent, attributes = {}) {
  const element = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  parent.append(element);
  return element;
}

function patch(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

const idOf = (stripe, host) => `tree-${stripe}-${host ?? "source."}`;

// What colours mean: each host's class, and what the legend says of each.
function scale(nodes, by) {
  if (by === "rack") {
    const racks = [...new Set(nodes.map((node) => node.rack))].filter((rack) => rack !== null);
    const rank = new Map(racks.sort(byName).map((rack, index) => [rack, index]));
    const of = ({ rack }) =>
      rack === null ? { colour: "none", glyph: "–" } : { colour: `c${rank.get(rack) % COLOURS}`, glyph: `${rank.get(rack) + 1}` };
    return { of, name: ({ rack }) => rack ?? gettext("no rack") };
  }
  const most = Math.max(1, ...nodes.map((node) => node.sent));
  const share = by === "sent" ? (node) => node.sent / most : hitRate;
  const step = (node) => Math.min(STEPS - 1, Math.floor(share(node) * STEPS));
  const edge = (step) => (by === "sent" ? bytes((most * step) / STEPS) : `${(100 * step) / STEPS} %`);
  return {
    of: (node) => (share(node) === null ? { colour: "none", glyph: "–" } : { colour: `s${step(node)}`, glyph: `${step(node) + 1}` }),
    name: (node) => (share(node) === null ? gettext("nothing read") : gettext("%(least)s to %(most)s", { least: edge(step(node)), most: edge(step(node) + 1) })),
  };
}

export class Picture {
  #svg;
  #view;
  #drawn = new Map(); // id -> what is drawn of a node
  #groups = [];
  #trees = [];
  #hosts = new Map(); // host -> its nodes, one a stripe
  #zoom = { x: 0, y: 0, k: 1 };
  #size; // asked for only when it changed, since asking makes the browser lay everything out
  #fits = true; // until somebody moves the picture
  #bounds = { left: -100, top: -100, right: 100, bottom: 100 };
  #spacing = 1; // between neighbours on the outermost ring
  #step = 1; // between rings
  #labels = LABELS.radial;
  #by = "rack";
  #marked = new Set();
  selected = null; // {stripe, host}

  // onSelect is called with {stripe, host} or null whenever another node is selected.
  constructor(svg, tooltip, onSelect) {
    this.#svg = svg;
    this.#view = draw("g", svg, { role: "presentation" });
    this.tooltip = tooltip;
    this.onSelect = onSelect;
    this.#listen();
    this.#size = svg.getBoundingClientRect();
    new ResizeObserver(([entry]) => {
      this.#size = entry.contentRect;
      if (this.#fits) this.#render();
    }).observe(svg);
  }

  get hosts() {
    return this.#hosts;
  }

  set colourBy(by) {
    this.#by = by;
    this.#render();
  }

  // Shows these trees; returns the milliseconds that it took.
  update(trees) {
    const began = performance.now();
    this.#trees = trees;
    this.#hosts.clear();
    for (const tree of trees) {
      for (const node of tree.nodes) {
        if (!this.#hosts.has(node.host)) this.#hosts.set(node.host, []);
        this.#hosts.get(node.host).push({ ...node, stripe: tree.stripe });
      }
    }
    if (this.selected?.host && !this.#hosts.has(this.selected.host)) this.select(null);
    this.#render();
    const spent = performance.now() - began;
    this.#svg.dataset.drawnMs = spent.toFixed(1);
    return spent;
  }

  #render() {
    const { of } = scale([...this.#hosts.values()].map(([node]) => node), this.#by);
    const seen = new Set();
    const plans = this.#trees.map((tree) => layout(tree.nodes));
    this.#arrange(plans);
    for (const [index, tree] of this.#trees.entries()) {
      const { places } = plans[index];
      this.#node(seen, index, null, places.get(null));
      for (const node of tree.nodes) this.#node(seen, index, node, places.get(node.host), places, of(node));
    }
    for (const [id, drawn] of this.#drawn) {
      if (seen.has(id)) continue;
      drawn.group.remove();
      drawn.edge?.remove();
      this.#drawn.delete(id);
    }
    this.#emphasise();
  }

  // Puts the trees side by side, in as many rows as suit the shape of the window.
  #arrange(plans) {
    const { width, height } = this.#size;
    const radius = Math.max(1, ...plans.map((plan) => plan.radius));
    const columns = Math.max(1, Math.min(plans.length, Math.round(Math.sqrt((plans.length * width) / (height || 1))) || 1));
    const rows = Math.ceil(plans.length / columns);
    const scaleWith = (margin) =>
      clamp(Math.min(width / columns - 2 * margin, height / rows - 2 * margin) / (2 * radius), ZOOM.least, 1.4);
    this.#spacing = Math.min(...plans.map((plan) => plan.spacing));
    this.#labels = this.#spacing >= LABELS.level.between ? LABELS.level : LABELS.radial;
    this.#step = Math.min(...plans.map((plan) => plan.step));
    let { margin } = this.#labels;
    if (scaleWith(margin) * this.#spacing < this.#labels.between) margin = MARGIN;
    margin /= scaleWith(margin);
    const cell = 2 * (radius + margin);
    while (this.#groups.length > plans.length) this.#groups.pop().group.remove();
    for (const [index] of plans.entries()) {
      this.#groups[index] ??= this.#group(index);
      const group = this.#groups[index];
      group.x = (index % columns) * cell;
      group.y = Math.floor(index / columns) * cell;
      patch(group.group, "transform", `translate(${round(group.x)} ${round(group.y)})`);
      patch(group.title, "x", `${round(-cell / 2 + 0.3 * margin)}`);
      patch(group.title, "y", `${round(-cell / 2 + 0.3 * margin)}`);
      group.title.textContent = stripeName(this.#trees[index].stripe);
    }
    this.#bounds = { left: -cell / 2, top: -cell / 2, right: (columns - 0.5) * cell, bottom: (rows - 0.5) * cell };
    if (this.#fits) this.fit(); // before there are labels: those too small to read cost nothing
  }

  #group(index) {
    const group = draw("g", this.#view, { role: "group", "aria-label": stripeName(index) });
    const title = draw("text", group, { class: "tree-title", "aria-hidden": "true" });
    return { group, title, edges: draw("g", group, { class: "edges", role: "presentation" }), nodes: draw("g", group, { role: "presentation" }) };
  }

  #node(seen, index, node, place, places, look) {
    const host = node?.host ?? null;
    const id = idOf(this.#trees[index].stripe, host);
    seen.add(id);
    let drawn = this.#drawn.get(id);
    if (!drawn) {
      const { nodes, edges } = this.#groups[index];
      const group = draw("g", nodes, { id, role: "treeitem", "aria-selected": "false" });
      drawn = { group, index, host, stripe: this.#trees[index].stripe, shape: draw("path", group), glyph: draw("text", group), label: draw("text", group) };
      drawn.shape.setAttribute("vector-effect", "non-scaling-stroke");
      drawn.glyph.setAttribute("class", "glyph");
      drawn.label.textContent = host ?? gettext("source");
      if (node) drawn.edge = draw("path", edges, { "vector-effect": "non-scaling-stroke" });
      group.dataset.id = id;
      this.#drawn.set(id, drawn);
    }
    Object.assign(drawn, { place, parent: node?.parent });
    const kind = node ? (node.inner ? "inner" : "leaf") : "source";
    const found = node ? conditions(node) : [];
    drawn.looks = ["node", kind, node?.state, look?.colour, found.length ? "flagged" : "", ...found].filter(Boolean).join(" ");
    patch(drawn.group, "transform", `translate(${round(place.x)} ${round(place.y)})`);
    patch(drawn.group, "aria-level", `${(node?.depth ?? 0) + 1}`);
    patch(drawn.group, "aria-label", node ? describe(node) : gettext("source"));
    patch(drawn.shape, "d", SHAPES[kind]);
    patch(drawn.shape, "class", "shape");
    patch(drawn.shape, "transform", `scale(${round(place.size)})`);
    drawn.glyph.style.fontSize = `${round(place.size * 0.95)}px`; // an attribute would yield to any rule
    const glyph = found.map((each) => MARKS[each]).join("") || (look?.glyph ?? "");
    if (drawn.glyph.textContent !== glyph) drawn.glyph.textContent = glyph;
    this.#label(drawn.label, place, !node);
    if (node) {
      patch(drawn.edge, "d", line(places.get(node.parent), place));
    }
  }

  // Level below the node where there is room, else along its radius and never head over heels.
  #label(label, { angle, size }, isSource) {
    const away = size + 5;
    if (this.#labels === LABELS.level || isSource) {
      patch(label, "class", "label level");
      patch(label, "transform", `translate(0 ${round(away)})`);
      return;
    }
    const isLeft = Math.cos(angle) < 0;
    const degrees = (angle * 180) / Math.PI + (isLeft ? 180 : 0);
    patch(label, "class", isLeft ? "label left" : "label");
    patch(label, "transform", `rotate(${round(degrees)}) translate(${round(isLeft ? -away : away)} 0)`);
  }

  // Marks what is selected with its parents and children, and what was searched for.
  #emphasise() {
    const host = this.selected?.host;
    const chosen = this.selected && idOf(this.selected.stripe, this.selected.host);
    for (const [id, drawn] of this.#drawn) {
      const isOwn = drawn.host !== null && drawn.host === host;
      const isNear = host && (isOwn || this.#isNear(drawn, host));
      const classes = [drawn.looks, isNear ? "related" : "", isOwn ? "own" : "", this.#marked.has(drawn.host) ? "match" : "", id === chosen ? "current" : ""];
      patch(drawn.group, "class", classes.filter(Boolean).join(" "));
      patch(drawn.group, "aria-selected", `${id === chosen}`);
      if (drawn.edge) {
        const isWay = host && (drawn.host === host || drawn.parent === host);
        patch(drawn.edge, "class", `edge ${drawn.looks.includes("joining") ? "joining" : ""} ${isWay ? "related" : ""}`.trim());
      }
    }
    this.#svg.classList.toggle("has-selection", Boolean(host));
    this.#svg.classList.toggle("has-matches", this.#marked.size > 0);
    if (chosen && this.#drawn.has(chosen)) patch(this.#svg, "aria-activedescendant", chosen);
    else this.#svg.removeAttribute("aria-activedescendant");
  }

  // Whether a drawn node feeds the host in its tree or is fed by it.
  #isNear(drawn, host) {
    const own = this.#drawn.get(idOf(drawn.stripe, host));
    return drawn.parent === host || (own !== undefined && own.parent === drawn.host);
  }

  // Marks the hosts whose names the test accepts; returns them.
  search(test) {
    this.#marked = new Set(test ? [...this.#hosts.keys()].filter(test) : []);
    this.#emphasise();
    return [...this.#marked];
  }

  markRack(rack) {
    return this.search(rack === undefined ? null : (host) => this.#hosts.get(host)[0].rack === rack);
  }

  legend() {
    const nodes = [...this.#hosts.values()].map(([node]) => node);
    const { of, name } = scale(nodes, this.#by);
    const entries = new Map();
    for (const node of nodes) {
      const key = name(node);
      const entry = entries.get(key) ?? { ...of(node), name: key, hosts: 0, rack: this.#by === "rack" ? node.rack : undefined };
      entry.hosts += 1;
      entries.set(key, entry);
    }
    const order = (entry) => Number(entry.glyph) || Infinity;
    return [...entries.values()].sort((a, b) => order(a) - order(b));
  }

  select(wanted, show = false) {
    this.selected = wanted;
    this.#emphasise();
    if (wanted && show) this.#show(this.#drawn.get(idOf(wanted.stripe, wanted.host)), true);
    this.onSelect(wanted);
  }

  // Selects a host where it feeds others, and brings it into the middle.
  find(host) {
    const nodes = this.#hosts.get(host);
    if (!nodes) return false;
    const node = nodes.find((each) => each.inner) ?? nodes[0];
    this.select({ stripe: node.stripe, host });
    const readable = Math.min(1, this.#labels.between / this.#spacing);
    this.#show(this.#drawn.get(idOf(node.stripe, host)), true, readable);
    return true;
  }

  childrenOf(stripe, host) {
    return [...this.#drawn.values()].filter((each) => each.stripe === stripe && each.parent === host && each.host !== null).map((each) => each.host);
  }

  fit() {
    const { width, height } = this.#size;
    if (!width || !height) return;
    const { left, top, right, bottom } = this.#bounds;
    const k = clamp(Math.min(width / (right - left), height / (bottom - top)), ZOOM.least, 1.4);
    this.#move({ k, x: width / 2 - (k * (left + right)) / 2, y: height / 2 - (k * (top + bottom)) / 2 });
    this.#fits = true;
  }

  zoomBy(factor, at) {
    const { width, height } = this.#size;
    const { x, y } = at ?? { x: width / 2, y: height / 2 };
    const k = clamp(this.#zoom.k * factor, ZOOM.least, ZOOM.most);
    const ratio = k / this.#zoom.k;
    this.#move({ k, x: x - (x - this.#zoom.x) * ratio, y: y - (y - this.#zoom.y) * ratio });
  }

  #move(zoom) {
    this.#zoom = zoom;
    this.#fits = false;
    const { x, y, k } = zoom;
    patch(this.#view, "transform", `translate(${round(x)} ${round(y)}) scale(${k.toFixed(4)})`);
    this.#svg.style.setProperty("--zoom", k.toFixed(4));
    this.#svg.classList.toggle("far", k * this.#spacing < this.#labels.between);
    this.#svg.classList.toggle("near", this.#labels === LABELS.level || k * this.#step >= LABELS.radial.margin);
  }

  // Brings a node into view, or with `centre` into the middle, enlarged to at least that zoom.
  #show(drawn, centre = false, least = 0) {
    if (!drawn) return;
    const { width, height } = this.#size;
    const group = this.#groups[drawn.index];
    const k = Math.max(this.#zoom.k, least);
    const x = (group.x + drawn.place.x) * k;
    const y = (group.y + drawn.place.y) * k;
    const margin = 40;
    const at = { x: x + this.#zoom.x, y: y + this.#zoom.y };
    const isIn = k === this.#zoom.k && at.x > margin && at.y > margin && at.x < width - margin && at.y < height - margin;
    if (isIn && (!centre || !least)) return;
    this.#move({ k, x: width / 2 - x, y: height / 2 - y });
  }

  #listen() {
    const svg = this.#svg;
    const local = (event) => {
      const box = svg.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top };
    };
    const hit = (event) => this.#drawn.get(event.target.closest?.("[data-id]")?.dataset.id);
    svg.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoomBy(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), local(event));
    }, { passive: false });
    let drag = null;
    svg.addEventListener("pointerdown", (event) => {
      drag = { ...local(event), zoom: this.#zoom, moved: false, drawn: hit(event) };
    });
    svg.addEventListener("pointermove", (event) => {
      if (!drag) return this.#hover(hit(event), local(event));
      const { x, y } = local(event);
      if (!drag.moved && Math.hypot(x - drag.x, y - drag.y) < 4) return;
      if (!drag.moved) svg.setPointerCapture(event.pointerId);
      drag.moved = true;
      this.#hover();
      this.#move({ k: drag.zoom.k, x: drag.zoom.x + x - drag.x, y: drag.zoom.y + y - drag.y });
    });
    svg.addEventListener("pointerup", () => {
      if (drag && !drag.moved) this.select(drag.drawn ? { stripe: drag.drawn.stripe, host: drag.drawn.host } : null);
      drag = null;
    });
    svg.addEventListener("pointercancel", () => (drag = null));
    svg.addEventListener("pointerleave", () => this.#hover());
    svg.addEventListener("keydown", (event) => this.#key(event));
    svg.addEventListener("focus", () => {
      if (!this.selected && this.#trees.length && svg.matches(":focus-visible")) this.select({ stripe: this.#trees[0].stripe, host: null });
    });
  }

  #hover(drawn, at) {
    this.tooltip.hidden = !drawn;
    if (!drawn) return;
    this.tooltip.textContent = drawn.group.getAttribute("aria-label");
    this.tooltip.style.transform = `translate(${at.x + 14}px, ${at.y + 14}px)`;
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
    const move = moves[event.key];
    if (event.shiftKey && move) this.#move({ ...this.#zoom, x: this.#zoom.x + move[0], y: this.#zoom.y + move[1] });
    else if (move) this.#walk(event.key);
    else if (event.key === "+" || event.key === "=") this.zoomBy(1.4);
    else if (event.key === "-") this.zoomBy(1 / 1.4);
    else if (event.key === "0") this.fit();
    else if (event.key === "Home") this.select({ stripe: this.#trees[0].stripe, host: null }, true);
    else if (event.key === "Escape") this.select(null);
    else return;
    event.preventDefault();
  }

  // Up is the parent, down the first child, left and right are siblings, then other trees.
  #walk(key) {
    if (!this.#trees.length) return;
    const now = this.selected ?? { stripe: this.#trees[0].stripe, host: null };
    const drawn = this.#drawn.get(idOf(now.stripe, now.host));
    let next = now;
    if (key === "ArrowUp" && now.host !== null) next = { ...now, host: drawn.parent };
    else if (key === "ArrowDown") next = { ...now, host: this.childrenOf(now.stripe, now.host)[0] ?? now.host };
    else if (key !== "ArrowUp") next = this.#beside(now, drawn, key === "ArrowRight" ? 1 : -1);
    this.select(next, true);
  }

  #beside(now, drawn, step) {
    if (now.host === null) {
      const at = this.#trees.findIndex((tree) => tree.stripe === now.stripe);
      const tree = this.#trees[clamp(at + step, 0, this.#trees.length - 1)];
      return { stripe: tree.stripe, host: null };
    }
    const siblings = this.childrenOf(now.stripe, drawn.parent);
    return { ...now, host: siblings[clamp(siblings.indexOf(now.host) + step, 0, siblings.length - 1)] };
  }
}

const stripeName = (stripe) => gettext("Stripe %(stripe)s", { stripe });

function describe(node) {
  const rate = hitRate(node);
  return [
    node.host,
    node.rack ?? gettext("no rack"),
    node.inner ? gettext("inner") : gettext("leaf"),
    STATES[node.state],
    node.parent === null ? gettext("fed by the source") : gettext("fed by %(parent)s", node),
    gettext("%(bytes)s served", { bytes: bytes(node.sent) }),
    rate === null ? "" : gettext("%(rate)s cache hits", { rate: percent(rate) }),
    ...conditions(node).map((each) => CONDITIONS[each]),
  ].filter(Boolean).join(", ");
}

const clamp = (number, least, most) => Math.min(most, Math.max(least, number));
