// The status page: asks Volt every two seconds and shows what changed.

import { Client, Refused, Silent } from "./client.js";
import { at, fill, follow, say } from "./follow.js";
import { byName, bytes, conditions, count, duration, hitRate, MARKS, percent, time } from "./format.js";
import { Picture } from "./picture.js";
import { column, element, Table } from "./table.js";

const INTERVAL = 2000; // ms
const FULL = 3; // polls until counters are fetched even if the trees are the same
const EVENTS = 40;

const client = new Client();
const picture = new Picture(at("picture"), at("tooltip"), showDetails);
const state = { image: decodeURIComponent(location.hash.slice(1)), tab: "picture", polls: 0, images: [], trees: null, answered: null };

const flags = (row) => conditions(row).map((each) => `${MARKS[each]} ${each}`).join(", ");
const share = (row) => hitRate(row) ?? -1;

const places = new Table(at("places-panel"), "Places of hosts in the image's trees", [
  column("Host", (row) => row.host),
  column("Rack", (row) => row.rack ?? ""),
  column("Stripe", (row) => row.stripe, String, true),
  column("Role", (row) => (row.inner ? "inner" : "leaf")),
  column("Parent", (row) => row.parent ?? "source"),
  column("Depth", (row) => row.depth, String, true),
  column("State", (row) => row.state),
  column("Copy", (row) => (row.whole ? "whole" : "")),
  column("Served", (row) => row.sent, bytes, true),
  column("Cache hits", share, (rate) => percent(rate < 0 ? null : rate), true),
  column("Conditions", flags),
], (row) => show(row.host));

const hosts = new Table(at("hosts-panel"), "All hosts that Volt knows", [
  column("Host", (row) => row.host),
  column("Rack", (row) => row.rack ?? ""),
  column("Images", (row) => Object.keys(row.report.images).length, String, true),
  column("Sends", (row) => row.report.sent_rate, (rate) => `${bytes(rate)}/s`, true),
  column("Receives", (row) => row.report.received_rate, (rate) => `${bytes(rate)}/s`, true),
  column("Served", (row) => total(row).sent, bytes, true),
  column("Cache hits", (row) => share(total(row)), (rate) => percent(rate < 0 ? null : rate), true),
  column("Conditions", (row) => flags({ ...row, overloaded: row.report.overloaded })),
  column("Last heard", (row) => row.silent, (seconds) => `${duration(seconds)} ago`, true),
], (row) => show(row.host));

function total(row) {
  const sum = { sent: 0, hits: 0, misses: 0 };
  for (const report of Object.values(row.report.images)) {
    for (const name of Object.keys(sum)) sum[name] += report[name];
  }
  return sum;
}

async function poll() {
  const full = state.polls % FULL === 0;
  state.polls += 1;
  const [images, events] = await Promise.all([client.all("v1/images", "images"), client.get(`v1/events?limit=${EVENTS}`)]);
  if (!images.some((image) => image.name === state.image)) choose(images[0]?.name ?? "", false);
  state.images = images;
  showImages(images);
  if (events.changed) showEvents(events.body.events);
  if (state.image) {
    const trees = await client.get(`v1/images/${encodeURIComponent(state.image)}/trees`, full);
    if (trees.changed) showTrees(trees.body);
  } else {
    showTrees({ image: "", trees: [], generation: 0, size: 0 });
  }
  showFacts();
  if (state.tab === "hosts" && full) hosts.update(await client.all("v1/hosts", "hosts"));
  state.answered = new Date();
  mood("live", `Updated ${time(state.answered)}`);
  at("alarm").hidden = true;
}

