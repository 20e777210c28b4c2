// Values over the steps of runs, and what happened to the runs, on one x axis that all charts share; after common.js.
// curves_pointer.js has pointer and keyboard. A chart is
//   title, height      of the canvas; with `marks: true` the chart has a row for each kind of mark and no series
//   series             run (index), name, colour, x {step, tokens, seconds}, mean, least and most (extremes of a bin) or
//                      null, points (drawn as dots), dash
//   levels             horizontal lines: value, name, colour, run
//   format             text of a value; smooths: the smoothing applies; logs: the log scale applies; zero: 0 is in view
const curves = {
  charts: [], marks: [], axis: 'step', a: 0, b: 1, whole: [0, 1], cursor: null, drag: null, smooth: 0, log: false,
  hidden: new Set(), pending: false, several: 1,
};
const kCurveAxis = 20, kMarkRow = 22, kCurveTop = 8;
const kMarks = {
  start: ['start', 'c10'], resume: ['resumed', 'c0'], restart: ['restarted', 'c4'], save_begun: ['save begun', 'c7'], save: ['saved', 'c6'],
  save_failed: ['save failed', 'budget'], skipped: ['skipped step', 'c15'], straggler: ['slow rank', 'c11'],
  warning: ['warning', 'c5'], error: ['error', 'budget'], evaluation: ['evaluated', 'c8'],
  plan_error: ['off the plan', 'c2'], end: ['end', 'c10'],
};
const kLoud = ['resume', 'restart', 'error'];  // drawn through the charts too
const kSilent = ['save_begun'];  // in the list alone
const markName = (kind) => (kMarks[kind] ? kMarks[kind][0] : words(kind));
const markColour = (kind) => (kMarks[kind] ? kMarks[kind][1] : 'c18');

// ---- the x axis
const kTimes = [0.01, 0.1, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400, 172800, 604800];
const clockText = (s) => {
  if (s < 60) return Number(s.toPrecision(3)) + ' s';
  const h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60, rest = Math.round(s % 60);
  if (h >= 48) return Math.floor(h / 24) + ' d ' + (h % 24) + ' h';
  return h > 0 ? h + ':' + String(m).padStart(2, '0') + ' h' : m + ':' + String(rest).padStart(2, '0') + ' min';
};
const placeText = (x, axis) => (axis === 'seconds' ? clockText(x) : axis === 'tokens' ? countText(x) + ' tokens' : 'step ' + Math.round(x));
const niceStep = (wanted) => {
  const power = 10 ** Math.floor(Math.log10(wanted));
  return [1, 2, 5, 10].map((f) => f * power).find((s) => s >= wanted * 0.999);
};

curves.xOf = (chart, x) => chart.left + (x - curves.a) / (curves.b - curves.a) * chart.width;
curves.valueAt = (chart, px) => curves.a + (px - chart.left) / chart.width * (curves.b - curves.a);
curves.visible = (chart) => chart.series.filter((s) => !curves.hidden.has(s.run) && s.mean.length > 0);

// The index in a sorted list that is nearest to x.
curves.nearest = (list, x) => {
  const after = above(list, x);
  if (after === 0) return 0;
  return after < list.length && list[after] - x < x - list[after - 1] ? after : after - 1;
};

// First and last index that matter for [a, b], a neighbour on each side included.
curves.span = (list) => [Math.max(0, above(list, curves.a) - 2), Math.min(list.length - 1, above(list, curves.b))];

function drawXAxis(g, chart, bottom) {
  const wanted = (curves.b - curves.a) / Math.max(2, chart.width / 84);
  let step = curves.axis === 'seconds' ? kTimes.find((t) => t >= wanted) || niceStep(wanted) : niceStep(wanted);
  if (curves.axis !== 'seconds') step = Math.max(1, step);
  g.lineWidth = 1;
  g.textAlign = 'center';
  for (let i = Math.ceil(curves.a / step); i * step <= curves.b; ++i) {
    const x = Math.round(curves.xOf(chart, i * step)) + 0.5;
    g.strokeStyle = style.of('grid');
    g.beginPath(); g.moveTo(x, kCurveTop); g.lineTo(x, bottom); g.stroke();
    g.fillStyle = style.of('dim');
    const text = curves.axis === 'seconds' ? clockText(i * step) : i * step < 10000 ? String(i * step) : Number((i * step / 1000).toPrecision(7)) >= 1000
      ? Number((i * step / 1e6).toPrecision(7)) + 'M' : Number((i * step / 1000).toPrecision(7)) + 'k';
    g.fillText(text, Math.min(Math.max(x, chart.left + 8), chart.left + chart.width - 14), bottom + kCurveAxis / 2);
  }
}

