// Of every page, before its own scripts.
const $ = (id) => document.getElementById(id);
let data = JSON.parse($('data').textContent);

// Text goes into the page as text nodes alone: a name cannot become markup.
const add = (parent, tag, text, className) => {
  const node = document.createElement(tag);
  if (text !== undefined && text !== null) node.textContent = text;
  if (className) node.className = className;
  parent.appendChild(node);
  return node;
};

const digits = (x) => x.toFixed(x >= 99.95 ? 0 : x >= 9.995 ? 1 : 2);
const scaled = (x, base, names) => {
  let i = 0;
  while (x >= base * 0.9995 && i + 1 < names.length) { x /= base; ++i; }
  return (i === 0 ? String(Math.round(x)) : digits(x)) + names[i];
};
const bytesText = (x) => scaled(x, 1024, [' B', ' KiB', ' MiB', ' GiB', ' TiB', ' PiB']);
const countText = (x) => (x < 1000 ? String(Math.round(x)) : scaled(x, 1000, ['', 'k', 'M', 'B', 'T']));
const secondsText = (s) => {
  if (s >= 100) return s.toFixed(0) + ' s';
  if (s >= 1) return s.toFixed(2) + ' s';
  if (s >= 1e-3) return Number((s * 1e3).toPrecision(3)) + ' ms';
  return Number((s * 1e6).toPrecision(3)) + ' µs';
};
const longText = (s) => (s >= 94608000 ? (s / 31557600).toFixed(1) + ' years' : s >= 172800 ? (s / 86400).toFixed(1) + ' days' : s >= 7200 ? (s / 3600).toFixed(1) + ' hours'
  : s >= 120 ? (s / 60).toFixed(1) + ' minutes' : secondsText(s));
const words = (name) => name.replaceAll('_', ' ');

const figure = (value, name) => {
  const card = add($('figures'), 'div', null, 'figure');
  add(card, 'b', value);
  add(card, 'span', name);
};

function table(title, heads, rows, textColumns = []) {
  add($('tables'), 'h2', title);
  const box = add($('tables'), 'div', null, 'wide');
  box.tabIndex = 0;
  box.setAttribute('aria-label', title);
  const node = add(box, 'table');
  const top = add(add(node, 'thead'), 'tr');
  heads.forEach((head, c) => { add(top, 'th', head, textColumns.includes(c) ? 'text' : '').scope = 'col'; });
  const body = add(node, 'tbody');
  for (const row of rows) {
    const line = add(body, 'tr', null, row.sum ? 'sum' : '');
    row.cells.forEach((cell, c) => {
      const slot = add(line, 'td', null, textColumns.includes(c) ? 'text' : row.classes ? row.classes[c] || '' : '');
      if (row.code === c) add(slot, 'code', cell); else slot.textContent = cell;
    });
  }
}

// ---- canvas and tooltip
const style = { of(name) { return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim(); } };
const gutter = () => (window.innerWidth < 560 ? 62 : 92);
function begin(chart, height) {
  const ratio = window.devicePixelRatio || 1;
  const total = chart.canvas.clientWidth || 300;
  chart.left = gutter();
  chart.width = Math.max(40, total - chart.left - 8);
  chart.height = height;
  chart.canvas.style.height = height + 'px';
  chart.canvas.width = Math.round(total * ratio);
  chart.canvas.height = Math.round(height * ratio);
  const g = chart.canvas.getContext('2d');
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, total, height);
  g.font = '11px system-ui, sans-serif';
  g.textBaseline = 'middle';
  return g;
}

// A line is a text, or a text with the colour of its series.
function show(lines, x, y, aloud) {
  const tip = $('tip');
  tip.textContent = '';
  lines.forEach((line, i) => {
    const node = add(tip, i === 0 ? 'b' : 'span', line.colour ? null : line);
    if (!line.colour) return;
    add(node, 'i').style.background = 'var(--' + line.colour + ')';
    node.appendChild(document.createTextNode(line.text));
  });
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(x + 14, window.innerWidth - box.width - 6)) + 'px';
  tip.style.top = Math.max(4, y + 16 + box.height > window.innerHeight ? y - box.height - 12 : y + 16) + 'px';
  if (aloud) $('said').textContent = lines.map((line) => line.text || line).join(', ');
}

// A horizontal line of the grid with its value in the gutter.
function grid(g, chart, y, text) {
  g.strokeStyle = style.of('grid');
  g.beginPath(); g.moveTo(chart.left, Math.round(y) + 0.5); g.lineTo(chart.left + chart.width, Math.round(y) + 0.5); g.stroke();
  g.fillStyle = style.of('dim');
  g.textAlign = 'right';
  g.fillText(text, chart.left - 5, Math.max(8, y));
}

const key = (parent, colour, name) => {
  const item = add(parent, 'span');
  add(item, 'i').style.background = 'var(--' + colour + ')';
  item.appendChild(document.createTextNode(name));
  return item;
};

// The first index whose value is above x, in a sorted list.
const above = (list, x) => {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] <= x) low = middle + 1; else high = middle;
  }
  return low;
};
