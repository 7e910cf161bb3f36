// Recall and judged relevance against calls: what `crosscut evaluate --json` has measured, one small chart a measure.

import { make } from "./words.js";

const WIDTH = 340, HEIGHT = 220, LEFT = 40, RIGHT = 12, TOP = 10, BOTTOM = 34;
export const draw = (tag, attributes) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};
const unique = (values) => [...new Set(values)];

export function showCurves(records, charts, legend, table) {
  const measures = unique(records.map((record) => record.measure));
  // what needs no call comes last, so that searches have the clearest colours
  const searches = new Set(records.filter((record) => record.calls > 0).map((record) => record.method));
  const methods = unique(records.map((record) => record.method)).sort((a, b) => searches.has(b) - searches.has(a));
  charts.replaceChildren(...measures.map((measure) => chart(measure, records.filter((record) => record.measure === measure), methods)));
  legend.replaceChildren(...methods.map((method, j) => {
    const entry = make("li"), line = make("i", `curve-key method-${j % 6}`);
    entry.append(line, method);
    return entry;
  }));
  table.replaceChildren(...records.map((record) => {
    const line = make("tr");
    const cells = [record.method, record.measure, record.calls.toFixed(0), record.value.toFixed(3), `${record.low.toFixed(3)} … ${record.high.toFixed(3)}`, record.queries];
    line.append(...cells.map((value) => make("td", "", String(value))));
    return line;
  }));
}

// The budget of the slider, as a line in every chart.
export function markBudget(charts, budget) {
  for (const figure of charts.children) {
    const { least, most } = figure.dataset, line = figure.querySelector(".budget");
    const share = (Math.log(budget) - Math.log(least)) / (Math.log(most) - Math.log(least) || 1);
    const shown = share >= 0 && share <= 1;
    line.setAttribute("visibility", shown ? "visible" : "hidden");
    const x = LEFT + share * (WIDTH - LEFT - RIGHT);
    if (shown) for (const end of ["x1", "x2"]) line.setAttribute(end, x.toFixed(1));
  }
}

function chart(measure, records, methods) {
  const calls = records.map((record) => Math.max(record.calls, 1));
  const least = Math.min(...calls) / 1.1, most = Math.max(...calls) * 1.1;
  const low = Math.max(0, Math.floor(10 * Math.min(...records.map((record) => record.low)) - 0.2) / 10);
  const x = (value) => LEFT + ((Math.log(Math.max(value, 1)) - Math.log(least)) / Math.log(most / least)) * (WIDTH - LEFT - RIGHT);
  const y = (value) => TOP + ((1 - value) / (1 - low || 1)) * (HEIGHT - TOP - BOTTOM);
  const figure = make("figure"), picture = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
  const best = methods.map((method) => records.filter((record) => record.method === method).at(-1)).filter(Boolean);
  picture.setAttribute("aria-label", `${measure} against calls: ${best.map((one) => `${one.method} ${one.value.toFixed(2)} at ${one.calls.toFixed(0)} calls`).join(", ")}`);
  for (let step = 0; step <= 4; step++) {
    const value = low + ((1 - low) * step) / 4;
    picture.append(draw("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }));
    label(picture, LEFT - 6, y(value) + 4, value.toFixed(2), "end");
  }
  const free = records.some((record) => record.calls === 0);  // the axis is logarithmic: no call stands where one would
  const shown = unique(calls.map(Math.round)).sort((a, b) => a - b);
  shown.forEach((value, j) => {
    if (j === 0 || x(value) - x(shown[j - 1]) > 24) label(picture, x(value), HEIGHT - BOTTOM + 16, value === 1 && free ? "0" : String(value), "middle");
  });
  label(picture, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 3, "calls", "middle");
  picture.append(draw("line", { class: "budget", y1: TOP, y2: HEIGHT - BOTTOM, x1: 0, x2: 0, visibility: "hidden" }));
  methods.forEach((method, j) => {
    const line = records.filter((record) => record.method === method).sort((a, b) => a.calls - b.calls);
    if (!line.length) return;
    const path = (key) => line.map((record) => `${x(record.calls).toFixed(1)},${y(record[key]).toFixed(1)}`);
    picture.append(draw("polygon", { class: `band method-${j % 6}`, points: [...path("low"), ...path("high").reverse()].join(" ") }));
    picture.append(draw("polyline", { class: `curve method-${j % 6}`, points: path("value").join(" ") }));
    for (const record of line) picture.append(draw("circle", { class: `point method-${j % 6}`, cx: x(record.calls), cy: y(record.value), r: 3 }));
  });
  figure.dataset.least = least;
  figure.dataset.most = most;
  figure.append(make("figcaption", "", `${measure}, ${records[0].queries} queries`), picture);
  return figure;
}

export function label(picture, x, y, text, anchor) {
  const element = draw("text", { x, y, "text-anchor": anchor });
  element.textContent = text;
  picture.append(element);
}
