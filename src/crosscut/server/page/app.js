// The search page: no framework, no build step, nothing from elsewhere.

import { markBudget, showCurves } from "./curves.js";
import { condition, parseFilter } from "./filters.js";
import { showRounds } from "./rounds.js";
import { row } from "./rows.js";
import { make, wordsOf } from "./words.js";

const at = (id) => document.getElementById(id);
const REASONS = {
  budget: "budget used", exhausted: "everything scored", patience: "top k settled", confident: "hits are settled", "target recall": "enough expected", deadline: "deadline", rounds: "rounds done", cancelled: "called off",
};

let info = { max_budget: 1000, max_k: 100, method: "", methods: [], rival: "", examples: [], evaluation: [], target_recall: null };
let answer = null, latest = 0, timer = 0, running = null;

// -- speaking with the server

async function call(path, body, signal) {
  const token = sessionStorage.getItem("token");
  const headers = { ...(body && { "content-type": "application/json" }), ...(token && { authorization: `Bearer ${token}` }) };
  const response = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
  if (response.status === 401) {
    await askForToken();
    return call(path, body, signal);
  }
  const content = await response.json();
  if (!response.ok) throw Object.assign(new Error(content.message ?? `the server answered ${response.status}`), content);
  return content;
}

let asking = null;
function askForToken() {
  asking ??= new Promise((resolve) => {
    at("gate").showModal();
    at("gate").addEventListener("close", () => {
      sessionStorage.setItem("token", at("token").value);
      asking = null;
      resolve();
    }, { once: true });
  });
  return asking;
}

// One search at a time: a newer one replaces what is waiting or running, and the server stops making calls for it.
async function search() {
  clearTimeout(timer);
  running?.abort();
  const query = at("query").value.trim();
  if (!query) return;
  const number = ++latest;
  running = new AbortController();
  document.body.classList.add("busy");
  say("Searching …");
  remember();
  try {
    const method = at("method").value.trim() || info.method;  // `axn@rounds=10,mix=0.8`: a name, with settings if wanted
    const found = await call("search", {
      query, index: at("index").value || null, k: Number(at("k").value), budget: budget(), method, trace: true,
      filter: parseFilter(at("filter").value), target_recall: Number(at("target").value) || null,
      compare: at("compare").checked && info.methods.includes(info.rival) && method !== info.rival,
    }, running.signal);
    if (number !== latest) return;
    if (!found.hits.length) return nothing();
    answer = found;
    show(query);
    say("");
  } catch (error) {
    if (number === latest) fail(error);
  } finally {
    if (number === latest) document.body.classList.remove("busy");
  }
}

// What stood there answered another question: it goes. What this one had found and paid for stays.
function fail(error) {
  answer = null;
  at("result").hidden = true;
  const hits = error.hits ?? [];
  say(hits.length ? `${error.message} (${error.calls} calls were made; the best of them:)` : error.message, true);
  at("partial").hidden = !hits.length;
  const words = wordsOf(at("query").value);
  at("partial-hits").replaceChildren(...hits.map((hit, j) => row(hit, j + 1, words, 0, { pick })));
}

function nothing() {
  answer = null;
  at("result").hidden = at("partial").hidden = at("empty").hidden = true;
  say(at("filter").value.trim() ? "No item passes the filter." : "There is no item to find.");
}

function soon() {
  clearTimeout(timer);
  timer = setTimeout(search, 300);
}

// -- controls

const asked = () => latest > 0;  // a first search was made: from then on controls search by themselves

// The budget slider is even in the ratio of budgets: from 10 calls to the cap.
function budget() {
  const share = Number(at("budget").value) / 1000, least = Math.min(10, info.max_budget);
  const exact = least * (info.max_budget / least) ** share;
  const step = exact < 50 ? 5 : exact < 200 ? 10 : exact < 1000 ? 50 : 100;
  return Math.max(1, Math.min(info.max_budget, Math.round(exact / step) * step));
}

