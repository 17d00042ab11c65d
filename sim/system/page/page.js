// SPDX-License-Identifier: Apache-2.0
// Draws the timelines of a layer: the hub's above, a way of software below, on one axis of time.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const USES = data.uses, SENT = 0, NOTHING = USES.length - 1;
const dark = matchMedia("(prefers-color-scheme: dark)");
const $ = (selector) => document.querySelector(selector);
const number = (value, digits = 0) => value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const micros = (cycles) => cycles * data.cycle_ns / 1000;
const time = (cycles, digits = 2) => `${number(micros(cycles), digits)} µs`;

// -- sums: how often each use was met up to any time ----------------------------------------------

for (const way of data.ways) {
  // Of each rank, and of all together in front: [use][bin] sums of all bins before.
  const sums = way.use.map((rank) => rank.map((bins) => {
    const sum = new Float64Array(way.bins + 1);
    for (let bin = 0; bin < way.bins; bin++) sum[bin + 1] = sum[bin] + (bins[bin] || 0);
    return sum;
  }));
  const all = USES.map((_, use) => {
    const sum = new Float64Array(way.bins + 1);
    for (const rank of sums) for (let bin = 0; bin <= way.bins; bin++) sum[bin] += rank[use][bin];
    return sum;
  });
  way.sums = [all, ...sums];
  const join = (lists) => [lists.flat().sort((a, b) => a - b), ...lists];
  way.usable = join(way.usable), way.answers = join(way.answers);
}

function sumTo(sum, at) {           // at: bins, with a part of the last
  const bin = Math.min(Math.max(Math.floor(at), 0), sum.length - 1);
  const next = Math.min(bin + 1, sum.length - 1);
  return sum[bin] + (sum[next] - sum[bin]) * Math.min(Math.max(at - bin, 0), 1);
}

// Link cycles by use of a strip (0: all ranks) from one time to another, and their total.
function between(way, strip, from, to) {
  const parts = way.sums[strip].map((sum) => sumTo(sum, to / way.bin) - sumTo(sum, from / way.bin));
  return { parts, total: parts.reduce((a, b) => a + b, 0) };
}

function upTo(cycles, at) {         // how many of the ordered cycles are over
  let low = 0, high = cycles.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (cycles[middle] <= at) low = middle + 1; else high = middle;
  }
  return low;
}

// -- state ----------------------------------------------------------------------------------------

const hub = data.ways[0];
const charts = [...document.querySelectorAll("figure")].map((figure) => ({
  figure, canvas: figure.querySelector("canvas"), caption: figure.querySelector("figcaption"), way: null,
}));
charts[0].way = hub;
charts[1].way = data.ways.find((way) => way.name === data.below) || null;
charts[1].figure.hidden = !charts[1].way;
const shown = () => charts.filter((chart) => chart.way);
const longest = () => Math.max(...shown().map((chart) => chart.way.layer)) * 1.015;
const view = { from: 0, to: longest() };
let marker = null;                  // {cycle, strip, chart} under the pointer, or moved by keys
let dragged = null;                 // {from, to} while a stretch is drawn
const whole = () => view.from === 0 && view.to >= longest();

function show(from, to) {
  const most = longest(), least = Math.min(most, 4 * hub.bin);
  const width = Math.min(Math.max(to - from, least), most);
  view.from = Math.min(Math.max(from, 0), most - width);
  view.to = view.from + width;
  draw();
}

function zoom(factor, around = (view.from + view.to) / 2) {
  show(around - (around - view.from) * factor, around + (view.to - around) * factor);
}

// -- drawing --------------------------------------------------------------------------------------

const LEFT = 64, RIGHT = 12, TOP = 4, ALL = 80, GAP = 3, AXIS = 38;
const rankHeight = () => Math.max(14, Math.min(21, 300 / data.ranks));
const place = (strip) => strip ? TOP + ALL + GAP + (strip - 1) * (rankHeight() + GAP) : TOP;
const high = (strip) => strip ? rankHeight() : ALL;
const bottom = () => place(data.ranks) + high(1);