// ---- the y axis: [low, high] of all that is in view, extremes included
curves.range = (chart) => {
  let low = Infinity, high = -Infinity;
  const log = chart.logs && curves.log;
  const take = (y) => {
    if (!Number.isFinite(y) || (log && y <= 0)) return;
    if (y < low) low = y;
    if (y > high) high = y;
  };
  for (const s of curves.visible(chart)) {
    const x = s.x[curves.axis];
    const [first, last] = curves.span(x);
    for (let i = first; i <= last; ++i) {
      take(s.mean[i]);
      if (s.least) { take(s.least[i]); take(s.most[i]); }
    }
  }
  if (low > high) return [0, 1];
  for (const level of curves.levels(chart)) if (level.value <= 2 * high) take(level.value);
  if (chart.zero && !log) low = Math.min(low, 0);
  if (log) return low === high ? [low / 2, high * 2] : [low / 1.05, high * 1.05];
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [chart.zero && low === 0 ? 0 : low - room, high + room];
};
curves.levels = (chart) => (chart.levels || []).filter((l) => !curves.hidden.has(l.run) && l.value > 0);

function yTicks(chart, low, high, log) {
  const ticks = [];
  if (log) {
    for (let p = Math.floor(Math.log10(low)); p <= Math.log10(high); ++p) {
      for (const f of high / low > 300 ? [1] : high / low > 8 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9]) {
        const y = f * 10 ** p;
        if (y >= low && y <= high) ticks.push(y);
      }
    }
    return ticks;
  }
  const wanted = (high - low) / 5;
  const step = chart.bytes ? 2 ** Math.ceil(Math.log2(wanted)) : niceStep(wanted);
  for (let i = Math.ceil(low / step); i * step <= high; ++i) ticks.push(i * step);
  return ticks;
}

// ---- lines
// Exponential mean without the bias of its beginning; gaps stay gaps.
curves.smoothed = (values) => {
  const weight = curves.smooth;
  let sum = 0, norm = 0;
  return values.map((y) => {
    if (!Number.isFinite(y)) return y;
    sum = weight * sum + (1 - weight) * y;
    norm = weight * norm + (1 - weight);
    return sum / norm;
  });
};

function strokeLine(g, chart, s, values, yOf) {
  const x = s.x[curves.axis];
  const [first, last] = curves.span(x);
  let open = false;
  g.beginPath();
  for (let i = first; i <= last; ++i) {
    const y = values[i] === null ? NaN : yOf(values[i]);
    if (!Number.isFinite(y)) { open = false; continue; }
    if (open) g.lineTo(curves.xOf(chart, x[i]), y); else g.moveTo(curves.xOf(chart, x[i]), y);
    open = true;
  }
  g.stroke();
}

// The extremes of each bin, from the step before the bin to the bin's last step.
function fillBand(g, chart, s, yOf) {
  const x = s.x[curves.axis];
  const [first, last] = curves.span(x);
  for (let i = first; i <= last; ++i) {
    if (s.least[i] === null || s.most[i] === null) continue;
    const x0 = curves.xOf(chart, i > 0 ? x[i - 1] : x[i]), x1 = curves.xOf(chart, x[i]);
    const top = yOf(s.most[i]), bottom = yOf(s.least[i]);
    if (Number.isFinite(top) && Number.isFinite(bottom)) g.fillRect(x0, top, Math.max(x1 - x0, 1), Math.max(bottom - top, 1));
  }
}

