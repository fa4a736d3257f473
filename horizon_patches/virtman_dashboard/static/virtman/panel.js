// The panel of administrators: asks Horizon what Volt says, and shows what changed.
//
// The picture and the tables are those of Volt's own status page.

import { at, fill, follow, say } from "./volt/follow.js";
import { bytes, CONDITIONS, conditions, count, duration, hitRate, MARKS, percent, STATES, time } from "./volt/format.js";
import { Picture } from "./volt/picture.js";
import { column, element, Table } from "./volt/table.js";
import { gettext } from "./volt/words.js";

const INTERVAL = 5000; // ms
const PATIENCE = 30_000; // ms
const SILENT = { images: {}, sent_rate: 0, received_rate: 0, overloaded: false }; // never reported

const api = at("virtman").dataset.api;
const picture = new Picture(at("picture"), at("tooltip"), showChosen);
const state = { image: "", trees: null, etag: null, answered: null };

const flags = (row) => conditions(row).map((each) => `${MARKS[each]} ${CONDITIONS[each]}`).join(", ");
const share = (row) => hitRate(row) ?? -1;
const shown = (rate) => percent(rate < 0 ? null : rate);
const rack = (row) => row.rack ?? "";
const perSecond = (number) => `${bytes(number)}/s`;

const images = new Table(at("images"), gettext("All images"), [
  column(gettext("Image"), (row) => row.name),
  column(gettext("Size"), (row) => row.size, bytes, true),
  column(gettext("Shape"), (row) => row.shape),
  column(gettext("Hosts"), (row) => row.hosts, count, true),
  column(gettext("Since"), (row) => row.created_at, (text) => new Date(text).toLocaleString()),
], (row) => choose(row.name));

const places = new Table(at("places"), gettext("Places of hosts in the trees"), [
  column(gettext("Host"), (row) => row.host),
  column(gettext("Rack"), rack),
  column(gettext("Stripe"), (row) => row.stripe, String, true),
  column(gettext("Role"), (row) => (row.inner ? gettext("inner") : gettext("leaf"))),
  column(gettext("Reads from"), (row) => row.parent ?? gettext("source")),
  column(gettext("Depth"), (row) => row.depth, String, true),
  column(gettext("State"), (row) => STATES[row.state]),
  column(gettext("Served"), (row) => row.sent, bytes, true),
  column(gettext("Cache hits"), share, shown, true),
  column(gettext("Conditions"), flags),
], (row) => find(row.host));

const hosts = new Table(at("hosts"), gettext("All hosts"), [
  column(gettext("Host"), (row) => row.host),
  column(gettext("Rack"), rack),
  column(gettext("Images"), (row) => Object.keys(row.report.images).length, String, true),
  column(gettext("Sends"), (row) => row.report.sent_rate, perSecond, true),
  column(gettext("Receives"), (row) => row.report.received_rate, perSecond, true),
  column(gettext("Conditions"), flags),
  column(gettext("Last heard"), (row) => row.silent, (seconds) => gettext("%(time)s ago", { time: duration(seconds) }), true),
], (row) => find(row.host));

// Horizon or Volt said no, or did not answer.
class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function get(path, headers = {}) {
  const answer = await fetch(api + path, {
    headers: { "X-Requested-With": "XMLHttpRequest", ...headers },
    cache: "no-store",
    credentials: "same-origin",
    signal: AbortSignal.timeout(PATIENCE),
  });
  if (answer.status === 304 || answer.ok) return answer;
  throw new Refused(answer.status, await answer.json().catch(() => answer.statusText));
}

async function poll() {
  const overview = await (await get("overview/")).json();
  const known = overview.hosts.map((row) => {
    const report = row.report ?? SILENT;
    return { ...row, report, overloaded: report.overloaded };
  });
  images.update(overview.images);
  hosts.update(known);
  showHealth(overview.images, known);
  showEvents(overview.events);
  if (!overview.images.some(({ name }) => name === state.image)) {
    select(overview.images[0]?.name ?? "");
  }
  await pollTrees();
  state.answered = new Date();
  say("pulse", gettext("Volt answers. Updated %(time)s.", { time: time(state.answered) }));
  at("alarm").hidden = true;
}

async function pollTrees() {
  const { image, etag } = state;
  if (!image) return showTrees({ image, generation: 0, trees: [] });
  const answer = await get(`images/${image}/trees/`, etag ? { "If-None-Match": etag } : {});
  if (answer.status === 304 || image !== state.image) return;
  state.etag = answer.headers.get("ETag");
  showTrees(await answer.json());
}

