// How a page follows Volt: it asks again and again, and changes only what is no longer true.

import { element } from "./table.js";

export const at = (id) => document.getElementById(id);

// Leaves an element alone where it says so already, for the sake of screen readers.
export function say(id, text) {
  write(at(id), text);
}

// Writes pairs of terms and texts into a description list, in place.
export function fill(list, pairs) {
  while (list.children.length > pairs.length) list.lastChild.remove();
  while (list.children.length < pairs.length) list.append(element("div", {}, element("dt"), element("dd")));
  for (const [index, texts] of pairs.entries()) {
    for (const [place, text] of texts.entries()) write(list.children[index].children[place], text);
  }
}

function write(part, text) {
  if (part.textContent !== text) part.textContent = text;
}

// Polls now, and again some milliseconds after each end of it, while anybody looks at the page.
// What `poll` throws goes to `complain`, which may return another pause. Returns what polls at once.
export function follow(poll, complain, interval) {
  let timer = null;
  let running = false;

  async function tick() {
    clearTimeout(timer);
    if (running || document.hidden) return;
    running = true;
    let pause = interval;
    try {
      await poll();
    } catch (error) {
      pause = complain(error) ?? interval;
    } finally {
      running = false;
      timer = setTimeout(tick, pause);
    }
  }

  document.addEventListener("visibilitychange", tick);
  tick();
  return tick;
}
