// Of the page of report_body.html, after curves.js and timeline.js. Its data: runs_json (runtime/report/report_json.hpp).
const kRunColours = ['c0', 'c4', 'c6', 'c14', 'c2', 'c8', 'c15', 'c9', 'c11', 'c16', 'c18', 'c7'];
const kPhases = ['forward', 'backward', 'comm', 'optimizer', 'io', 'data'];
const kPhaseColours = { forward: 'c0', backward: 'c4', comm: 'c14', optimizer: 'c6', io: 'c8', data: 'c15' };
const kPhaseNames = { forward: 'forward', backward: 'backward', comm: 'waiting for ranks', optimizer: 'optimizer', io: 'NVMe', data: 'data' };
const kTiers = [['device', 'memory.device_peak'], ['host', 'memory.host_peak'], ['nvme', 'memory.nvme']];
const tierName = (name) => (name === 'nvme' ? 'NVMe' : name);
let several = data.runs.length > 1;
const runColour = (r) => kRunColours[r % kRunColours.length];

// ---- texts of values
const number = (y) => (y === null || !Number.isFinite(y) ? '–' : y === 0 ? '0' : Math.abs(y) >= 1e6 || Math.abs(y) < 1e-3 ? Number(y.toPrecision(4)).toExponential() : String(Number(y.toPrecision(5))));
const share = (y) => (y === null ? '–' : Number((100 * y).toPrecision(3)) + ' %');
const rate = (y) => (y === null ? '–' : countText(y));
const milliseconds = (y) => (y === null ? '–' : y === 0 ? '0' : secondsText(y / 1e3));
const bytesOf = (y) => (y === null ? '–' : bytesText(y));

// ---- curves of a run: those that are one value all over come as `constant`
function curveOf(run, key) {
  const curve = run.curves[key];
  if (!curve) return null;
  if (!('constant' in curve)) return { mean: curve.mean, least: curve.least || null, most: curve.most || null };
  return { mean: run.x.step.map(() => curve.constant), least: null, most: null };
}
const maximum = (curve) => (curve === null ? 0 : (curve.most || curve.mean).reduce((best, y) => (y !== null && y > best ? y : best), 0));
const lastOf = (list) => { for (let i = list.length - 1; i >= 0; --i) if (list[i] !== null) return list[i]; return null; };
const seriesOf = (key, more = {}) => data.runs.flatMap((run, r) => {
  const curve = curveOf(run, key);
  return curve === null ? [] : [{ run: r, name: several ? run.name : '', colour: runColour(r), x: run.x, ...curve, ...more }];
});
// Validation sets of one run have names; over several runs the mean alone is drawn.
function evaluationSeries() {
  return data.runs.flatMap((run, r) => {
    const { x, loss, sets } = run.evaluations;
    if (loss.length === 0) return [];
    const main = { run: r, name: several ? run.name : '', colour: runColour(r), x, mean: loss, least: null, most: null, points: true };
    if (several) return [main];
    const names = Object.keys(sets);
    if (names.length > 0) main.name = 'validation';
    return [main, ...names.map((name, i) => ({ ...main, name, colour: runColour(i + 1), mean: sets[name], dash: [4, 3] }))];
  });
}

// ---- the charts
let phase = 'forward';  // that several runs compare
function phaseChart() {
  if (several) return { title: 'Time of a step: ' + kPhaseNames[phase], series: seriesOf('timers_ms.' + phase), phases: true };
  const total = seriesOf('step_ms', { name: 'step', colour: 'c10' });
  return { title: 'Time of a step by phase', phases: true,
    series: total.concat(kPhases.flatMap((name) => seriesOf('timers_ms.' + name, { name: kPhaseNames[name], colour: kPhaseColours[name] }).filter((s) => maximum(s) > 0))) };
}

function tierChart([tier, key]) {
  const planned = data.runs.map((run) => (run.plan ? run.plan.tiers.find((t) => t.name === tier) : undefined));
  const series = seriesOf(key).filter((s) => maximum(s) > 0 || (planned[s.run] && planned[s.run].peak > 0));
  if (series.length === 0) return [];
  const levels = planned.flatMap((plan, r) => (plan ? [
    { run: r, value: plan.peak, name: 'plan' + (several ? ' of ' + data.runs[r].name : ''), colour: several ? runColour(r) : 'dim' },
    { run: r, value: plan.budget, name: 'budget', colour: 'budget' }] : []));
  // Equal lines are drawn once.
  const once = levels.filter((l, i) => levels.findIndex((other) => other.value === l.value && other.name.split(' ')[0] === l.name.split(' ')[0]) === i);
  return [{ title: 'Memory of a rank: ' + tierName(tier) + ', peak', series, levels: once, format: bytesOf, bytes: true, zero: true }];
}

