#include "verbs/support/run_page_template.h"

namespace mslua {

const char kRunPageHead[] = R"page(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>mslua report</title>
<meta http-equiv="Content-Security-Policy"
content="default-src 'none'; img-src data:; script-src 'unsafe-inline'; style-src 'unsafe-inline'">
<link rel="icon" href="data:,">
<style>
body { font: 14px sans-serif; margin: 1em 2em; color: #222 }
h2 { margin: 1.5em 0 .4em; font-size: 17px } h3 { font-size: 14px; margin: .8em 0 .2em }
table { border-collapse: collapse } td, th { border: 1px solid #ccc; padding: 2px 8px }
td, th { text-align: left; vertical-align: top }
td { font-family: monospace; white-space: pre-wrap; overflow-wrap: anywhere; max-width: 50em }
td.short { white-space: pre }
#charts { display: flex; flex-wrap: wrap; gap: 1em } canvas { width: 560px; height: 280px; cursor: crosshair }
.shown { display: flex; flex-wrap: wrap; gap: .8em } figure { margin: 0; font-size: 12px; max-width: 16em }
figure img { image-rendering: pixelated; min-width: 96px; max-width: 100% } .wide { max-width: 100% }
.heat { width: 280px; max-width: 280px } .shown canvas { width: 280px; height: 130px; cursor: default }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; max-width: 60em }
#controls label { margin-right: 1.5em } .swatch { display: inline-block; width: 1em; height: .7em; margin-right: .5em }
</style></head><body>
<h1>mslua report</h1>
<div id="runs"></div>
<h2>Curves</h2>
<div id="controls">
<label>x <select id="x"><option>step</option><option>time</option><option>samples</option></select></label>
<label><input type="checkbox" id="log"> logarithmic</label>
<label>smoothing <input type="range" id="smooth" min="0" max="0.99" step="0.01" value="0">
<span id="amount">0</span></label>
<span>drag to zoom, double click to see all</span>
</div>
<div id="charts"></div>
<div id="tables"></div>
<script type="application/json" id="data">)page";

const char kRunPageTail[] = R"page(</script>
<script>
"use strict";
const runs = JSON.parse(document.getElementById("data").textContent);
const COLORS = ["#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#e377c2", "#17becf", "#7f7f7f"];
const color = i => COLORS[i % COLORS.length];
const at = id => document.getElementById(id);
function add(parent, tag, text) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  parent.appendChild(e);
  return e;
}
function table(parent, titles, rows) {
  const t = add(parent, "table"), head = add(t, "tr");
  for (const title of titles) add(head, "th", title);
  // Beside a long text, short ones stay whole.
  for (const row of rows) {
    const r = add(t, "tr");
    for (const cell of row) add(r, "td", cell).className = String(cell).length < 32 ? "short" : "";
  }
  return t;
}
const show = v => v === undefined || v === null ? "-" : typeof v === "number" ? String(+v.toPrecision(5)) : String(v);
const last = c => c ? c[1][c[1].length - 1] : undefined;

