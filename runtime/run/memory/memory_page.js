// Of the page of memory_body.html, after common.js. Its data: runtime/run/memory/memory_page.cpp; times in seconds since the step began.
const kHeight = 190, kAxis = 20;
const charts = [];
const millis = (s) => Number((1e3 * s).toPrecision(3)) + ' ms';

// ---- what stands above the charts -----------------------------------------------------------
$('about').textContent = 'Arrays and buffers are as planned, at the times of this step. Measured peaks are those of the counted allocators.';
for (const tier of data.tiers) {
  figure(bytesText(tier.planned), tier.name + ', planned peak');
  if (tier.measured > 0) figure(bytesText(tier.measured), tier.name + ', measured peak');
}
if (data.pinned > 0) figure(bytesText(data.pinned), 'pinned, measured');
if (data.resident_peak > 0) figure(bytesText(data.resident_peak), 'of the process, measured peak');

// ---- charts ---------------------------------------------------------------------------------
const timeOf = (chart, x) => (x - chart.left) / chart.width * data.end_s;

// The last point at or before a time.
const pointAt = (times, s) => Math.max(0, above(times, s) - 1);

const totalAt = (curve, i) => curve.layers.reduce((sum, layer) => sum + layer.bytes[i], 0);

// The highest point of a pixel: a short peak must not vanish.
function highest(curve, from, to) {
  let best = pointAt(curve.t, from);
  for (let i = best + 1; i < curve.t.length && curve.t[i] < to; ++i) {
    if (totalAt(curve, i) > totalAt(curve, best)) best = i;
  }
  return best;
}

function line(g, chart, y, colour, text) {
  g.strokeStyle = style.of(colour);
  g.beginPath(); g.moveTo(chart.left, Math.round(y) + 0.5); g.lineTo(chart.left + chart.width, Math.round(y) + 0.5); g.stroke();
  g.fillStyle = style.of(colour);
  g.textAlign = 'right';
  g.fillText(text, chart.left + chart.width - 4, y - 7);
}

function drawTier(chart) {
  const { tier } = chart, { curve } = tier;
  const g = begin(chart, kHeight);
  const bottom = kHeight - kAxis, top = 14;
  const near = tier.budget > 0 && tier.budget <= 2 * tier.planned;
  const most = Math.max(tier.planned, tier.measured, near ? tier.budget : 0) * 1.04 || 1;
  const yOf = (bytes) => bottom - bytes / most * (bottom - top);
  const unit = 2 ** Math.floor(Math.log2(most / 2));
  for (let y = 0; y <= most; y += unit) grid(g, chart, yOf(y), bytesText(y));
  const colours = curve.layers.map((layer) => style.of(layer.colour));
  for (let px = 0; px < chart.width; ++px) {
    const i = highest(curve, timeOf(chart, chart.left + px), timeOf(chart, chart.left + px + 1));
    let sum = 0;
    curve.layers.forEach((layer, l) => {
      if (!(layer.bytes[i] > 0)) return;
      g.fillStyle = colours[l];
      const y = yOf(sum + layer.bytes[i]);
      g.fillRect(chart.left + px, y, 1.02, yOf(sum) - y);
      sum += layer.bytes[i];
    });
  }
  if (tier.measured > 0) line(g, chart, yOf(tier.measured), 'cursor', 'measured peak ' + bytesText(tier.measured));
  if (near) line(g, chart, yOf(tier.budget), 'budget', 'budget ' + bytesText(tier.budget));
  g.fillStyle = style.of('dim');
  g.textAlign = 'center';
  for (let i = 0; i <= 4; ++i) g.fillText(millis(data.end_s * i / 4), chart.left + chart.width * i / 4 - (i === 4 ? 20 : 0), bottom + kAxis / 2);
}

function tellTier(chart, x, y, aloud) {
  const { curve } = chart.tier;
  const s = Math.min(data.end_s, Math.max(0, timeOf(chart, chart.left + x)));
  const i = pointAt(curve.t, s);
  const parts = curve.layers.filter((layer) => layer.bytes[i] > 0).sort((a, b) => b.bytes[i] - a.bytes[i]);
  const box = chart.canvas.getBoundingClientRect();
  show([chart.tier.name + ' at ' + millis(s) + ': ' + bytesText(totalAt(curve, i))].concat(parts.slice(0, 10).map((layer) => words(layer.name) + ' ' + bytesText(layer.bytes[i]))),
    box.left + chart.left + x, box.top + y, aloud);
}

for (const tier of data.tiers) {
  add($('plots'), 'h3', tier.name);
  const canvas = add($('plots'), 'canvas');
  canvas.tabIndex = 0;
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', tier.name + ' by tag over the step, at most ' + bytesText(tier.planned) + '. Arrow keys move in time.');
  const chart = { canvas, tier, at: 0 };
  charts.push(chart);
  canvas.addEventListener('pointermove', (event) => tellTier(chart, event.clientX - canvas.getBoundingClientRect().left - chart.left, 20, false));
  canvas.addEventListener('pointerleave', () => { $('tip').hidden = true; });
  canvas.addEventListener('blur', () => { $('tip').hidden = true; });
  canvas.addEventListener('keydown', (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    chart.at = Math.min(chart.width, Math.max(0, chart.at + by * chart.width / 50));
    tellTier(chart, chart.at, 20, true);
  });
  const keys = add($('plots'), 'div', null, 'keys');
  for (const layer of tier.curve.layers) key(keys, layer.colour, words(layer.name));
}
const redraw = () => charts.forEach(drawTier);
window.addEventListener('resize', redraw);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
redraw();

// ---- tables ---------------------------------------------------------------------------------
const some = (list) => (list.all > list.rows.length ? ', the largest ' + list.rows.length + ' of ' + list.all : '');
for (const tier of data.tiers) {
  if (tier.arrays.all > 0) {
    table('Long-lived arrays: ' + tier.name + some(tier.arrays), ['array', 'kind', 'tag', 'bytes'],
      tier.arrays.rows.map((row) => ({ cells: [row[0], row[1], words(row[2]), bytesText(row[3])] })), [1, 2]);
  }
  if (tier.buffers.all > 0) {
    table('Buffers of the step: ' + tier.name + some(tier.buffers), ['buffer', 'tag', 'bytes', 'place', 'born at', 'dies at'],
      tier.buffers.rows.map((row) => ({ cells: [row[0], words(row[1]), bytesText(row[2]), row[3] ? 'arena' : 'allocator', row[4], row[5] || 'lives on'] })), [1, 3, 4, 5]);
  }
}