function setBudget(value) {
  const least = Math.min(10, info.max_budget);
  at("budget").value = info.max_budget > least ? (1000 * Math.log(value / least)) / Math.log(info.max_budget / least) : 1000;
}

function label() {
  at("k-value").textContent = at("k").value;
  at("budget-value").textContent = budget();
  at("budget").setAttribute("aria-valuetext", `${budget()} calls`);
  const money = info.call_price ? `, about ${(info.call_price * budget()).toPrecision(2)} ${info.currency}` : "";
  at("compare-price").textContent = `(up to ${budget()} more calls${money})`;
  markBudget(at("charts"), budget());
}

function pick(key, value) {
  const wanted = condition(key, value), field = at("filter");
  if (!field.value.split(",").map((part) => part.trim()).includes(wanted)) field.value = [field.value.trim(), wanted].filter(Boolean).join(", ");
  search();
}

function remember() {
  const state = { q: at("query").value.trim(), k: at("k").value, b: budget(), m: at("method").value };
  if (at("filter").value.trim()) state.f = at("filter").value.trim();
  if (at("target").value) state.t = at("target").value;
  if (at("index").selectedIndex > 0) state.i = at("index").value;
  history.replaceState(null, "", `#${new URLSearchParams(state)}`);  // behind the #: it is not sent anywhere
  sessionStorage.setItem("searched", location.hash);
}

function say(text, wrong = false) {
  at("status").textContent = text;
  at("status").classList.toggle("error", wrong);
}

// -- showing an answer

function show(query) {
  at("empty").hidden = at("partial").hidden = true;
  at("result").hidden = false;
  const rival = answer.comparison;
  cost(rival);
  const missed = new Set(rival?.missed);
  const words = wordsOf(query);
  at("own-title").textContent = answer.method;
  at("own-note").textContent = `${answer.calls} calls in ${answer.rounds} round${answer.rounds === 1 ? "" : "s"}`;
  at("hits").replaceChildren(...answer.hits.map((hit, j) => row(hit, j + 1, words, answer.rounds, {
    state: missed.has(hit.id) ? "found" : "", badge: missed.has(hit.id) ? "missed by reranking" : "", pick,
  })));
  at("other").hidden = !rival;
  at("panes").classList.toggle("single", !rival);
  if (rival) {
    const extra = new Set(rival.extra);
    at("other-note").textContent = `${rival.calls} calls; it misses ${missed.size || "none"} of the best ${answer.hits.length}`;
    const rows = rival.hits.map((hit, j) => row(hit, j + 1, words, 0, {
      state: extra.has(hit.id) ? "extra" : "", badge: extra.has(hit.id) ? "found only by reranking" : "", pick,
    }));
    const lost = answer.hits.filter((hit) => missed.has(hit.id));
    if (lost.length) {
      rows.push(make("li", "divide", "Missed by reranking"));
      rows.push(...lost.map((hit) => row(hit, answer.hits.indexOf(hit) + 1, words, 0, { state: "lost", pick })));
    }
    at("other-hits").replaceChildren(...rows);
  }
  at("picture").hidden = !answer.trace?.length;
  if (answer.trace?.length) showRounds(answer.trace, answer.hits.length, at("rounds"), at("table").tBodies[0]);
}

function cost(rival) {
  const seconds = answer.seconds;
  const spent = seconds.scorer + seconds.fit + seconds.select;
  const facts = [
    [String(answer.calls), `of ${answer.budget} calls`],
    [String(answer.rounds), answer.rounds === 1 ? "round" : "rounds"],
    [`${spent < 1 ? Math.round(1000 * spent) + " ms" : spent.toFixed(1) + " s"}`, `${Math.round((100 * seconds.scorer) / (spent || 1))} % in the scorer`],
    [REASONS[answer.stop_reason] ?? answer.stop_reason, "why it stopped"],
  ];
  if (answer.cost != null) facts.push([answer.cost.toPrecision(2), "cost"]);
  if (rival) {
    facts.push([String(rival.missed.length), "hits that reranking misses", rival.missed.length ? "good" : ""]);
    if (rival.extra.length) facts.push([String(rival.extra.length), "hits that only reranking finds"]);
  }
  at("cost").replaceChildren(...facts.map(([value, name, mood]) => {
    const box = make("div", mood);
    box.append(make("dt", "", name), make("dd", "", value));
    return box;
  }));
}

