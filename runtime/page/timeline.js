// Operations of one step on lanes, and memory over the same time; after common.js. The page has the elements plots,
// legend, thinned, span and three zoom buttons. startTimeline draws, in the form of runtime/plan/page/html_page.cpp:
//   ticks, end_s      length of the step, in ticks and in seconds
//   tiers             memory by tier and tag; may be empty
//   rows, bars        lanes from top to bottom; bars in columns (row, begin, length, busy, count, bytes, kind, ...)
//   kinds, units      names that bars refer to; `names` instead: the name of each bar
//   remarks           sentences below the charts
let drawn = null;
let bars = null;
const at = (tick) => tick / drawn.ticks * drawn.end_s;
// ---- charts ---------------------------------------------------------------------------------
const kColours = { W: 'c5', X: 'c13', T: 'c3', O: 'c18', _: 'free', F: 'c0', L: 'c8', B: 'c4', N: 'c10', U: 'c6', G: 'c2', R: 'c14', S: 'c9', P: 'c12', A: 'c11' };
const kFamilies = { W: 'weight gradients', X: 'between stages', T: 'tensor ranks', O: 'other', _: 'waiting', F: 'forward', L: 'loss head', B: 'backward', N: 'norm', U: 'update', G: 'gather', R: 'reduce',
  S: 'states and gradients', P: 'parameters', A: 'activations' };
const view = { a: 0, b: 1, cursor: null, selected: -1 };
const kRow = 22, kAxis = 18, kHeight = 150;
const views = [];
const letterOf = (bar) => drawn.kinds[bars.kind[bar]].letter;

const xOf = (chart, tick) => chart.left + (tick - view.a) / (view.b - view.a) * chart.width;
const tickOf = (chart, x) => view.a + (x - chart.left) / chart.width * (view.b - view.a);

const tickStep = () => {
  const wanted = at(view.b - view.a) / Math.max(2, views[0].width / 90);
  const power = 10 ** Math.floor(Math.log10(wanted));
  return [1, 2, 5, 10].map((f) => f * power).find((s) => s >= wanted);
};

// Times that differ by one division must not read the same.
const timeText = (s, step, more = 0) => {
  const [factor, name] = step >= 1 ? [1, ' s'] : step >= 1e-3 ? [1e3, ' ms'] : [1e6, ' µs'];
  if (!(step > 0)) return (s * factor) + name;  // nothing takes any time
  return (s * factor).toFixed(Math.max(0, Math.ceil(-Math.log10(step * factor) - 1e-9)) + more) + name;
};

function drawAxis(g, chart) {
  const step = tickStep();
  const bottom = chart.height - kAxis;
  g.strokeStyle = style.of('grid');
  g.fillStyle = style.of('dim');
  g.lineWidth = 1;
  g.textAlign = 'center';
  for (let i = Math.ceil(at(view.a) / step - 1e-9); i * step <= at(view.b) * (1 + 1e-9); ++i) {
    const x = Math.round(xOf(chart, i * step / drawn.end_s * drawn.ticks)) + 0.5;
    g.beginPath(); g.moveTo(x, 4); g.lineTo(x, bottom); g.stroke();
    g.fillText(timeText(i * step, step), Math.min(x, chart.left + chart.width - 16), bottom + kAxis / 2);
  }
}

function drawCursor(g, chart) {
  if (view.cursor === null || view.cursor < view.a || view.cursor > view.b) return;
  const x = Math.round(xOf(chart, view.cursor)) + 0.5;
  g.strokeStyle = style.of('cursor');
  g.setLineDash([3, 3]);
  g.beginPath(); g.moveTo(x, 2); g.lineTo(x, chart.height - kAxis); g.stroke();
  g.setLineDash([]);
}

// Of the points that hold within [from, to): the highest. -1 before the first.
function highest(tier, from, to) {
  let best = above(tier.t, from) - 1;
  for (let i = best + 1; i < tier.t.length && tier.t[i] < to; ++i) {
    if (best < 0 || tier.total[i] > tier.total[best]) best = i;
  }
  return best;
}

// The fullest of the highest points: slots of the arena count as high whether they are in use or not.
function peakOf(tier) {
  const free = tier.layers.find((layer) => layer.colour === 'free');
  const unused = (i) => (free ? free.bytes[i] : 0);
  let best = 0;
  for (let i = 1; i < tier.t.length; ++i) {
    if (tier.total[i] > tier.total[best] || (tier.total[i] === tier.total[best] && unused(i) < unused(best))) best = i;
  }
  return best;
}

