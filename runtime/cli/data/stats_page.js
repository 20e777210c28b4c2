// Of the page of stats_body.html, after common.js. Its data: stats_page_json (runtime/data/stats/data_stats.hpp).
const share = (part, whole) => (whole > 0 ? Number((100 * part / whole).toPrecision(3)) : 0) + ' %';
const kHeight = 200, kAxis = 20;
const charts = [];

// ---- what stands above the charts -----------------------------------------------------------
$('about').textContent = (data.tokenizer ? 'Tokenizer ' + data.tokenizer + '.' : 'Token ids without a tokenizer.') +
  (data.left_out > 0 ? ' ' + data.left_out + ' files without text were left out.' : '');
figure(countText(data.tokens), 'tokens');
figure(countText(data.documents), 'documents');
figure(digits(data.lengths.mean), 'tokens of a document, mean');
figure(countText(data.lengths.quantiles.find((q) => q.share === 0.5).tokens), 'tokens of a document, median');
if (data.text_tokens > 0) {
  figure(bytesText(data.text_bytes), 'text');
  figure(digits(data.text_bytes / data.text_tokens), 'bytes of a token');
}
figure(countText(data.distinct_ids) + (data.vocabulary ? ' of ' + countText(data.vocabulary) : ''), 'ids occur');
if (data.tokenizer) {
  figure(share(data.unknown_tokens, data.tokens), 'unknown tokens');
  figure(share(data.byte_fallback_tokens, data.tokens), 'byte-fallback tokens');
}
if (data.outside_vocabulary > 0) figure(countText(data.outside_vocabulary), 'tokens outside the vocabulary');

// ---- charts ---------------------------------------------------------------------------------

// Bars of equal width. `values`: one each; `names`: below, `lines(i)`: in the tooltip.
function drawBars(chart) {
  const g = begin(chart, kHeight);
  const bottom = kHeight - kAxis, top = 10;
  const most = Math.max(...chart.values, 1);
  for (let i = 0; i <= 4; ++i) grid(g, chart, bottom - i / 4 * (bottom - top), countText(most * i / 4));
  const width = chart.width / chart.values.length;
  const every = Math.ceil(44 / width);
  chart.values.forEach((value, i) => {
    const x = chart.left + i * width, height = value / most * (bottom - top);
    g.fillStyle = style.of(chart.colour);
    g.globalAlpha = chart.selected === i ? 0.7 : 1;
    g.fillRect(x + 1, bottom - height, Math.max(1, width - 2), height);
    g.globalAlpha = 1;
    if (i % every !== 0) return;
    g.fillStyle = style.of('dim');
    g.textAlign = 'center';
    g.fillText(chart.names[i], x + width / 2, bottom + kAxis / 2);
  });
}

// Both axes are logarithmic.
function drawRanks(chart) {
  const g = begin(chart, kHeight);
  const bottom = kHeight - kAxis, top = 10;
  const { rank, tokens } = data.ranks;
  const wide = Math.max(Math.log10(rank[rank.length - 1]), 1e-9), high = Math.max(Math.log10(tokens[0]), 1e-9);
  const xOf = (r) => chart.left + Math.log10(r) / wide * chart.width;
  const yOf = (n) => bottom - Math.log10(n) / high * (bottom - top);
  for (let power = 0; power <= high; ++power) grid(g, chart, yOf(10 ** power), countText(10 ** power));
  g.textAlign = 'center';
  for (let power = 0; power <= wide; ++power) g.fillText(countText(10 ** power), Math.min(xOf(10 ** power), chart.left + chart.width - 10), bottom + kAxis / 2);
  g.strokeStyle = style.of(chart.colour);
  g.lineWidth = 2;
  g.beginPath();
  rank.forEach((r, i) => (i === 0 ? g.moveTo(xOf(r), yOf(tokens[i])) : g.lineTo(xOf(r), yOf(tokens[i]))));
  g.stroke();
  g.lineWidth = 1;
  if (chart.selected < 0) return;
  g.fillStyle = style.of('cursor');
  g.beginPath(); g.arc(xOf(rank[chart.selected]), yOf(tokens[chart.selected]), 4, 0, 7); g.fill();
}

// The index of the value under x.
const barAt = (chart, x) => Math.floor((x - chart.left) / chart.width * chart.values.length);
function rankAt(chart, x) {
  const { rank } = data.ranks;
  const wanted = 10 ** ((x - chart.left) / chart.width * Math.log10(rank[rank.length - 1]));
  let best = 0;
  rank.forEach((r, i) => { if (Math.abs(Math.log(r / wanted)) < Math.abs(Math.log(rank[best] / wanted))) best = i; });
  return best;
}

function select(chart, i, x, y, aloud) {
  chart.selected = Math.min(Math.max(i, 0), chart.values.length - 1);
  chart.draw(chart);
  show(chart.lines(chart.selected), x, y, aloud);
}
function leave(chart) {
  chart.selected = -1;
  $('tip').hidden = true;
  chart.draw(chart);
}

function plot(title, chart) {
  add($('plots'), 'h2', title);
  chart.canvas = add($('plots'), 'canvas');
  chart.selected = -1;
  chart.canvas.tabIndex = 0;
  chart.canvas.setAttribute('role', 'img');
  chart.canvas.setAttribute('aria-label', title + '; arrow keys go from value to value');
  chart.canvas.addEventListener('pointermove', (event) => {
    select(chart, chart.find(chart, event.offsetX), event.clientX, event.clientY, false);
  });
  chart.canvas.addEventListener('pointerleave', () => leave(chart));
  chart.canvas.addEventListener('blur', () => leave(chart));
  chart.canvas.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const box = chart.canvas.getBoundingClientRect();
    select(chart, chart.selected + step, box.left + chart.left, box.top, true);
  });
  charts.push(chart);
}

const octaves = data.lengths.histogram;
const between = (o) => (o.to > o.from ? o.from + ' to ' + o.to : String(o.from)) + ' tokens';
for (const [key, title, colour] of [['documents', 'Documents by length', 'c0'], ['tokens', 'Tokens by the length of their document', 'c6']]) {
  plot(title, { draw: drawBars, find: barAt, colour, values: octaves.map((o) => o[key]), names: octaves.map((o) => countText(o.from)),
    lines: (i) => [between(octaves[i]), countText(octaves[i].documents) + ' documents, ' + share(octaves[i].documents, data.documents),
      countText(octaves[i].tokens) + ' tokens, ' + share(octaves[i].tokens, data.tokens)] });
}
if (data.ranks.rank.length > 0) {
  plot('Tokens of the ids by rank', { draw: drawRanks, find: rankAt, colour: 'c4', values: data.ranks.tokens,
    lines: (i) => ['rank ' + data.ranks.rank[i], countText(data.ranks.tokens[i]) + ' tokens, ' + share(data.ranks.tokens[i], data.tokens)] });
}

// ---- tables ---------------------------------------------------------------------------------
table('Tokens of a document', ['share of the documents', 'at most'], [{ cells: ['least', String(data.lengths.least)] }]
  .concat(data.lengths.quantiles.map((q) => ({ cells: [Number((100 * q.share).toPrecision(3)) + ' %', String(q.tokens)] })))
  .concat([{ cells: ['most', String(data.lengths.most)] }]));
table('Most frequent tokens', ['id', 'tokens', 'share', 'text'], data.most_frequent.map((t) => ({ code: 3,
  cells: [String(t.id), countText(t.tokens), share(t.tokens, data.tokens), t.text || ''] })), [3]);

const redraw = () => charts.forEach((chart) => chart.draw(chart));
window.addEventListener('resize', redraw);
window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
redraw();