function style(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
const colour = (use) => dark.matches ? USES[use].dark : USES[use].light;

function scale(canvas) {
  const width = canvas.clientWidth - LEFT - RIGHT;
  return {
    width,
    x: (cycle) => LEFT + (cycle - view.from) / (view.to - view.from) * width,
    cycle: (x) => view.from + (x - LEFT) / width * (view.to - view.from),
  };
}

function drawStrip(pen, chart, strip, at) {
  const { way } = chart, top = place(strip), height = high(strip), step = 1 / (devicePixelRatio || 1);
  const end = Math.min(at.x(way.layer), LEFT + at.width);
  for (let x = LEFT; x < end; x += step) {
    const { parts, total } = between(way, strip, at.cycle(x), at.cycle(x + step));
    if (!total) continue;
    let y = top + height;
    for (let use = 0; use < NOTHING; use++) {
      const part = parts[use] / total * height;
      if (part <= 0) continue;
      pen.fillStyle = colours[use];
      pen.fillRect(x, y - part, step, part);
      y -= part;
    }
    pen.fillStyle = colours[NOTHING];
    pen.fillRect(x, top, step, y - top);
  }
  drawShare(pen, way.usable[strip], [], top, height, at, end);
  drawShare(pen, way.answers[strip], [4, 3], top, height, at, end);
  pen.strokeStyle = style("--line");
  pen.strokeRect(LEFT - 0.5, top - 0.5, at.width + 1, height + 1);
  pen.fillStyle = style("--ink");
  pen.textAlign = "right", pen.textBaseline = "middle";
  pen.font = strip ? "12px system-ui, sans-serif" : "600 13px system-ui, sans-serif";
  pen.fillText(strip ? `rank ${strip - 1}` : "all links", LEFT - 8, top + height / 2);
  if (!strip) {
    pen.font = "11px system-ui, sans-serif", pen.fillStyle = style("--quiet");
    pen.fillText("100 %", LEFT - 8, top + 7), pen.fillText("0 %", LEFT - 8, top + height - 6);
  }
}

// A line of steps: which share of the cycles was over.
function drawShare(pen, cycles, dashes, top, height, at, end) {
  if (!cycles.length) return;
  for (const [line, width] of [[style("--paper"), 3.5], [style("--ink"), 1.5]]) {
    pen.beginPath();
    pen.setLineDash(dashes);
    for (let x = LEFT; x <= end; x++) {
      const y = top + height * (1 - upTo(cycles, at.cycle(x)) / cycles.length);
      if (x === LEFT) pen.moveTo(x, y); else pen.lineTo(x, y);
    }
    pen.strokeStyle = line, pen.lineWidth = width;
    pen.globalAlpha = line === style("--ink") ? 1 : 0.6;
    pen.stroke();
  }
  pen.globalAlpha = 1, pen.lineWidth = 1;
  pen.setLineDash([]);
}

// Gaps of all links together that are wide enough are called by their cause.
function drawGaps(pen, way, at) {
  const step = 4, end = Math.min(at.x(way.layer), LEFT + at.width);
  let begin = null, cause = 0;
  const close = (x) => {
    const text = USES[cause].words;
    pen.font = "600 12px system-ui, sans-serif";
    if (begin !== null && x - begin > pen.measureText(text).width + 14) {
      pen.textAlign = "center", pen.textBaseline = "middle";
      pen.lineWidth = 3.5, pen.strokeStyle = style("--paper"), pen.fillStyle = style("--ink");
      pen.strokeText(text, (begin + x) / 2, TOP + 13), pen.fillText(text, (begin + x) / 2, TOP + 13);
      pen.lineWidth = 1;
    }
    begin = null;
  };
  for (let x = LEFT; x < end; x += step) {
    const { parts, total } = between(way, 0, at.cycle(x), at.cycle(x + step));
    const idle = parts.slice(1), most = 1 + idle.indexOf(Math.max(...idle));
    const gap = total && parts[SENT] < 0.6 * total;
    if (begin !== null && (!gap || most !== cause)) close(x);
    if (gap && begin === null) begin = x, cause = most;
  }
  close(end);
}

function ticks(at) {
  const rough = micros(view.to - view.from) / Math.max(2, at.width / 110);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((each) => each >= rough);
  const digits = Math.max(0, -Math.floor(Math.log10(step)));
  const out = [];
  for (let n = Math.ceil(micros(view.from) / step); n * step <= micros(view.to); n++)
    out.push({ cycle: n * step * 1000 / data.cycle_ns, text: number(n * step, digits) });
  return out;
}

let colours = [];
function drawChart(chart) {
  const { canvas, way } = chart, sharp = devicePixelRatio || 1, height = bottom() + AXIS;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(canvas.clientWidth * sharp), canvas.height = Math.round(height * sharp);
  const pen = canvas.getContext("2d"), at = scale(canvas);
  pen.scale(sharp, sharp);
  for (let strip = 0; strip <= data.ranks; strip++) drawStrip(pen, chart, strip, at);
  drawGaps(pen, way, at);
  pen.fillStyle = style("--ink"), pen.strokeStyle = style("--quiet");
  pen.font = "12px system-ui, sans-serif", pen.textBaseline = "top", pen.textAlign = "center";
  for (const tick of ticks(at)) {
    const x = at.x(tick.cycle);
    pen.beginPath(), pen.moveTo(x, bottom() + 1), pen.lineTo(x, bottom() + 6), pen.stroke();
    pen.fillText(tick.text, x, bottom() + 8);
  }
  pen.fillStyle = style("--quiet");
  pen.fillText("time since the start of the layer, µs", LEFT + at.width / 2, bottom() + 23);
  drawEnd(pen, way, at);
  if (marker) drawLine(pen, at.x(marker.cycle), style("--ink"));
  if (dragged) {
    const from = at.x(Math.min(dragged.from, dragged.to)), to = at.x(Math.max(dragged.from, dragged.to));
    pen.fillStyle = style("--accent"), pen.globalAlpha = 0.25;
    pen.fillRect(from, TOP, to - from, bottom() - TOP);
    pen.globalAlpha = 1;
  }
}

function drawLine(pen, x, line) {
  if (x < LEFT) return;
  pen.strokeStyle = line, pen.beginPath(), pen.moveTo(x, TOP), pen.lineTo(x, bottom()), pen.stroke();
}

function drawEnd(pen, way, at) {
  const x = at.x(way.layer);
  if (x < LEFT || x > LEFT + at.width + 1) return;
  pen.lineWidth = 2;
  drawLine(pen, x, style("--ink"));
  pen.lineWidth = 1;
}

function caption(chart) {
  const { way } = chart;
  chart.caption.innerHTML = "";
  const name = document.createElement("b");
  name.textContent = way.title;
  chart.caption.append(name, ` – layer done after ${time(way.layer, 1)} (${number(way.layer)} cycles). ${way.line}.`);
  const use = between(way, 0, 0, way.bin * way.bins);
  chart.canvas.setAttribute("aria-label",
    `${way.title}: links sent ${number(100 * use.parts[SENT] / use.total, 1)} % of the layer's ${time(way.layer, 1)}`);
}

// -- the table of what is in view -----------------------------------------------------------------

function table() {
  const ways = shown().map((chart) => chart.way), head = $("#view thead tr"), body = $("#view tbody");
  head.querySelectorAll(".number").forEach((cell) => cell.remove());
  for (const way of ways) head.insertAdjacentHTML("beforeend", `<th scope="col" class="number">${way.title}</th>`);
  body.textContent = "";
  const sums = ways.map((way) => {      // whole bins, so that the whole layer's are those of report.json
    const from = Math.floor(view.from / way.bin) * way.bin, to = Math.ceil(view.to / way.bin) * way.bin;
    return between(way, 0, from, to);
  });
  USES.forEach((use, n) => {
    const row = body.insertRow();
    row.innerHTML = `<th scope="row"><i style="background:${colour(n)}"></i>${use.words}</th><td class="means">${use.means}</td>`;
    ways.forEach((way, column) => {
      const cell = row.insertCell(), { parts, total } = sums[column];
      cell.className = "number";
      cell.dataset.way = way.name, cell.dataset.use = use.name, cell.dataset.cycles = Math.round(parts[n]);
      cell.textContent = total ? `${number(100 * parts[n] / total, 1)} %` : "–";
    });
  });
  $("#span").textContent = whole() ? "the whole layer" : `${time(view.from)} to ${time(view.to)}`;
}

// -- what is under the marker ---------------------------------------------------------------------

function facts() {
  const { chart, strip, cycle } = marker, { way } = chart;
  if (cycle > way.layer) return { head: `${way.title}: ${time(cycle)}, the layer is over`, uses: [], work: "" };
  const bin = Math.floor(cycle / way.bin) * way.bin;
  const { parts, total } = between(way, strip, bin, bin + way.bin);
  const uses = parts.map((part, use) => ({ use, share: total ? 100 * part / total : 0 })).filter((each) => each.share >= 0.05);
  const done = (cycles) => `${number(upTo(cycles, cycle))} of ${number(cycles.length)}`;
  return {
    head: `${way.title}, ${strip ? `rank ${strip - 1}` : "all ranks"}: ${time(cycle)} (cycle ${number(cycle)})`,
    uses,
    work: `${way.name === "hub" ? "tiles ready" : "usable"} ${done(way.usable[strip])}, answers ${done(way.answers[strip])}`,
  };
}

function tell(x, y) {
  const tip = $("#tip");
  tip.hidden = !marker;
  if (!marker) return;
  const { head, uses, work } = facts();
  const text = uses.map(({ use, share }) => `${USES[use].words} ${number(share, 1)} %`);
  $("#told").textContent = [head, ...text, work].filter(Boolean).join("; ");
  tip.innerHTML = `<b></b>${uses.map(({ use }, n) => `<div><i style="background:${colour(use)}"></i>${text[n]}</div>`).join("")}<div></div>`;
  tip.firstChild.textContent = head, tip.lastChild.textContent = work;
  const width = tip.offsetWidth, right = x + 16 + width > document.documentElement.clientWidth;
  tip.style.left = `${scrollX + (right ? x - 16 - width : x + 16)}px`;
  tip.style.top = `${scrollY + y + 14}px`;
}

function draw() {
  colours = USES.map((_, use) => colour(use));
  shown().forEach(drawChart);
  table();
}

// -- pointer, keys, buttons -----------------------------------------------------------------------

function under(chart, event) {
  const box = chart.canvas.getBoundingClientRect(), y = event.clientY - box.top;
  let strip = 0;
  while (strip < data.ranks && y >= place(strip + 1)) strip++;
  const cycle = scale(chart.canvas).cycle(event.clientX - box.left);
  return { chart, strip, cycle: Math.round(Math.min(Math.max(cycle, view.from), view.to)) };
}

let waiting = false;
function soon() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false, shown().forEach(drawChart); });
}

