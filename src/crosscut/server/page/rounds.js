// The rounds of a search: every scored item in the order of the calls, as a picture and as a table.

import { draw, label } from "./curves.js";
import { make } from "./words.js";

const HEIGHT = 300, LEFT = 48, RIGHT = 14, TOP = 12, BOTTOM = 36;

export function roundColour(round, rounds) {
  if (round === 1) return "var(--anchor)";
  const share = rounds > 2 ? (round - 2) / (rounds - 2) : 1;
  return `hsl(${222 + 120 * share} ${75 - 30 * share * (1 - share)}% var(--round-light))`;
}

export function showRounds(rounds, k, picture, table) {
  const WIDTH = Math.max(300, picture.parentElement.clientWidth - 40);
  const items = rounds.flatMap((round) => round.items.map((item) => ({ ...item, round: round.round })));
  const shown = [...items.map((item) => item.score), ...items.map((item) => item.estimate).filter((value) => value !== null)];
  const low = quantile(shown, 0.005), high = Math.max(...items.map((item) => item.score));
  const x = (call) => LEFT + ((call + 0.5) / items.length) * (WIDTH - LEFT - RIGHT);
  const y = (score) => TOP + ((high - Math.min(high, Math.max(low, score))) / (high - low || 1)) * (HEIGHT - TOP - BOTTOM);
  picture.replaceChildren();
  picture.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  picture.setAttribute("aria-label", `Scores of ${items.length} items in ${rounds.length} rounds; the best is ${high.toFixed(2)}`);
  for (let step = 0; step <= 4; step++) {
    const value = low + ((high - low) * step) / 4;
    picture.append(draw("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }));
    label(picture, LEFT - 6, y(value) + 4, value.toFixed(1), "end");
  }
  let call = 0;
  for (const round of rounds) {
    if (!round.items.length) continue;
    if (call) picture.append(draw("line", { class: "grid", x1: x(call - 0.5), x2: x(call - 0.5), y1: TOP, y2: HEIGHT - BOTTOM }));
    const width = x(call + round.items.length) - x(call);
    if (width > 16) label(picture, x(call - 0.5) + width / 2, HEIGHT - BOTTOM + 16, String(round.round), "middle");
    call += round.items.length;
  }
  label(picture, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 3, "rounds; within each, calls in order", "middle");
  items.forEach((item, j) => {
    if (item.estimate !== null) picture.append(draw("circle", { class: "estimate", cx: x(j), cy: y(item.estimate), r: 2 }));
  });
  const best = [];
  const line = items.flatMap((item, j) => {
    best.push(item.score);
    best.sort((a, b) => b - a).splice(k);
    return best.length === k ? [`${x(j).toFixed(1)},${y(best.at(-1)).toFixed(1)}`] : [];
  });
  picture.append(draw("polyline", { class: "least", points: line.join(" ") }));
  items.forEach((item, j) => {
    const dot = draw("circle", { class: item.hit ? "item hit-dot" : "item", cx: x(j), cy: y(item.score), r: item.hit ? 5 : 3 });
    dot.style.fill = roundColour(item.round, rounds.length);
    const title = draw("title", {});
    title.textContent = `${item.title}${item.hit ? ` (hit ${item.hit})` : ""}; score ${item.score.toFixed(2)}` + (item.estimate === null ? "" : `, predicted ${item.estimate.toFixed(2)}`);
    dot.append(title);
    picture.append(dot);
  });
  table.replaceChildren(...rounds.map(row));
}

function row(round) {
  const scores = round.items.map((item) => item.score);
  const errors = round.items.filter((item) => item.estimate !== null).map((item) => Math.abs(item.estimate - item.score));
  const line = make("tr");
  line.append(...[
    round.round, round.calls, scores.length ? Math.max(...scores).toFixed(2) : "–", mean(scores), mean(errors),
    round.items.filter((item) => item.hit).length,
  ].map((value) => make("td", "", String(value))));
  return line;
}

const mean = (values) => (values.length ? (values.reduce((a, b) => a + b, 0) / values.length).toFixed(2) : "–");
const quantile = (values, share) => values.toSorted((a, b) => a - b)[Math.floor(share * values.length)];