function drawSeries(g, chart, s, yOf) {
  const colour = style.of(s.colour);
  g.strokeStyle = g.fillStyle = colour;
  g.setLineDash(s.dash || []);
  g.lineJoin = 'round';
  const smooths = chart.smooths && curves.smooth > 0;
  if (s.least) { g.globalAlpha = 0.5; fillBand(g, chart, s, yOf); }
  if (smooths) { g.globalAlpha = 0.3; g.lineWidth = 1; strokeLine(g, chart, s, s.mean, yOf); }
  g.globalAlpha = 1;
  g.lineWidth = !smooths && s.mean.length > chart.width / 2 ? 1.1 : 1.8;
  strokeLine(g, chart, s, smooths ? curves.smoothed(s.mean) : s.mean, yOf);
  g.setLineDash([]);
  g.lineWidth = 1;
  if (!s.points && s.mean.length > 1) return;
  const x = s.x[curves.axis];
  const [first, last] = curves.span(x);
  if (last - first > chart.width / 8) return;
  for (let i = first; i <= last; ++i) {
    if (s.mean[i] === null) continue;
    g.beginPath(); g.arc(curves.xOf(chart, x[i]), yOf(s.mean[i]), 2.6, 0, 7); g.fill();
  }
}

function drawLevels(g, chart, yOf, high) {
  for (const level of curves.levels(chart)) {
    g.strokeStyle = g.fillStyle = style.of(level.colour);
    const beyond = level.value > high;
    const y = beyond ? kCurveTop : Math.round(yOf(level.value)) + 0.5;
    if (!beyond) {
      g.setLineDash([5, 4]);
      g.beginPath(); g.moveTo(chart.left, y); g.lineTo(chart.left + chart.width, y); g.stroke();
      g.setLineDash([]);
    }
    g.textAlign = 'right';
    g.fillText(level.name + ' ' + chart.format(level.value) + (beyond ? ' is above' : ''), chart.left + chart.width - 4, y + (y < 22 ? 9 : -7));
  }
}

function drawMarkLines(g, chart, bottom) {
  for (const mark of curves.marks) {
    const x = mark.x[curves.axis];
    if (curves.hidden.has(mark.run) || !kLoud.includes(mark.kind) || x < curves.a || x > curves.b) continue;
    const px = Math.round(curves.xOf(chart, x)) + 0.5;
    g.strokeStyle = style.of(markColour(mark.kind));
    g.globalAlpha = 0.7;
    g.setLineDash([2, 3]);
    g.beginPath(); g.moveTo(px, kCurveTop); g.lineTo(px, bottom); g.stroke();
  }
  g.setLineDash([]);
  g.globalAlpha = 1;
}

function drawOverlay(g, chart, bottom) {
  if (curves.drag && Math.abs(curves.drag.to - curves.drag.from) > 0) {
    const x0 = curves.xOf(chart, Math.min(curves.drag.from, curves.drag.to)), x1 = curves.xOf(chart, Math.max(curves.drag.from, curves.drag.to));
    g.fillStyle = style.of('focus');
    g.globalAlpha = 0.18;
    g.fillRect(x0, kCurveTop, x1 - x0, bottom - kCurveTop);
    g.globalAlpha = 1;
  }
  if (curves.cursor === null || curves.cursor < curves.a || curves.cursor > curves.b) return;
  const x = Math.round(curves.xOf(chart, curves.cursor)) + 0.5;
  g.strokeStyle = style.of('cursor');
  g.setLineDash([3, 3]);
  g.beginPath(); g.moveTo(x, kCurveTop); g.lineTo(x, bottom); g.stroke();
  g.setLineDash([]);
}

function drawCurves(chart) {
  const g = begin(chart, chart.height);
  const bottom = chart.height - kCurveAxis;
  const log = chart.logs && curves.log;
  const [low, high] = curves.range(chart);
  const scale = log ? Math.log : (y) => y;
  const yOf = (y) => (log && y <= 0 ? NaN : bottom - (scale(y) - scale(low)) / (scale(high) - scale(low)) * (bottom - kCurveTop));
  drawXAxis(g, chart, bottom);
  for (const y of yTicks(chart, low, high, log)) grid(g, chart, yOf(y), chart.format(y));
  g.save();
  g.beginPath(); g.rect(chart.left, 0, chart.width + 2, bottom + 1); g.clip();
  drawMarkLines(g, chart, bottom);
  for (const s of curves.visible(chart)) drawSeries(g, chart, s, yOf);
  drawLevels(g, chart, yOf, high);
  drawOverlay(g, chart, bottom);
  g.restore();
  // For tests and other programs: what the canvas shows.
  chart.canvas.dataset.plot = JSON.stringify({ left: chart.left, width: chart.width, top: kCurveTop, bottom, a: curves.a, b: curves.b, low, high, log: !!log });
}