for (const chart of charts) {
  chart.canvas.addEventListener("pointerdown", (event) => {
    if (event.button || event.pointerType === "touch") return;
    const { cycle } = under(chart, event);
    dragged = { from: cycle, to: cycle };
    chart.canvas.setPointerCapture(event.pointerId);
  });
  chart.canvas.addEventListener("pointermove", (event) => {
    marker = under(chart, event);
    if (dragged) dragged.to = marker.cycle;
    tell(event.clientX, event.clientY), soon();
  });
  chart.canvas.addEventListener("pointerup", () => {
    const stretch = dragged;
    dragged = null;
    if (stretch && Math.abs(stretch.to - stretch.from) > (view.to - view.from) / 100)
      show(Math.min(stretch.from, stretch.to), Math.max(stretch.from, stretch.to));
    else soon();
  });
  chart.canvas.addEventListener("pointerleave", () => { if (!dragged) marker = null, tell(), soon(); });
  chart.canvas.addEventListener("dblclick", () => show(0, longest()));
  chart.canvas.addEventListener("wheel", (event) => {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!event.ctrlKey && !event.metaKey && !sideways) return;
    event.preventDefault();
    if (sideways) move(event.deltaX / 1000); else zoom(1.0015 ** event.deltaY, under(chart, event).cycle);
  }, { passive: false });
}

