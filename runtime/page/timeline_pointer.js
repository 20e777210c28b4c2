// After timeline.js: pointer, keyboard and tooltips.
// ---- the text of an operation or an instant ----------------------------------------------------
const shortName = (bar) => {
  if (bars.count[bar] > 1) return bars.count[bar] + ' operations';
  if (drawn.names) return drawn.names[bar];
  const unit = bars.unit[bar];
  return drawn.kinds[bars.kind[bar]].name + (unit >= 0 ? ' ' + (drawn.units[unit] || 'unit ' + unit) : '');
};
function barLines(bar) {
  const lines = [shortName(bar)];
  if (bars.count[bar] > 1) {
    lines.push('mostly ' + (drawn.names ? drawn.names[bar] : drawn.kinds[bars.kind[bar]].name) + ', at work ' + secondsText(at(bars.busy[bar])) + ' of ' + secondsText(at(bars.length[bar])));
  } else {
    lines.push(secondsText(at(bars.length[bar])));
    for (const [name, list] of [['micro-batch', bars.batch], ['group', bars.group], ['bucket', bars.bucket], ['chunk', bars.chunk]]) {
      if (list && list[bar] >= 0) lines.push(name + ' ' + list[bar]);
    }
  }
  if (bars.bytes[bar] > 0) lines.push(bytesText(bars.bytes[bar]) + (drawn.rows[bars.row[bar]].wire ? ' sent' : ' moved'));
  lines.push(drawn.rows[bars.row[bar]].name + ', from ' + secondsText(at(bars.begin[bar])));
  return lines;
}
function memoryLines(tier, from, to) {
  const i = highest(tier, from, to);
  if (i < 0) return [tier.name, 'nothing yet'];
  const shares = tier.layers.map((layer) => [layer.name, layer.bytes[i]]).filter((s) => s[1] > 0);
  shares.sort((a, b) => b[1] - a[1]);
  return [tier.name + ' ' + bytesText(tier.total[i]) + ' at ' + secondsText(at(Math.max(0, tier.t[i])))]
    .concat(shares.slice(0, 8).map((s) => words(s[0]) + ' ' + bytesText(s[1])));
}
const hide = () => { $('tip').hidden = true; view.cursor = null; redraw(); };

function barAt(chart, x, y) {
  const r = Math.floor((y - 2) / kRow);
  if (r < 0 || r >= drawn.rows.length || x < chart.left) return -1;
  const row = drawn.rows[r];
  const tick = tickOf(chart, x);
  const slack = (view.b - view.a) / chart.width * 2;
  let best = -1;
  for (let i = Math.max(0, above(row.begins, tick - slack) - 1); i < row.bars.length && row.begins[i] <= tick + slack; ++i) {
    const bar = row.bars[i];
    if (bars.begin[bar] + bars.length[bar] < tick - slack) continue;
    if (best < 0 || Math.abs(bars.begin[bar] + bars.length[bar] / 2 - tick) < Math.abs(bars.begin[best] + bars.length[best] / 2 - tick)) best = bar;
  }
  return best;
}

function hover(chart, x, y, event) {
  view.cursor = Math.min(Math.max(tickOf(chart, x), 0), drawn.ticks);
  if (chart.tier) {
    const pixel = (view.b - view.a) / chart.width;
    show(memoryLines(chart.tier, view.cursor - pixel / 2, view.cursor + pixel / 2), event.clientX, event.clientY);
  } else {
    view.selected = barAt(chart, x, y);
    if (view.selected >= 0) show(barLines(view.selected), event.clientX, event.clientY); else $('tip').hidden = true;
  }
  redraw();
}

function select(chart, bar) {
  view.selected = bar;
  const from = bars.begin[bar], to = from + bars.length[bar];
  if (from < view.a || to > view.b) {
    const length = Math.max(view.b - view.a, 2 * (to - from));
    look((from + to - length) / 2, (from + to + length) / 2);
  }
  view.cursor = from;
  const box = chart.canvas.getBoundingClientRect();
  show(barLines(bar), box.left + Math.max(chart.left, xOf(chart, from)), box.top + (bars.row[bar] + 1) * kRow, true);
  redraw();
}

function moveSelection(chart, key) {
  let r = view.selected >= 0 ? bars.row[view.selected] : 0;
  if (view.selected < 0) return select(chart, drawn.rows[r].bars[Math.max(0, above(drawn.rows[r].begins, view.a) - 1)]);
  if (key === 'ArrowUp' || key === 'ArrowDown') {
    r = Math.min(drawn.rows.length - 1, Math.max(0, r + (key === 'ArrowUp' ? -1 : 1)));
    return select(chart, drawn.rows[r].bars[Math.max(0, above(drawn.rows[r].begins, bars.begin[view.selected]) - 1)]);
  }
  const list = drawn.rows[r].bars;
  const place = list.indexOf(view.selected) + (key === 'ArrowLeft' ? -1 : 1);
  return select(chart, list[Math.min(list.length - 1, Math.max(0, place))]);
}

