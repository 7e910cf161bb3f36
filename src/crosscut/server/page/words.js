// Words of a query in a text: which to mark, and the part of a long text that shows them.

const COMMON = new Set("the and for was were are has had have with that this from not but its his her into than then".split(" "));

export function make(tag, name, text) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
}

export function wordsOf(query) {
  return query.replace(/\[(START|END)\]/g, " ").toLowerCase().split(/[^\p{L}\p{N}]+/u)
    .filter((word) => word.length > 2 && !COMMON.has(word));
}

// Whole words only: "can" is not in "Canada". Words hold letters and digits, nothing that a pattern could misread.
const pattern = (words) => new RegExp(`(?<![\\p{L}\\p{N}])(${words.join("|")})(?![\\p{L}\\p{N}])`, "giu");

export function marked(tag, name, text, words) {
  const element = make(tag, name);
  if (words.length) text.split(pattern(words)).forEach((part, j) => element.append(j % 2 ? make("mark", "", part) : part));
  else element.textContent = text;
  return element;
}

export function snippet(text, words) {
  if (text.length <= 320) return text;
  const first = words.length ? text.search(pattern(words)) : -1;
  const start = first < 160 ? 0 : text.lastIndexOf(" ", first - 80) + 1;
  return `${start ? "… " : ""}${text.slice(start, start + 300)} …`;
}
