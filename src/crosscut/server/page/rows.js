// One hit: a line that opens to the whole text, the id and the metadata.

import { roundColour } from "./rounds.js";
import { make, marked, snippet } from "./words.js";

let numbered = 0;

export function row(hit, rank, words, count, { state = "", badge = "", pick = () => {} } = {}) {
  const element = make("li", `hit ${state}`);
  element.dataset.id = hit.id;
  const body = make("div"), more = make("div", "more");
  const button = make("button", "open");
  button.type = "button";
  button.setAttribute("aria-expanded", "false");
  more.id = `more-${++numbered}`;
  more.hidden = true;
  button.setAttribute("aria-controls", more.id);
  if (hit.title) button.append(marked("span", "title", hit.title, words));
  const teaser = !hit.title || state !== "lost" ? marked("span", "text", snippet(hit.text, words), words) : make("span");
  button.append(teaser);
  body.append(button);
  if (badge) body.append(make("span", "badge", badge));
  body.append(more);
  button.addEventListener("click", () => {
    if (!more.childElementCount) more.append(...whole(hit, words, pick));
    more.hidden = !more.hidden;
    teaser.hidden = !more.hidden && Boolean(hit.title);
    button.setAttribute("aria-expanded", String(!more.hidden));
  });
  element.append(make("span", "rank", String(rank)), body, side(hit, count));
  for (const [event, on] of [["pointerenter", true], ["pointerleave", false]]) {
    element.addEventListener(event, () => {
      for (const twin of document.querySelectorAll(".hit")) twin.classList.toggle("twin", on && twin.dataset.id === hit.id);
    });
  }
  return element;
}

function side(hit, count) {
  const element = make("div", "side");
  element.append(make("div", "score", (Math.abs(hit.score) < 0.005 ? 0 : hit.score).toFixed(2)));
  if (hit.probability !== undefined && hit.probability !== null) {
    const chance = make("div", "when chance", `${Math.round(100 * hit.probability)} %`);
    chance.title = "the probability that it is relevant";
    element.append(chance);
  }
  if (count) {
    const when = make("span", "when", `round ${hit.round}`);
    const dot = make("i");
    dot.style.background = roundColour(hit.round, count);
    when.prepend(dot);
    element.append(when);
  }
  return element;
}

// A value of the metadata is a button that filters by it, where a filter can hold it.
function whole(hit, words, pick) {
  const facts = make("dl", "metadata");
  const add = (name, ...parts) => {
    const value = make("dd");
    value.append(...parts);
    facts.append(make("dt", "", name), value);
  };
  add("id", hit.id);
  if (hit.probability !== undefined && hit.probability !== null) add("probability", hit.probability.toFixed(2));
  if (hit.estimate !== null) add("predicted", hit.estimate.toFixed(2));
  for (const [key, values] of Object.entries(hit.metadata)) {
    if (key.startsWith("passage_")) continue;  // the position of a passage in its document
    add(key, ...[values].flat().map((value) => {
      if (!["string", "number", "boolean"].includes(typeof value)) return make("span", "", JSON.stringify(value));
      const button = make("button", "value", String(value));
      button.type = "button";
      button.setAttribute("aria-label", `Only items with ${key} ${value}`);
      button.addEventListener("click", () => pick(key, value));
      return button;
    }));
  }
  return [marked("div", "whole", hit.text, words), facts];
}