// -- beginning

function theme(name) {
  document.documentElement.dataset.theme = name;
}

function begin() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  theme(localStorage.getItem("theme") ?? (system.matches ? "dark" : "light"));
  system.addEventListener("change", () => { if (!localStorage.getItem("theme")) theme(system.matches ? "dark" : "light"); });
  at("theme").addEventListener("click", () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    localStorage.setItem("theme", next);
    theme(next);
  });
  at("form").addEventListener("submit", (event) => {
    event.preventDefault();
    search();
  });
  for (const id of ["k", "budget"]) {
    at(id).addEventListener("input", () => {
      label();
      if (asked()) soon();
    });
  }
  at("target").addEventListener("change", () => {
    if (at("target").value) at("k").value = info.target_recall;  // what it is calibrated for
    label();
  });
  for (const id of ["method", "compare", "target", "filter"]) at(id).addEventListener("change", () => asked() && soon());
  at("index").addEventListener("change", changeIndex);
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.target.closest?.("input:not([type=range])")) {
      event.preventDefault();
      at("query").select();
    } else if (event.key === "Escape") document.activeElement?.blur?.();
  });
  start();
}

// What another index finds is another answer: the old one goes, and the query is asked of the new one.
async function changeIndex() {
  latest++;
  answer = null;
  at("result").hidden = at("partial").hidden = true;
  at("filter").value = "";
  try {
    info = await call(`info?index=${encodeURIComponent(at("index").value)}`);
  } catch (error) {
    return say(error.message, true);
  }
  introduce();
  at("method").value = info.method;
  if (at("query").value.trim()) search();
}

// What the server says of the index that is chosen.
function introduce() {
  at("facts").textContent = `${info.items.toLocaleString("en")} ${info.passages ? "passages" : "items"}`;
  at("target").closest(".control").hidden = !info.target_recall;
  if (!info.target_recall) at("target").value = "";
  at("other-title").textContent = `reranking (${info.rival})`;
  label();
}

async function start() {
  const state = new URLSearchParams(location.hash.slice(1));
  try {
    info = await call(state.get("i") ? `info?index=${encodeURIComponent(state.get("i"))}` : "info");
  } catch (error) {
    say(error.message, true);
    return;
  }
  at("index").replaceChildren(...info.indexes.map((name) => {
    const option = make("option", "", name);
    option.value = name;
    return option;
  }));
  at("index").value = state.get("i") ?? info.indexes[0];
  at("which").hidden = info.indexes.length < 2;
  at("k").max = info.max_k;
  at("methods").replaceChildren(...info.methods.map((name) => {
    const option = make("option");
    option.value = name;
    return option;
  }));
  at("k").value = state.get("k") ?? Math.min(10, info.max_k);
  setBudget(Number(state.get("b")) || info.default_budget);
  at("method").value = state.get("m") || info.method;
  at("filter").value = state.get("f") ?? "";
  at("target").value = info.target_recall ? state.get("t") ?? "" : "";
  at("curves").hidden = !info.evaluation.length;
  if (info.evaluation.length) showCurves(info.evaluation, at("charts"), at("curve-legend"), at("curve-table").tBodies[0]);
  at("examples").hidden = !info.examples.length;
  at("examples").replaceChildren(...info.examples.map((text) => {
    const button = make("button", "", text);
    button.type = "button";
    button.addEventListener("click", () => {
      at("query").value = text;
      search();
    });
    return button;
  }));
  introduce();
  if (!state.get("q")) return;
  at("query").value = state.get("q");
  // A link only fills in: calls are spent by the user of this page, not by the author of the link. What was searched for in this
  // tab is searched for again when the page is loaded again.
  if (sessionStorage.getItem("searched") === location.hash) search();
  else say("Press Enter to search.");
}

begin();