function complain(error) {
  if (error.status === 404) {
    state.image = ""; // it went away between two questions
    return;
  }
  if (error.status === 401) {
    location.reload(); // to where Horizon asks who this is
    return;
  }
  const reason = error instanceof Refused ? error.message : gettext("Horizon does not answer.");
  say("alarm", state.answered
    ? gettext("%(reason)s What you see is of %(time)s. Trying again.", { reason, time: time(state.answered) })
    : gettext("%(reason)s Trying again.", { reason }));
  at("alarm").hidden = false;
  say("pulse", "");
}

function choose(name) {
  select(name);
  say("news", gettext("Trees of %(image)s are shown below.", { image: name }));
  look();
}

function select(name) {
  if (name === state.image) return;
  Object.assign(state, { image: name, etag: null, trees: null });
  picture.select(null);
}

function showHealth(known, members) {
  const tally = (condition) => count(members.filter((row) => conditions(row).includes(condition)).length);
  const readers = known.reduce((sum, { hosts: number }) => sum + number, 0);
  fill(at("health"), [
    [gettext("Images"), count(known.length)],
    [gettext("Hosts"), count(members.length)],
    [gettext("Places in trees"), count(readers)],
    ...Object.keys(CONDITIONS).map((each) => [`${MARKS[each]} ${CONDITIONS[each]}`, tally(each)]),
  ]);
}

function showTrees(trees) {
  const before = state.trees;
  state.trees = trees;
  picture.update(trees.trees);
  say("image-name", trees.image ? gettext("Trees of %(image)s", trees) : gettext("Trees"));
  at("empty").hidden = picture.hosts.size > 0 || !trees.image;
  places.update(trees.trees.flatMap((tree) => tree.nodes.map((node) => ({ ...node, stripe: tree.stripe }))));
  showLegend();
  if (before && before.generation !== trees.generation) {
    say("news", gettext("Trees of %(image)s changed: %(hosts)s hosts.", { image: trees.image, hosts: count(picture.hosts.size) }));
  }
}

function showLegend() {
  const fixed = [
    ["■", gettext("source")],
    ["●", gettext("inner: feeds others")],
    ["◆", gettext("leaf")],
    ["◌", gettext("joining: outline only")],
    ...Object.keys(CONDITIONS).map((each) => [MARKS[each], CONDITIONS[each]]),
  ].map(([mark, name]) => element("li", {}, element("span", { class: "mark", "aria-hidden": "true" }, mark), name));
  const colours = picture.legend().map(({ colour, glyph, name, hosts: number }) =>
    element("li", {}, element("span", { class: `swatch ${colour}`, "aria-hidden": "true" }, glyph), `${name} (${count(number)})`));
  at("legend").replaceChildren(...fixed, ...colours);
}

function showEvents(found) {
  at("events").replaceChildren(...found.map((event) => {
    const when = element("time", { datetime: event.at }, new Date(event.at).toLocaleString());
    const about = [event.host, event.image, event.detail].filter(Boolean).join(" · ");
    return element("li", {}, when, " ", element("strong", {}, event.kind.replaceAll("_", " ")), ` ${about}`);
  }));
}

// Says whom the host that was chosen in the picture feeds.
function showChosen(chosen) {
  if (!chosen) return say("chosen", "");
  const fed = picture.childrenOf(chosen.stripe, chosen.host);
  const host = chosen.host ?? gettext("source");
  say("chosen", fed.length
    ? gettext("%(host)s feeds %(children)s in stripe %(stripe)s.", { host, children: fed.join(", "), stripe: chosen.stripe })
    : gettext("%(host)s feeds nobody in stripe %(stripe)s.", { host, stripe: chosen.stripe }));
}

// Shows a host of a table in the picture.
function find(host) {
  if (picture.find(host)) at("picture").focus();
  else say("chosen", gettext("%(host)s does not read %(image)s.", { host, image: state.image }));
}

at("colour-by").addEventListener("change", () => {
  picture.colourBy = at("colour-by").value;
  showLegend();
});
at("zoom-in").addEventListener("click", () => picture.zoomBy(1.5));
at("zoom-out").addEventListener("click", () => picture.zoomBy(1 / 1.5));
at("zoom-fit").addEventListener("click", () => picture.fit());
const look = follow(poll, complain, INTERVAL);
