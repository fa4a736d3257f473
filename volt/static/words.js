// The words of those parts of this page that others show too, in their language if they have one.

const translate = globalThis.gettext ?? ((text) => text);

// Returns the text in the reader's language, with its %(name)s replaced by values of these names.
export function gettext(text, values = {}) {
  return translate(text).replace(/%\((\w+)\)s/g, (_, name) => values[name]);
}
