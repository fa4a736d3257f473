// How numbers and conditions look in words.

import { gettext } from "./words.js";

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const WHOLE = new Intl.NumberFormat("en");

export const count = (number) => WHOLE.format(number);

export function bytes(number) {
  let unit = 0;
  while (number >= 1024 && unit < UNITS.length - 1) {
    number /= 1024;
    unit += 1;
  }
  return `${number >= 100 || unit === 0 ? Math.round(number) : number.toFixed(1)} ${UNITS[unit]}`;
}

// Hits of all reads, or null where nothing was read.
export const hitRate = ({ hits, misses }) => (hits + misses ? hits / (hits + misses) : null);

export const percent = (share) => (share === null ? "–" : `${(100 * share).toFixed(1)} %`);

export function duration(seconds) {
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}

export const time = (date) => date.toLocaleTimeString([], { hour12: false });

// A host that has not reported for this long has missed a heartbeat.
export const SILENT_SECONDS = 10;

export function conditions(host) {
  const found = [];
  if (host.draining) found.push("draining");
  if (host.overloaded) found.push("overloaded");
  if (host.silent >= SILENT_SECONDS) found.push("silent");
  return found;
}

export const CONDITIONS = { draining: gettext("draining"), overloaded: gettext("overloaded"), silent: gettext("silent") };
export const STATES = { joining: gettext("joining"), ready: gettext("ready"), leaving: gettext("leaving") };
export const MARKS = { draining: "▼", overloaded: "!", silent: "?" };

export const byName = new Intl.Collator("en", { numeric: true }).compare;
