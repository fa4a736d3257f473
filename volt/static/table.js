// A table that can be sorted, searched and paged; its cells are changed in place.

import { byName, count } from "./format.js";
import { gettext } from "./words.js";

const ROWS = 50;

export function element(kind, attributes = {}, ...children) {
  const made = document.createElement(kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// A column of a table: its cells show `text` of what `value` returns for a row.
export function column(title, value, text = String, numeric = false) {
  return { title, value, text: (row) => text(value(row)), numeric };
}

export class Table {
  #rows = [];
  #page = 0;
  #sort = { column: 0, descending: false };

  // onChoose gets the row whose name, in the first column, was activated.
  constructor(panel, caption, columns, onChoose) {
    this.columns = columns;
    this.onChoose = onChoose;
    const id = `${panel.id}-search`;
    this.search = element("input", { type: "search", id, autocomplete: "off", spellcheck: "false" });
    this.shown = element("output", { for: id });
    this.earlier = element("button", { type: "button" }, gettext("Previous"));
    this.later = element("button", { type: "button" }, gettext("Next"));
    this.heads = columns.map((column, index) => this.#head(column, index));
    this.body = element("tbody");
    const table = element("table", {}, element("caption", { class: "unseen" }, caption), element("thead", {}, element("tr", {}, ...this.heads)), this.body);
    panel.append(
      element("div", { class: "tools" }, element("label", { for: id }, gettext("Search")), this.search, this.shown, element("div", { class: "buttons", role: "group", "aria-label": gettext("Pages") }, this.earlier, this.later)),
      element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table),
    );
    this.search.addEventListener("input", () => this.#turn(0));
    this.earlier.addEventListener("click", () => this.#turn(this.#page - 1));
    this.later.addEventListener("click", () => this.#turn(this.#page + 1));
  }

  update(rows) {
    this.#rows = rows;
    this.#render();
  }

  #head(column, index) {
    const button = element("button", { type: "button" }, column.title);
    button.addEventListener("click", () => {
      const descending = this.#sort.column === index && !this.#sort.descending;
      this.#sort = { column: index, descending };
      this.#turn(0);
    });
    return element("th", { scope: "col", class: column.numeric ? "number" : "" }, button);
  }

  #turn(page) {
    this.#page = page;
    this.#render();
  }

  #render() {
    const wanted = this.search.value.trim().toLowerCase();
    const { column, descending } = this.#sort;
    const value = this.columns[column].value;
    const found = this.#rows
      .filter((row) => !wanted || this.columns.some((each) => each.text(row).toLowerCase().includes(wanted)))
      .sort((a, b) => (descending ? -1 : 1) * compare(value(a), value(b)));
    const pages = Math.max(1, Math.ceil(found.length / ROWS));
    this.#page = Math.min(this.#page, pages - 1);
    const first = this.#page * ROWS;
    const rows = found.slice(first, first + ROWS);
    this.shown.textContent = found.length
      ? gettext("%(first)s to %(last)s of %(all)s", { first: count(first + 1), last: count(first + rows.length), all: count(found.length) })
      : gettext("nothing found");
    this.earlier.disabled = this.#page === 0;
    this.later.disabled = this.#page === pages - 1;
    for (const [index, head] of this.heads.entries()) {
      if (index === column) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    while (this.body.rows.length > rows.length) this.body.deleteRow(-1);
    while (this.body.rows.length < rows.length) this.body.append(this.#row());
    for (const [index, row] of rows.entries()) this.#fill(this.body.rows[index], row);
  }

  #row() {
    const row = element("tr");
    for (const [index, column] of this.columns.entries()) {
      if (index > 0) {
        row.append(element("td", { class: column.numeric ? "number" : "" }));
        continue;
      }
      const name = element("button", { type: "button", class: "link" });
      name.addEventListener("click", () => this.onChoose(row.shows));
      row.append(element("th", { scope: "row" }, name));
    }
    return row;
  }

  #fill(row, shows) {
    row.shows = shows;
    for (const [index, column] of this.columns.entries()) {
      const cell = index === 0 ? row.cells[0].firstChild : row.cells[index];
      const text = column.text(shows);
      if (cell.textContent !== text) cell.textContent = text;
    }
  }
}

function compare(a, b) {
  return typeof a === "number" && typeof b === "number" ? a - b : byName(String(a), String(b));
}