// Shows what went wrong; returns the milliseconds until the next try.
function complain(error) {
  if (error instanceof Refused && error.status === 401) {
    askToken(client.token ? "Volt does not accept this token." : undefined);
    mood("waiting", "Signed out");
    return 60_000;
  }
  if (error instanceof Refused && error.status === 404) {
    state.polls = 0; // the image went away between two questions
    return INTERVAL;
  }
  const since = state.answered ? ` since ${time(state.answered)}` : "";
  const reason = error instanceof Silent ? `Volt does not answer${since}; what you see may be out of date. Trying again.` : error.message;
  say("alarm", reason);
  at("alarm").hidden = false;
  mood("silent", error instanceof Silent ? "No answer" : "Refused");
  if (!(error instanceof Silent || error instanceof Refused)) console.error(error);
  return error instanceof Refused ? 5 * INTERVAL : INTERVAL;
}

function mood(kind, text) {
  at("pulse").dataset.state = kind;
  say("updated", text);
}

function choose(name, now = true) {
  if (name === state.image) return;
  Object.assign(state, { image: name, polls: 0, trees: null });
  history.replaceState(null, "", name ? `#${encodeURIComponent(name)}` : location.pathname);
  picture.select(null);
  if (now) look();
}

function showImages(images) {
  at("no-images").hidden = images.length > 0;
  const list = at("images");
  while (list.children.length > images.length) list.lastChild.remove();
  while (list.children.length < images.length) {
    const button = element("button", { type: "button" }, element("span", { class: "name" }), element("span", { class: "hint" }));
    button.addEventListener("click", () => choose(button.dataset.image));
    list.append(element("li", {}, button));
  }
  for (const [index, image] of images.entries()) {
    const button = list.children[index].firstChild;
    button.dataset.image = image.name;
    button.firstChild.textContent = image.name;
    button.lastChild.textContent = `${bytes(image.size)} · ${image.shape} · ${count(image.hosts)} hosts`;
    if (image.name === state.image) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
}

function showTrees(trees) {
  const before = state.trees;
  state.trees = trees;
  const spent = picture.update(trees.trees);
  measure(performance.now() - spent);
  const members = [...picture.hosts.values()].map(([node]) => node);
  at("empty").hidden = members.length > 0 || !trees.image;
  say("image-name", trees.image || "No image chosen");
  showLegend();
  places.update(trees.trees.flatMap((tree) => tree.nodes.map((node) => ({ ...node, stripe: tree.stripe }))));
  if (picture.selected) showDetails(picture.selected);
  if (before && before.image === trees.image && before.generation !== trees.generation) {
    say("news", `Trees of ${trees.image} changed: ${count(members.length)} hosts.`);
  }
}

// Notes how long the picture took, for the browser's tools: the script, and until it was painted.
function measure(start) {
  for (const name of ["volt-draw", "volt-paint"]) performance.clearMeasures(name);
  performance.measure("volt-draw", { start });
  requestAnimationFrame(() => setTimeout(() => performance.measure("volt-paint", { start })));
}

function showFacts() {
  const trees = state.trees;
  if (!trees) return; // of an image that was chosen meanwhile
  const members = [...picture.hosts.values()].map(([node]) => node);
  const tally = (test) => count(members.filter(test).length);
  const sum = { sent: 0, hits: 0, misses: 0 };
  for (const node of members) for (const name of Object.keys(sum)) sum[name] += node[name];
  const deepest = trees.trees.map((tree) => tree.nodes.at(-1)?.depth ?? 0);
  const facts = [
    ["Hosts", count(members.length)],
    ["Ready", tally((node) => node.state === "ready")],
    ["Joining", tally((node) => node.state === "joining")],
    ["Marked", tally((node) => conditions(node).length)],
    ["Depth", deepest.join(" / ") || "–"],
    ["Served", bytes(sum.sent)],
    ["Cache hits", percent(hitRate(sum))],
    ["Generation", count(trees.generation)],
  ];
  const image = state.images.find((each) => each.name === trees.image);
  if (image) facts.push(...copyFacts(image), ...basisFacts(image));
  fill(at("facts"), facts);
}

// Who has all of an image, and of each stripe, and so whether its source is needed.
function copyFacts(image) {
  const wanted = image.hydrate?.copies ? ` of ${count(image.hydrate.copies)}` : "";
  return [
    ["Whole copies", count(image.copies) + wanted],
    ["Complete stripes", image.complete.map(count).join(" / ")],
    ["Source", image.copies ? "independent of it" : "needed"],
    ...(image.home ? [["Home", image.home]] : []),
  ];
}

// Which images have blocks in common with an image, and how much that is.
function basisFacts(image) {
  if (!image.basis) return [];
  return [["Based on", image.basis.images.join(", ")], ["Shared", bytes(image.basis.shared)]];
}

function showLegend() {
  const entries = picture.legend();
  const legend = at("legend");
  const key = JSON.stringify(entries);
  if (legend.dataset.key === key) return;
  legend.dataset.key = key;
  const pressed = legend.querySelector('[aria-pressed="true"]')?.dataset.name;
  legend.replaceChildren(...fixedLegend(), ...entries.map((entry) => legendEntry(entry, pressed)));
}

function fixedLegend() {
  const meanings = [["■", "source"], ["●", "inner: feeds others"], ["◆", "leaf"], ["◌", "joining: outline only"]];
  meanings.push(...Object.entries(MARKS).map(([name, mark]) => [mark, name]));
  return meanings.map(([mark, name]) => element("li", { class: "fixed" }, element("span", { class: "mark", "aria-hidden": "true" }, mark), name));
}

function legendEntry(entry, pressed) {
  const swatch = element("span", { class: `swatch ${entry.colour}`, "aria-hidden": "true" }, entry.glyph);
  const text = `${entry.name} (${count(entry.hosts)})`;
  if (entry.rack === undefined) return element("li", {}, swatch, text);
  const button = element("button", { type: "button", "aria-pressed": String(entry.name === pressed) }, swatch, text);
  button.dataset.name = entry.name;
  button.addEventListener("click", () => {
    const isOn = button.getAttribute("aria-pressed") !== "true";
    for (const each of at("legend").querySelectorAll("button")) each.setAttribute("aria-pressed", "false");
    button.setAttribute("aria-pressed", String(isOn));
    picture.markRack(isOn ? entry.rack : undefined);
  });
  return element("li", {}, button);
}

function showEvents(events) {
  at("events").replaceChildren(...events.map((event) => {
    const when = new Date(event.at);
    const what = element("span", { class: "kind" }, event.kind.replaceAll("_", " "));
    const about = [event.host, event.image].filter(Boolean).join(" · ");
    const line = element("li", {}, element("time", { datetime: event.at, title: when.toLocaleString() }, time(when)), what, element("span", {}, about));
    if (event.detail) line.append(element("span", { class: "hint" }, event.detail));
    return line;
  }));
}

function showDetails(selected) {
  const box = at("details");
  if (!selected) {
    box.replaceChildren(element("p", { class: "hint" }, "Choose a host in the picture or in a table."));
    return;
  }
  const { host } = selected;
  const focused = box.contains(document.activeElement) ? document.activeElement.dataset.host : null;
  const nodes = host === null ? [] : picture.hosts.get(host);
  const list = element("dl");
  if (host === null) fill(list, [["Role", "the source of all blocks"]]);
  else {
    const [node] = nodes;
    fill(list, [
      ["Rack", node.rack ?? "none"],
      ["State", node.state],
      ["Whole copy", node.whole ? "yes" : "no"],
      ["Conditions", flags(node) || "none"],
      ["Served", bytes(node.sent)],
      ["Cache hits", percent(hitRate(node))],
      ["Last heard", `${duration(node.silent)} ago`],
    ]);
  }
  const stripes = host === null ? state.trees.trees.map(({ stripe }) => ({ stripe })) : nodes;
  box.replaceChildren(element("h3", {}, host ?? "source"), list, ...stripes.map((node) => family(node, host)));
  if (focused) [...box.querySelectorAll("button")].find((each) => each.dataset.host === focused)?.focus();
}

// Whom a host reads one stripe from, and whom it feeds.
function family(node, host) {
  const feeds = picture.childrenOf(node.stripe, host);
  const role = host === null ? "" : `, ${node.inner ? "inner" : "leaf"} at depth ${node.depth}`;
  const box = element("div", { class: "family" }, element("h4", {}, `Stripe ${node.stripe}${role}`));
  if (host !== null) box.append(relatives("Reads from", [node.parent], node.stripe));
  box.append(relatives(`Feeds ${feeds.length || "nobody"}`, feeds.sort(byName), node.stripe));
  return box;
}

function relatives(title, names, stripe) {
  const line = element("p", {}, element("span", { class: "hint" }, title));
  for (const name of names) {
    const button = element("button", { type: "button", class: "link" }, name ?? "source");
    button.dataset.host = name ?? "";
    button.addEventListener("click", () => picture.select({ stripe, host: name }, true));
    line.append(" ", button);
  }
  return line;
}

// Shows a host of a table in the picture, if the chosen image's trees have it.
function show(host) {
  open("picture");
  at("search").value = host;
  find(host);
  at("picture").focus();
}

function find(text) {
  const wanted = text.trim().toLowerCase();
  const found = picture.search(wanted ? (host) => host.includes(wanted) : null).sort(byName);
  say("found", wanted ? (found.length ? `${count(found.length)} found` : "no such host here") : "");
  const best = found.find((host) => host === wanted) ?? found[0];
  if (best) picture.find(best);
  return best;
}

function open(name) {
  state.tab = name;
  for (const tab of document.querySelectorAll('[role="tab"]')) {
    const isOpen = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(isOpen));
    tab.tabIndex = isOpen ? 0 : -1;
    at(tab.getAttribute("aria-controls")).hidden = !isOpen;
  }
  if (name === "hosts") {
    state.polls = 0;
    look();
  }
}