function chartList() {
  const measured = (key) => seriesOf(key).filter((s) => maximum(s) > 0);
  return [
    { title: 'Training loss', series: seriesOf('loss'), format: number, smooths: true, logs: true, wide: true, height: 260 },
    { title: 'What happened', marks: true, series: [], wide: true, height: 40 },
    { title: 'Validation loss', series: evaluationSeries(), format: number, logs: true },
    { title: 'Gradient norm, before clipping', series: seriesOf('grad_norm'), format: number, smooths: true, logs: true },
    { title: 'Learning rate', series: seriesOf('lr'), format: number, zero: true },
    { title: 'Tokens per second, all ranks', series: seriesOf('tokens_per_s'), format: rate, smooths: true, zero: true },
    { title: 'MFU: share of the measured rate of matrix products', series: measured('mfu'), format: share, smooths: true, zero: true },
    { title: 'MFU: share of the card\'s data sheet', series: measured('mfu_of_card'), format: share, smooths: true, zero: true },
    { ...phaseChart(), format: milliseconds, smooths: true, logs: true, zero: true },
    ...kTiers.flatMap(tierChart),
    { title: 'Resident memory of a process, peak', series: measured('memory.resident_peak'), format: bytesOf, bytes: true, zero: true },
    { title: 'Loss scale', series: seriesOf('loss_scale').filter((s) => maximum(s) > 1), format: number, logs: true },
  ].filter((chart) => chart.marks ? data.runs.some((run) => run.marks.list.length > 0) : chart.series.length > 0);
}

function phaseButtons(box) {
  const group = add(box, 'div', null, 'keys');
  group.setAttribute('role', 'group');
  group.setAttribute('aria-label', 'Phase');
  for (const name of kPhases) {
    if (seriesOf('timers_ms.' + name).every((s) => maximum(s) === 0)) continue;
    const button = add(group, 'button', kPhaseNames[name]);
    button.type = 'button';
    button.setAttribute('aria-pressed', String(name === phase));
    button.addEventListener('click', () => { phase = name; build(); });
  }
}

function build() {
  several = data.runs.length > 1;
  curves.several = data.runs.length;
  curves.charts.length = 0;
  $('curves').textContent = '';
  curves.marks = data.runs.flatMap((run, r) => run.marks.list.map((mark, i) => ({ ...mark, run: r, runName: run.name, colour: runColour(r),
    x: { step: run.marks.x.step[i], tokens: run.marks.x.tokens[i], seconds: run.marks.x.seconds[i] } })));
  for (const chart of chartList()) {
    const box = curves.add($('curves'), { height: 200, ...chart });
    if (chart.phases && several) phaseButtons(box);
    const named = (chart.series || []).filter((s) => s.name);
    if (several || named.length < 2) continue;
    const keys = add(box, 'div', null, 'keys');
    for (const s of named) key(keys, s.colour, s.name);
  }
  const binned = data.runs.filter((run) => run.per_bin > 1);
  $('binned').textContent = binned.map((run) => (several ? run.name + ': ' : '') + run.steps.toLocaleString('en') + ' steps, ' + run.per_bin +
    ' to a point: the line is their mean, the band their lowest and highest.').join(' ');
  curves.measure();
}

function makeRunButtons() {
  $('runs').textContent = '';
  if (!several) return;
  data.runs.forEach((run, r) => {
    const button = add($('runs'), 'button', null, 'run');
    button.type = 'button';
    add(button, 'i').style.background = 'var(--' + runColour(r) + ')';
    button.appendChild(document.createTextNode(run.name));
    button.title = run.folder;
    button.setAttribute('aria-pressed', String(!curves.hidden.has(r)));
    button.addEventListener('click', () => {
      if (curves.hidden.has(r)) curves.hidden.delete(r); else curves.hidden.add(r);
      button.setAttribute('aria-pressed', String(!curves.hidden.has(r)));
      curves.redraw();
    });
  });
}

curves.drawn = () => {
  const text = curves.axis === 'step' ? ['step ' + Math.round(curves.a), Math.round(curves.b)] : [placeText(curves.a, curves.axis), placeText(curves.b, curves.axis)];
  $('inview').textContent = data.runs.some((run) => run.steps > 0) ? text[0] + ' to ' + text[1] : 'no steps yet';
};