function moveCursor(chart, tick) {
  view.cursor = Math.min(drawn.ticks, Math.max(0, tick));
  if (view.cursor < view.a || view.cursor > view.b) look(view.cursor - (view.b - view.a) / 2, view.cursor + (view.b - view.a) / 2);
  const box = chart.canvas.getBoundingClientRect();
  const pixel = (view.b - view.a) / chart.width;
  show(memoryLines(chart.tier, view.cursor - pixel / 2, view.cursor + pixel / 2), box.left + xOf(chart, view.cursor), box.top + 30, true);
  redraw();
}

function onKey(chart, event) {
  const key = event.key;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const centre = view.cursor === null ? undefined : view.cursor;
  if (key === '+' || key === '=') zoom(0.5, centre);
  else if (key === '-') zoom(2, centre);
  else if (key === '0') look(0, drawn.ticks);
  else if (key === 'Escape') hide();
  else if (key === 'p' && chart.tier) moveCursor(chart, chart.tier.t[peakOf(chart.tier)]);
  else if (key.startsWith('Arrow') && !chart.tier) moveSelection(chart, key);
  else if ((key === 'ArrowLeft' || key === 'ArrowRight') && chart.tier) {
    const step = (view.b - view.a) / 100 * (key === 'ArrowLeft' ? -1 : 1);
    moveCursor(chart, (view.cursor === null ? view.a : view.cursor) + step);
  } else return;
  event.preventDefault();
}

function listen(chart) {
  const canvas = chart.canvas;
  const fingers = new Map();
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener('pointerdown', (event) => {
    fingers.set(event.pointerId, event.clientX);
    canvas.setPointerCapture(event.pointerId);
    const [x, y] = place(event);
    hover(chart, x, y, event);
  });
  canvas.addEventListener('pointermove', (event) => {
    const [x, y] = place(event);
    if (!fingers.has(event.pointerId)) { hover(chart, x, y, event); return; }
    const before = fingers.get(event.pointerId);
    const others = [...fingers].filter(([id]) => id !== event.pointerId);
    fingers.set(event.pointerId, event.clientX);
    if (others.length === 1) {
      const fixed = others[0][1];
      const was = Math.abs(before - fixed), now = Math.abs(event.clientX - fixed);
      if (was > 4 && now > 4) zoom(was / now, tickOf(chart, fixed - canvas.getBoundingClientRect().left));
    } else if (before !== event.clientX) {
      const shift = (before - event.clientX) / chart.width * (view.b - view.a);
      look(view.a + shift, view.b + shift);
      $('tip').hidden = true;
    }
  });
  for (const name of ['pointerup', 'pointercancel']) {
    canvas.addEventListener(name, (event) => fingers.delete(event.pointerId));
  }
  canvas.addEventListener('pointerleave', hide);
  canvas.addEventListener('blur', hide);
  canvas.addEventListener('dblclick', (event) => zoom(0.5, tickOf(chart, place(event)[0])));
  canvas.addEventListener('keydown', (event) => onKey(chart, event));
  canvas.addEventListener('wheel', (event) => {
    const [x] = place(event);
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoom(Math.exp(event.deltaY * 0.002), tickOf(chart, x));
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      const shift = event.deltaX / chart.width * (view.b - view.a);
      look(view.a + shift, view.b + shift);
    }
  }, { passive: false });
}

function addChart(title, label, draw, tier) {
  add($('plots'), 'h3', title);
  const canvas = add($('plots'), 'canvas');
  canvas.tabIndex = 0;
  canvas.setAttribute('role', 'application');
  canvas.setAttribute('aria-label', label);
  const chart = { canvas, draw, tier };
  views.push(chart);
  listen(chart);
  return chart;
}
function makeCharts() {
  for (const tier of drawn.tiers) {
    tier.total = tier.t.map((_, i) => tier.layers.reduce((sum, layer) => sum + layer.bytes[i], 0));
    addChart(tier.name + ' memory of a rank: peak ' + bytesText(tier.peak) + (tier.budget > 0 ? ', budget ' + bytesText(tier.budget) : ', no budget'),
      tier.name + ' memory over the step; arrow keys move along it, p goes to the peak', drawMemory, tier);
    const keys = add($('plots'), 'div', null, 'keys');
    for (const layer of tier.layers) key(keys, layer.colour, words(layer.name));
  }
  drawn.rows.forEach((row) => { row.bars = []; });
  bars.row.forEach((row, bar) => drawn.rows[row].bars.push(bar));
  drawn.rows.forEach((row) => { row.begins = row.bars.map((bar) => bars.begin[bar]); });
  if (drawn.rows.length) addChart('Lanes', 'operations of each lane over the step; arrow keys go from one to the next', drawLanes);
  for (const letter of new Set(bars.row.map((_, bar) => letterOf(bar)))) key($('legend'), kColours[letter], kFamilies[letter]);
  $('thinned').textContent = drawn.remarks.join(' ');
}

// May be called again with another step.
function startTimeline(step) {
  const first = drawn === null;
  drawn = step;
  bars = step.bars;
  Object.assign(view, { a: 0, b: step.ticks, cursor: null, selected: -1 });
  views.length = 0;
  $('plots').textContent = $('legend').textContent = '';
  makeCharts();
  redraw();
  if (!first) return;
  $('zoom-in').addEventListener('click', () => zoom(0.5));
  $('zoom-out').addEventListener('click', () => zoom(2));
  $('zoom-all').addEventListener('click', () => look(0, drawn.ticks));
  window.addEventListener('resize', redraw);
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
}