function askToken(reason) {
  if (at("sign-in").open) return;
  if (reason) say("sign-in-reason", reason);
  at("sign-in").showModal();
}

function listen() {
  at("sign").addEventListener("click", () => {
    if (client.token) {
      client.token = "";
      location.reload();
    } else askToken();
  });
  at("sign-in-cancel").addEventListener("click", () => at("sign-in").close());
  at("sign-in-form").addEventListener("submit", (event) => {
    event.preventDefault();
    client.token = at("token").value.trim();
    at("token").value = "";
    at("sign-in").close();
    showSign();
    state.polls = 0;
    look();
  });
  at("search").addEventListener("input", () => {
    const wanted = at("search").value.trim().toLowerCase();
    const found = picture.search(wanted ? (host) => host.includes(wanted) : null);
    say("found", wanted ? (found.length ? `${count(found.length)} found` : "no such host here") : "");
  });
  at("search-form").addEventListener("submit", (event) => {
    event.preventDefault();
    find(at("search").value);
  });
  at("colour-by").addEventListener("change", () => {
    picture.colourBy = at("colour-by").value;
    showLegend();
  });
  at("zoom-in").addEventListener("click", () => picture.zoomBy(1.5));
  at("zoom-out").addEventListener("click", () => picture.zoomBy(1 / 1.5));
  at("zoom-fit").addEventListener("click", () => picture.fit());
  const tabs = [...document.querySelectorAll('[role="tab"]')];
  for (const [index, tab] of tabs.entries()) {
    tab.addEventListener("click", () => open(tab.id.slice("tab-".length)));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(index + step + tabs.length) % tabs.length];
      open(next.id.slice("tab-".length));
      next.focus();
    });
  }
}

function showSign() {
  say("sign", client.token ? "Sign out" : "Sign in");
}

listen();
showSign();
const look = follow(poll, complain, INTERVAL);