function move(share) {
  const by = share * (view.to - view.from);
  show(view.from + by, view.to + by);
}

function moveMarker(by) {
  marker = marker || { chart: charts[0], strip: 0, cycle: view.from };
  const most = Math.min(marker.cycle + by * (view.to - view.from) / 100, view.to);
  marker = { ...marker, cycle: Math.round(Math.max(most, view.from)) };
  const box = marker.chart.canvas.getBoundingClientRect();
  tell(box.left + scale(marker.chart.canvas).x(marker.cycle), box.top + TOP + ALL), soon();
}

const ORDERS = {
  in: () => zoom(0.5), out: () => zoom(2), left: () => move(-0.25), right: () => move(0.25), all: () => show(0, longest()),
};
const KEYS = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "all", Home: "all", Escape: "all" };
$("#charts").addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.shiftKey && event.key.startsWith("Arrow")) moveMarker({ ArrowLeft: -1, ArrowRight: 1 }[event.key] || 0);
  else if (KEYS[event.key]) ORDERS[KEYS[event.key]]();
  else return;
  event.preventDefault();
});
document.querySelectorAll("button[data-do]").forEach((button) => button.addEventListener("click", ORDERS[button.dataset.do]));
const choice = $("#below");
if (choice) choice.addEventListener("change", () => {
  charts[1].way = data.ways.find((way) => way.name === choice.value);
  caption(charts[1]), show(0, longest());
});
addEventListener("resize", draw);
dark.addEventListener("change", draw);

shown().forEach(caption);
draw();
document.body.dataset.drawn = "yes";