// ---- what happened: a row for each kind
curves.kinds = () => Object.keys(kMarks).concat(curves.marks.map((m) => m.kind)).filter((kind, i, all) =>
  all.indexOf(kind) === i && !kSilent.includes(kind) && curves.marks.some((m) => m.kind === kind && !curves.hidden.has(m.run)));

function drawMarks(chart) {
  const kinds = curves.kinds();
  const g = begin(chart, Math.max(1, kinds.length) * kMarkRow + kCurveAxis + kCurveTop);
  const bottom = chart.height - kCurveAxis;
  drawXAxis(g, chart, bottom);
  kinds.forEach((kind, r) => {
    const y = kCurveTop + (r + 0.5) * kMarkRow;
    g.textAlign = 'right';
    g.fillStyle = style.of('ink');
    g.fillText(markName(kind), chart.left - 8, y, chart.left - 10);
    for (const mark of curves.marks) {
      const x = mark.x[curves.axis];
      if (mark.kind !== kind || curves.hidden.has(mark.run) || x < curves.a || x > curves.b) continue;
      g.fillStyle = style.of(curves.several > 1 ? mark.colour : markColour(kind));
      // Runs side by side: their marks are often at the same steps.
      const shift = (mark.run - (curves.several - 1) / 2) * Math.min(5, 15 / curves.several);
      g.beginPath(); g.arc(curves.xOf(chart, x), y + (curves.several > 1 ? shift : 0), curves.several > 1 ? 3 : 4, 0, 7); g.fill();
    }
  });
  drawOverlay(g, chart, bottom);
  chart.canvas.dataset.plot = JSON.stringify({ left: chart.left, width: chart.width, a: curves.a, b: curves.b, kinds });
}

curves.redraw = (now) => {
  const draw = () => {
    curves.pending = false;
    for (const chart of curves.charts) (chart.marks ? drawMarks : drawCurves)(chart);
    if (curves.drawn) curves.drawn();
  };
  if (now === true) { draw(); return; }
  if (curves.pending) return;
  curves.pending = true;
  requestAnimationFrame(draw);
};

// ---- the part of the axis in view
curves.measure = () => {
  let low = Infinity, high = -Infinity;
  const take = (list) => { if (list.length) { low = Math.min(low, list[0]); high = Math.max(high, list[list.length - 1]); } };
  for (const chart of curves.charts) for (const s of chart.series || []) if (!curves.hidden.has(s.run)) take(s.x[curves.axis]);
  for (const mark of curves.marks) if (!curves.hidden.has(mark.run)) take([mark.x[curves.axis]]);
  curves.whole = low < high ? [low, high] : low === high ? [low - 1, low + 1] : [0, 1];
};
curves.look = (a, b) => {
  const [low, high] = curves.whole;
  const length = Math.min(high - low, Math.max(b - a, (high - low) / 1e5));
  curves.a = Math.min(Math.max(low, a), high - length);
  curves.b = curves.a + length;
  curves.redraw();
};
curves.lookAtAll = () => { curves.measure(); curves.look(...curves.whole); };
curves.zoom = (factor, around) => {
  const middle = around === undefined || around === null ? (curves.a + curves.b) / 2 : around;
  curves.look(middle - (middle - curves.a) * factor, middle + (curves.b - middle) * factor);
};
// Another quantity on the axis: the same steps stay in view, by the share of the whole.
curves.switchAxis = (axis) => {
  const all = curves.a <= curves.whole[0] && curves.b >= curves.whole[1];
  const share = curves.whole.map((_, i) => ((i ? curves.b : curves.a) - curves.whole[0]) / (curves.whole[1] - curves.whole[0]));
  curves.axis = axis;
  curves.cursor = null;
  curves.measure();
  const [low, high] = curves.whole;
  if (all) curves.look(low, high); else curves.look(low + share[0] * (high - low), low + share[1] * (high - low));
};
