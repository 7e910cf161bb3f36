// The picture of a search: every scored item, what was predicted of it in the shown round (across) and its exact
// score (up). The bars below are the predictions of all items of the index.

export function roundColour(round, rounds) {
  if (round === 1) return getComputedStyle(document.documentElement).getPropertyValue("--anchor").trim();
  const share = rounds > 2 ? (round - 2) / (rounds - 2) : 1;
  return `hsl(${222 + 120 * share} ${75 - 30 * share * (1 - share)}% ${dark() ? 66 : 52}%)`;
}

const dark = () => document.documentElement.dataset.theme === "dark";
const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export class Picture {
  constructor(canvas, tip) {
    this.canvas = canvas;
    this.tip = tip;
    this.trace = null;
    this.shown = 1;
    this.places = [];
    this.frame = 0;
    canvas.addEventListener("pointermove", (event) => this.point(event));
    canvas.addEventListener("pointerdown", (event) => this.point(event));
    canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  show(trace, k) {
    this.trace = trace;
    this.k = k;
    const exact = trace.scored.map((item) => item.score);
    const seen = trace.rounds.flatMap((round) => round.predictions ?? []);
    this.up = range(exact, 0.06);
    this.across = seen.length ? range(seen, 0.04) : this.up;
    this.places = [];
    this.go(trace.rounds.length, false);
  }

  go(round, moving = true) {
    cancelAnimationFrame(this.frame);
    const from = this.places.length ? this.places.map((place) => ({ ...place })) : null;
    this.shown = round;
    const to = this.aim(round);
    if (!moving || !from || still()) {
      this.places = to;
      this.draw();
      return;
    }
    const begun = performance.now();
    const step = (now) => {
      const share = Math.min((now - begun) / 420, 1);
      const eased = 1 - (1 - share) ** 3;
      this.places = to.map((place, j) => ({ ...place, x: from[j].x + (place.x - from[j].x) * eased }));
      this.draw();
      if (share < 1) this.frame = requestAnimationFrame(step);
    };
    this.frame = requestAnimationFrame(step);
  }

  // Where each item stands in a round: x from −1 (no prediction yet, in the gutter) or in 0 … 1.
  aim(number) {
    const round = this.trace.rounds[number - 1];
    return this.trace.scored.map((item, j) => {
      const value = round.predictions?.[j];
      const x = value === undefined ? null : (value - this.across.low) / (this.across.high - this.across.low);
      const y = (item.score - this.up.low) / (this.up.high - this.up.low);
      const state = item.round === null ? "rival" : item.round > number ? "later" : item.round === number ? "now" : "known";
      return { x: x ?? -0.5 - 0.42 * scatter(j), y, state, gutter: x === null, value };
    });
  }

  draw() {
    if (!this.trace || !this.canvas.clientWidth) return;
    const { canvas } = this;
    const scale = devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(document.documentElement);
    const ink = (name) => style.getPropertyValue(`--${name}`).trim();
    const noPrediction = this.places.some((place) => place.gutter);
    const left = 46, top = 12, bottom = 84, right = 14;
    const gutter = this.trace.rounds.length > 1 ? Math.min(90, width * 0.14) : width - left - right;
    const plot = { x: left + gutter, y: top, w: Math.max(width - left - gutter - right, 1), h: height - top - bottom };
    this.toX = (x) => (x < 0 ? left + (x + 1) * gutter * 0.95 : plot.x + x * plot.w);
    this.toY = (y) => plot.y + (1 - y) * plot.h;
    pen.font = "12px system-ui, sans-serif";

    pen.strokeStyle = ink("rule");
    pen.fillStyle = ink("faint");
    pen.lineWidth = 1;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    for (const tick of ticks(this.up, 7)) {
      const y = this.toY((tick - this.up.low) / (this.up.high - this.up.low));
      line(pen, left, y, width - right, y);
      pen.fillText(label(tick), left - 8, y);
    }
    pen.textAlign = "center";
    pen.textBaseline = "top";
    const many = this.trace.rounds.length > 1;
    if (many) {
      for (const tick of ticks(this.across, width < 500 ? 3 : 7)) {
        pen.fillText(label(tick), this.toX((tick - this.across.low) / (this.across.high - this.across.low)), height - 34);
      }
      pen.fillStyle = ink("soft");
      pen.fillText("predicted score", plot.x + plot.w / 2, height - 16);
      if (noPrediction) pen.fillText("no prediction", left + gutter / 2, height - 34);
      line(pen, plot.x, plot.y, plot.x, plot.y + plot.h);
    }
    pen.save();
    pen.translate(11, plot.y + plot.h / 2);
    pen.rotate(-Math.PI / 2);
    pen.fillStyle = ink("soft");
    pen.fillText("exact score", 0, -6);
    pen.restore();

    this.bars(pen, plot, height, ink);
    if (many && !noPrediction) this.diagonal(pen, plot, ink);
    this.threshold(pen, left, width - right, ink);

    const order = { rival: 0, later: 1, known: 2, now: 3 };
    const rounds = this.trace.rounds.length;
    const drawn = this.places.map((place, j) => [place, this.trace.scored[j]]).sort((a, b) => order[a[0].state] - order[b[0].state]);
    for (const [place, item] of drawn) {
      const x = this.toX(place.x), y = this.toY(place.y);
      pen.globalAlpha = 1;
      if (place.state === "rival") {
        pen.globalAlpha = 0.75;
        pen.strokeStyle = ink("rival");
        pen.lineWidth = 1.5;
        line(pen, x - 3, y - 3, x + 3, y + 3);
        line(pen, x - 3, y + 3, x + 3, y - 3);
      } else if (place.state === "later") {
        pen.globalAlpha = 0.5;
        pen.strokeStyle = ink("faint");
        pen.lineWidth = 1;
        circle(pen, x, y, 3).stroke();
      } else {
        pen.fillStyle = roundColour(item.round, rounds);
        pen.globalAlpha = place.state === "now" ? 1 : 0.72;
        if (item.round === 1) pen.fillRect(x - 3.4, y - 3.4, 6.8, 6.8);
        else circle(pen, x, y, place.state === "now" ? 5 : 4).fill();
        if (place.state === "now") {
          pen.strokeStyle = ink("ink");
          pen.lineWidth = 1.6;
          if (item.round === 1) pen.strokeRect(x - 4.4, y - 4.4, 8.8, 8.8);
          else circle(pen, x, y, 5.8).stroke();
        }
      }
    }
    pen.globalAlpha = 1;
  }

  bars(pen, plot, height, ink) {
    const histogram = this.trace.rounds[this.shown - 1].histogram;
    if (!histogram) return;
    const floor = height - 40, most = Math.max(...histogram.counts), step = (histogram.high - histogram.low) / histogram.counts.length;
    pen.fillStyle = ink("accent");
    pen.globalAlpha = 0.28;
    pen.save();
    pen.beginPath();
    pen.rect(plot.x, 0, plot.w, height);
    pen.clip();
    histogram.counts.forEach((count, j) => {
      const low = (histogram.low + j * step - this.across.low) / (this.across.high - this.across.low);
      const wide = step / (this.across.high - this.across.low);
      const tall = count ? 2 + 34 * Math.sqrt(count / most) : 0;
      pen.fillRect(plot.x + low * plot.w, floor - tall, Math.max(wide * plot.w - 0.5, 0.5), tall);
    });
    pen.restore();
    pen.globalAlpha = 1;
  }

  diagonal(pen, plot, ink) {
    const low = Math.max(this.across.low, this.up.low), high = Math.min(this.across.high, this.up.high);
    if (high <= low) return;
    const x = (value) => this.toX((value - this.across.low) / (this.across.high - this.across.low));
    const y = (value) => this.toY((value - this.up.low) / (this.up.high - this.up.low));
    pen.save();
    pen.setLineDash([2, 5]);
    pen.strokeStyle = ink("faint");
    line(pen, x(low), y(low), x(high), y(high));
    pen.restore();
  }

  threshold(pen, from, to, ink) {
    const known = this.trace.scored.filter((item) => item.round !== null && item.round <= this.shown).map((item) => item.score);
    known.sort((a, b) => b - a);
    const bound = known[Math.min(this.k, known.length) - 1];
    if (bound === undefined) return;
    const y = this.toY((bound - this.up.low) / (this.up.high - this.up.low));
    pen.save();
    pen.setLineDash([6, 5]);
    pen.lineWidth = 1.5;
    pen.strokeStyle = ink("found");
    line(pen, from, y, to, y);
    pen.restore();
  }

  point(event) {
    if (!this.trace || !this.toX) return;
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    let best = null, least = 18 ** 2;
    this.places.forEach((place, j) => {
      const distance = (this.toX(place.x) - x) ** 2 + (this.toY(place.y) - y) ** 2;
      if (distance < least) [best, least] = [j, distance];
    });
    this.tip.hidden = best === null;
    if (best === null) return;
    const item = this.trace.scored[best], place = this.places[best];
    const name = document.createElement("b");
    name.textContent = item.title;
    const when = item.round === null ? "scored by reranking only" : `scored in round ${item.round}`;
    const said = place.value === undefined ? "" : `, predicted ${place.value.toFixed(2)}`;
    this.tip.replaceChildren(name, `exact ${item.score.toFixed(2)}${said}; ${when}`);
    const wide = this.tip.offsetWidth;
    this.tip.style.left = `${Math.max(0, Math.min(this.toX(place.x) + 12, box.width - wide - 4))}px`;
    this.tip.style.top = `${Math.max(0, this.toY(place.y) - this.tip.offsetHeight - 10)}px`;
  }
}

function range(values, slack) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (!(high > low)) [low, high] = [low - 1, high + 1];
  return { low: low - slack * (high - low), high: high + slack * (high - low) };
}

function ticks({ low, high }, wanted) {
  const raw = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw) ?? raw;
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) found.push(value);
  return found;
}

const label = (value) => String(Number(value.toPrecision(4)) || 0);
const scatter = (j) => (Math.abs(Math.sin(12.9898 * (j + 1))) * 43758.5453) % 1 - 0.5;

function line(pen, x0, y0, x1, y1) {
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.lineTo(x1, y1);
  pen.stroke();
}

function circle(pen, x, y, radius) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  return pen;
}