// The x of a step: by time and samples between the marks that the run has recorded.
function place(run, kind, step) {
  if (kind === "step") return step;
  const marks = run[kind];
  if (!marks) return NaN;
  const [s, v] = marks;
  let low = 0, high = s.length - 1;
  if (high < 1) return v[0];
  while (high - low > 1) { const middle = (low + high) >> 1; if (s[middle] <= step) low = middle; else high = middle; }
  return v[low] + (v[high] - v[low]) * (step - s[low]) / (s[high] - s[low]);
}
function points(run, key, kind, smooth) {
  const curve = run.curves[key], out = [];
  if (!curve) return out;
  let mean = 0, weight = 0;
  curve[0].forEach((step, i) => {
    mean = smooth * mean + (1 - smooth) * curve[1][i];
    weight = smooth * weight + (1 - smooth);
    const x = place(run, kind, step);
    if (Number.isFinite(x)) out.push([x, mean / weight]);
  });
  return out;
}
function ticks(low, high, log) {
  const out = [];
  if (log) {
    const least = Math.floor(low), most = Math.ceil(high);
    for (let e = least; e <= most; e += Math.max(1, Math.ceil((most - least) / 6)))
      for (const m of most - least > 3 ? [1] : [1, 2, 5]) {
        const v = e + Math.log10(m);
        if (v >= low - 1e-9 && v <= high + 1e-9) out.push(v);
      }
    return out;
  }
  const raw = (high - low) / 5, unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(m => m * unit).find(s => s >= raw);
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) out.push(i * step);
  return out;
}
function chart(key) {
  const box = add(at("charts"), "div");
  add(box, "h3", key);
  const canvas = add(box, "canvas"), g = canvas.getContext("2d"), W = 560, H = 280;
  const scale = window.devicePixelRatio || 1;
  canvas.width = W * scale; canvas.height = H * scale; g.scale(scale, scale);
  const L = 64, R = 10, T = 8, B = 24;
  let zoom = null, drag = null, view = null, now = null, kind = "step";
  const px = x => L + (x - view[0]) / (view[1] - view[0]) * (W - L - R);
  const py = y => H - B - (y - view[2]) / (view[3] - view[2]) * (H - T - B);
  function draw() {
    if (at("x").value !== kind) { kind = at("x").value; zoom = null; }
    const log = at("log").checked, smooth = +at("smooth").value;
    const lines = runs.map(r => points(r, key, kind, smooth)
      .filter(p => !log || p[1] > 0).map(p => log ? [p[0], Math.log10(p[1])] : p));
    let v = [Infinity, -Infinity, Infinity, -Infinity];
    for (const line of lines) for (const [x, y] of line) {
      if (zoom && (x < zoom[0] || x > zoom[1])) continue;
      v = [Math.min(v[0], x), Math.max(v[1], x), Math.min(v[2], y), Math.max(v[3], y)];
    }
    g.clearRect(0, 0, W, H);
    g.font = "11px sans-serif"; g.fillStyle = "#444";
    view = null;
    if (v[0] > v[1]) { g.fillText("no value on these axes", L, H / 2); return; }
    if (zoom) { v[0] = zoom[0]; v[1] = zoom[1]; }
    for (const i of [0, 2]) if (v[i] === v[i + 1]) { const d = Math.abs(v[i]) / 10 || 1; v[i] -= d; v[i + 1] += d; }
    view = v;
    g.strokeStyle = "#e4e4e4"; g.lineWidth = 1; g.textAlign = "center";
    for (const x of ticks(v[0], v[1], false)) {
      g.beginPath(); g.moveTo(px(x), T); g.lineTo(px(x), H - B); g.stroke();
      g.fillText(show(x) + (kind === "time" ? " s" : ""), px(x), H - B + 14);
    }
    g.textAlign = "right";
    for (const y of ticks(v[2], v[3], log)) {
      g.beginPath(); g.moveTo(L, py(y)); g.lineTo(W - R, py(y)); g.stroke();
      g.fillText(show(log ? 10 ** y : y), L - 4, py(y) + 4);
    }
    g.save(); g.beginPath(); g.rect(L - 3, T - 3, W - L - R + 6, H - T - B + 6); g.clip();
    g.lineWidth = 1.4;
    lines.forEach((line, i) => {
      g.strokeStyle = g.fillStyle = color(i);
      g.beginPath();
      for (const [x, y] of line) g.lineTo(px(x), py(y));
      g.stroke();
      const r = line.length === 1 ? 3 : 1.5;  // one value alone has no line
      if (line.length < 60) for (const [x, y] of line) g.fillRect(px(x) - r, py(y) - r, 2 * r, 2 * r);
    });
    g.restore();
    if (drag === null) return;
    g.fillStyle = "rgba(0,0,80,.12)";
    g.fillRect(Math.min(drag, now), T, Math.abs(now - drag), H - T - B);
  }
  const mouse = e => Math.min(W - R, Math.max(L, e.clientX - canvas.getBoundingClientRect().left));
  canvas.onmousedown = e => { if (view) drag = now = mouse(e); };
  canvas.onmousemove = e => { if (drag !== null) { now = mouse(e); draw(); } };
  canvas.onmouseleave = () => { drag = null; draw(); };
  canvas.onmouseup = e => {
    if (drag === null || !view) return;
    const x = p => view[0] + (p - L) / (W - L - R) * (view[1] - view[0]);
    const a = x(Math.min(drag, mouse(e))), b = x(Math.max(drag, mouse(e)));
    if (Math.abs(mouse(e) - drag) > 4) zoom = [a, b];
    drag = null; draw();
  };
  canvas.ondblclick = () => { zoom = null; draw(); };
  return draw;
}