function drawMemory(chart) {
  const tier = chart.tier;
  const g = begin(chart, kHeight);
  const bottom = kHeight - kAxis, top = 16;
  const near = tier.budget > 0 && tier.budget <= 2 * tier.peak;
  const most = Math.max(tier.peak, near ? tier.budget : 0) * 1.02 || 1;
  const yOf = (bytes) => bottom - bytes / most * (bottom - top);
  drawAxis(g, chart);
  const unit = 2 ** Math.floor(Math.log2(most / 2));
  for (let y = 0; y <= most; y += unit) grid(g, chart, yOf(y), bytesText(y));
  const colours = tier.layers.map((layer) => style.of(layer.colour));
  for (let px = 0; px < chart.width; ++px) {
    const i = highest(tier, tickOf(chart, chart.left + px), tickOf(chart, chart.left + px + 1));
    if (i < 0) continue;
    let sum = 0;
    tier.layers.forEach((layer, l) => {
      const bytes = layer.bytes[i];
      if (bytes <= 0) return;
      const y = yOf(sum + bytes);
      g.fillStyle = colours[l];
      g.fillRect(chart.left + px, y, 1.02, yOf(sum) - y);
      sum += bytes;
    });
  }
  if (tier.budget > 0) {
    const y = near ? Math.round(yOf(tier.budget)) + 0.5 : 0;
    g.strokeStyle = g.fillStyle = style.of('budget');
    if (near) {
      g.lineWidth = 1.5;
      g.beginPath(); g.moveTo(chart.left, y); g.lineTo(chart.left + chart.width, y); g.stroke();
      g.lineWidth = 1;
    }
    g.textAlign = 'right';
    g.fillText('budget ' + bytesText(tier.budget) + (near ? '' : ' is above'), chart.left + chart.width - 4, near ? y - 7 : 8);
  }
  drawCursor(g, chart);
}

function drawLanes(chart) {
  const g = begin(chart, drawn.rows.length * kRow + kAxis + 6);
  drawAxis(g, chart);
  drawn.rows.forEach((row, r) => {
    const y = r * kRow + 4;
    g.textAlign = 'right';
    g.fillStyle = style.of('ink');
    g.fillText(row.name, chart.left - 6, y + kRow / 2 - 1);
    const cover = new Float32Array(Math.ceil(chart.width) + 1);
    const longest = new Float32Array(cover.length);
    const colour = new Array(cover.length);
    let i = Math.max(0, above(row.begins, view.a) - 1);
    for (; i < row.bars.length && row.begins[i] < view.b; ++i) {
      const bar = row.bars[i];
      const x0 = Math.max(0, xOf(chart, bars.begin[bar]) - chart.left);
      const x1 = Math.min(chart.width, xOf(chart, bars.begin[bar] + bars.length[bar]) - chart.left);
      const part = Math.min(1, bars.busy[bar] / Math.max(1, bars.length[bar]));
      if (x1 <= 0 || x1 < x0) continue;
      const tone = kColours[letterOf(bar)];
      if (x1 - x0 >= 1.5) {
        g.globalAlpha = 0.25 + 0.75 * part;
        g.fillStyle = style.cached[tone];
        g.fillRect(chart.left + x0, y, Math.max(0.5, x1 - x0 - (x1 - x0 > 4 ? 1 : 0)), kRow - 6);
        g.globalAlpha = 1;
        if (x1 - x0 > 70) {
          g.fillStyle = style.cached.card;
          g.textAlign = 'left';
          g.fillText(shortName(bar), chart.left + x0 + 4, y + kRow / 2 - 2, x1 - x0 - 8);
        }
      } else {
        const px = Math.floor(x0);
        cover[px] += (x1 - x0) * part;
        if (x1 - x0 >= longest[px]) { longest[px] = x1 - x0; colour[px] = tone; }
      }
    }
    cover.forEach((share, px) => {
      if (share <= 0) return;
      g.globalAlpha = Math.min(1, Math.max(0.15, share));
      g.fillStyle = style.cached[colour[px]];
      g.fillRect(chart.left + px, y, 1, kRow - 6);
    });
    g.globalAlpha = 1;
  });
  if (view.selected >= 0) {
    const bar = view.selected;
    const x = Math.max(chart.left, xOf(chart, bars.begin[bar]));
    const end = Math.min(chart.left + chart.width, xOf(chart, bars.begin[bar] + bars.length[bar]));
    if (end >= chart.left) {
      g.strokeStyle = style.of('cursor');
      g.lineWidth = 2;
      g.strokeRect(x - 1, bars.row[bar] * kRow + 3, Math.max(3, end - x + 2), kRow - 4);
      g.lineWidth = 1;
    }
  }
  drawCursor(g, chart);
}

let pending = false;
function redraw() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(redrawNow);
}
function redrawNow() {
  pending = false;
  style.cached = { card: style.of('card') };
  for (const name of Object.values(kColours)) style.cached[name] = style.of(name);
  for (const chart of views) chart.draw(chart);
  const step = views.length ? tickStep() : 1;
  $('span').textContent = timeText(at(view.a), step, 1) + ' to ' + timeText(at(view.b), step, 1) + ' of ' + secondsText(drawn.end_s);
}

function look(a, b) {
  const least = Math.min(drawn.ticks, 20);
  const length = Math.min(drawn.ticks, Math.max(least, b - a));
  view.a = Math.min(Math.max(0, a), drawn.ticks - length);
  view.b = view.a + length;
  redraw();
}
const zoom = (factor, around) => {
  const middle = around === undefined ? (view.a + view.b) / 2 : around;
  look(middle - (middle - view.a) * factor, middle + (view.b - middle) * factor);
};
