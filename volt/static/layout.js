// Where each host of a tree is drawn: in rings around the source, one ring a level.
//
// A host gets a sector as wide as the number of leaves below it, so that the outermost hosts
// are evenly spread and no line crosses another.

const SPACING = 16; // between neighbours on the outermost ring
const RING = 58; // between rings, at least
const LARGEST = 15;

// Returns {radius, step, spacing, places: Map(host -> {x, y, angle, ring, size})}; host null is the
// source, at 0, 0. Nodes come nearest to the source first.
export function layout(nodes) {
  const children = new Map([[null, []]]);
  for (const node of nodes) children.set(node.host, []);
  for (const node of nodes) children.get(node.parent).push(node.host);
  const leaves = new Map();
  for (const { host } of [...nodes].reverse()) {
    leaves.set(host, Math.max(1, sum(children.get(host), leaves)));
  }
  const all = Math.max(1, sum(children.get(null), leaves));
  const depth = Math.max(1, ...nodes.slice(-1).map((node) => node.depth));
  const radius = Math.max(depth * RING, (all * SPACING) / (2 * Math.PI));
  const step = radius / depth;
  const sectors = new Map([[null, { from: -1.5 * Math.PI, leaf: (2 * Math.PI) / all }]]);
  const places = new Map([[null, { x: 0, y: 0, angle: -Math.PI / 2, ring: 0, size: size(step, step) }]]);
  for (const host of [null, ...nodes.map((node) => node.host)]) {
    const { leaf, from } = sectors.get(host);
    const ring = places.get(host).ring + step;
    let at = from;
    for (const child of children.get(host)) {
      const width = leaf * leaves.get(child);
      const angle = at + width / 2;
      sectors.set(child, { from: at, leaf });
      places.set(child, {
        x: ring * Math.cos(angle),
        y: ring * Math.sin(angle),
        angle,
        ring,
        size: size(width * ring, step),
      });
      at += width;
    }
  }
  return { radius, places, step, spacing: (2 * Math.PI * radius) / all };

  function size(arc, step) {
    return Math.min(Math.max(LARGEST, radius / 50), 0.42 * Math.min(arc, step * 0.7));
  }
}

const sum = (hosts, leaves) => hosts.reduce((total, host) => total + leaves.get(host), 0);

// The line from a parent to a child: it leaves and arrives along the radius.
export function line(parent, child) {
  const middle = (parent.ring + child.ring) / 2;
  const bend = ({ angle }) => `${round(middle * Math.cos(angle))} ${round(middle * Math.sin(angle))}`;
  const start = parent.ring === 0 ? bend(child) : bend(parent);
  return `M${round(parent.x)} ${round(parent.y)}C${start} ${bend(child)} ${round(child.x)} ${round(child.y)}`;
}

export const round = (number) => Math.round(number * 10) / 10;