const keys = [...new Set(runs.flatMap(r => Object.keys(r.curves)))].sort((a, b) => (b === "loss") - (a === "loss"));
const titles = ["run", "recipe", "started", "state", "steps", "best", "last loss"];
const summary = table(at("runs"), titles, runs.map(r => [r.name, r.recipe || "-",
  r.started ? new Date(1000 * r.started).toLocaleString() : "-", r.cause ? r.state + ": " + r.cause : r.state, r.steps,
  r.best_key ? r.best_key + " " + show(r.best) : "-", show(last(r.curves.loss))]));
runs.forEach((r, i) => {
  const cell = summary.rows[i + 1].cells[0], s = document.createElement("span");
  s.className = "swatch"; s.style.background = color(i); cell.prepend(s);
});
for (const r of runs) for (const [key, n] of Object.entries(r.undefined))
  add(at("runs"), "p", r.name + ": " + n + " values of " + key + " are NaN or infinite and are left out");
if (keys.length === 0) add(at("charts"), "p", "No run has recorded a number yet.");
const charts = keys.map(chart);
function drawAll() { at("amount").textContent = at("smooth").value; charts.forEach(d => d()); }
for (const id of ["x", "log", "smooth"]) at(id).oninput = drawAll;
drawAll();

const tables = at("tables");
if (runs.length > 1) {
  add(tables, "h2", "Differences");
  const of = runs.map(r => Array.isArray(r.settings) ? new Map(r.settings.map(s => [s[0], s[1]])) : new Map());
  const names = [...new Set(of.flatMap(m => [...m.keys()]))].sort();
  const rows = names.map(n => [n, ...of.map(m => show(m.get(n)))]).filter(r => r.slice(2).some(v => v !== r[1]));
  if (rows.length === 0) add(tables, "p", "The runs have the same parameters.");
  const finals = keys.map(k => ["final " + k, ...runs.map(r => show(last(r.curves[k])))]);
  table(tables, ["", ...runs.map(r => r.name)], rows.concat(finals));
}
function section(title, titles, rows_of) {
  add(tables, "h2", title);
  for (const r of runs) {
    if (runs.length > 1) add(tables, "h3", r.name);
    const rows = rows_of(r);
    if (Array.isArray(rows)) table(tables, titles, rows); else add(tables, "p", rows);
  }
}
// A confusion matrix: a row for each class of the labels, darker cells for larger shares of the row.
function matrix(name, counts, labels, step) {
  const label = i => labels[i] === undefined ? String(i) : labels[i];
  add(tables, "h3", name + " at step " + step + ": rows are labels, columns what was predicted");
  const t = add(tables, "table"), head = add(t, "tr");
  add(head, "th", "");
  counts.forEach((_, i) => add(head, "th", label(i)));
  counts.forEach((row, i) => {
    const r = add(t, "tr"), sum = row.reduce((a, b) => a + b, 0);
    add(r, "th", label(i));
    row.forEach((v, j) => {
      const share = sum > 0 ? v / sum : 0;
      add(r, "td", show(v)).style.background = `rgba(${i === j ? "44,160,44" : "214,39,40"},${share})`;
    });
  });
}
add(tables, "h2", "Evaluation");
for (const r of runs) {
  if (runs.length > 1) add(tables, "h3", r.name);
  if (typeof r.matrices === "string") { add(tables, "p", r.matrices); continue; }
  const labels = Array.isArray(r.matrices.labels) ? r.matrices.labels : [];
  for (const [name, counts] of Object.entries(r.matrices.matrices))
    if (Array.isArray(counts) && counts.every(Array.isArray)) matrix(name, counts, labels, r.matrices.step);
}
// A picture or text with what is known of it.
function shown(parent, item, lines) {
  const figure = add(parent, "figure");
  if (item.picture) add(figure, "img").src = "data:image/png;base64," + item.picture;
  else if (item.text !== undefined) { figure.className = "wide"; add(figure, "pre", item.text); }
  else if (item.values) add(figure, "pre", item.values.map(show).join(" "));
  else add(figure, "pre", item.file + " is not shown: the page would be too large, or the file is gone");
  for (const line of lines) add(figure, "div", line);
}
function worst(r) {
  const labels = Array.isArray(r.worst.labels) ? r.worst.labels : [];
  const label = i => labels[i] === undefined ? show(i) : labels[i];
  add(tables, "h3", "The worst samples at step " + r.worst.step);
  const box = add(tables, "div");
  box.className = "shown";
  for (const s of r.worst.samples) {
    const lines = [];
    if (s.prediction !== undefined)
      lines.push((s.label === undefined ? "" : label(s.label) + ", taken for ") + label(s.prediction) + " (" +
        (100 * s.confidence).toFixed(1) + "%)");
    else if (s.label !== undefined) lines.push("label " + label(s.label));
    if (s.loss !== undefined) lines.push("loss " + (s.loss === null ? "NaN or infinite" : show(s.loss)));
    lines.push(s.sample);
    shown(box, s, lines);
  }
}
for (const r of runs) {
  if (runs.length > 1) add(tables, "h3", r.name);
  if (typeof r.worst === "string") add(tables, "p", "Worst samples: " + r.worst); else worst(r);
}
if (runs.some(r => r.pictures.length + r.texts.length > 0)) add(tables, "h2", "Pictures and texts");
for (const r of runs) {
  const items = r.pictures.concat(r.texts);
  if (items.length === 0) continue;
  if (runs.length > 1) add(tables, "h3", r.name);
  const box = add(tables, "div");
  box.className = "shown";
  for (const i of items) {
    shown(box, i, [i.name + (i.epoch === undefined ? " at step " + i.step : " after epoch " + i.epoch)]);
    if (i.picture) box.lastChild.className = "wide";
  }
}
// Histograms over the run: a column for each, darker where more values are.
function heat(parent, name, list) {
  const some = list.filter(h => h.count > 0), newest = list[list.length - 1];
  const figure = add(parent, "figure"), W = 280, H = 130;
  figure.className = "heat";
  add(figure, "div", name);
  const canvas = add(figure, "canvas"), g = canvas.getContext("2d");
  canvas.width = W; canvas.height = H;
  const low = Math.min(...some.map(h => h.low)), high = Math.max(...some.map(h => h.high));
  const y = v => high > low ? (high - v) / (high - low) * H : H / 2;
  some.forEach((h, i) => {
    const most = Math.max(...h.counts), x = i * W / some.length, n = h.counts.length;
    h.counts.forEach((c, k) => {
      if (c === 0) return;
      const top = y(h.low + (h.high - h.low) * (k + 1) / n), bottom = y(h.low + (h.high - h.low) * k / n);
      g.fillStyle = `rgba(31,119,180,${0.08 + 0.92 * c / most})`;
      g.fillRect(x, top, Math.max(1, W / some.length), Math.max(1, bottom - top));
    });
  });
  add(figure, "div", "steps " + list[0].step + " to " + newest.step + ", values " + show(low) + " to " + show(high));
  add(figure, "div", "newest: mean " + show(newest.mean) + ", std " + show(newest.std) +
    (newest.nan + newest.infinite > 0 ? ", " + newest.nan + " NaN, " + newest.infinite + " infinite" : ""));
}
if (runs.some(r => Object.keys(r.histograms).length > 0)) add(tables, "h2", "Histograms");
for (const r of runs) {
  const names = Object.keys(r.histograms);
  if (names.length === 0) continue;
  if (runs.length > 1) add(tables, "h3", r.name);
  const box = add(tables, "div");
  box.className = "shown";
  for (const name of names) heat(box, name, r.histograms[name]);
}
section("Time by operator", ["operator", "kernel", "calls a step", "ms a step", "share"],
  r => Array.isArray(r.operators) ? r.operators.map(o => o.map(show)) : r.operators);
section("What was set", ["name", "value", "from"], r => r.settings);
section("Tensors of the newest checkpoint", ["name", "type", "shape"],
  r => Array.isArray(r.tensors) ? r.tensors.map(t => [t[0], t[1], JSON.stringify(t[2])]) : r.tensors);
section("Interventions", ["what a user did while it ran"],
  r => r.events.length ? r.events.map(e => [JSON.stringify(e)]) : "None.");
</script></body></html>
)page";

}  // namespace mslua
