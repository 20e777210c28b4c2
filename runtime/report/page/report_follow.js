// After report_tables.js: controls, the first drawing, and new data while runs go on.
for (const button of $('axes').children) {
  button.addEventListener('click', () => {
    for (const other of $('axes').children) other.setAttribute('aria-pressed', String(other === button));
    curves.switchAxis(button.dataset.axis);
  });
}
// The slider gives how many points the mean takes in: 0, then 2 to 1000 on a log scale.
$('smooth').addEventListener('input', (event) => {
  const place = Number(event.target.value);
  curves.smooth = place === 0 ? 0 : 1 - 1 / 10 ** (place / 100 * 2.7 + 0.3);
  curves.redraw();
});
$('log').addEventListener('change', (event) => { curves.log = event.target.checked; curves.redraw(); });
$('nearer').addEventListener('click', () => curves.zoom(0.5, curves.cursor));
$('farther').addEventListener('click', () => curves.zoom(2, curves.cursor));
$('everything').addEventListener('click', curves.lookAtAll);
window.addEventListener('resize', () => curves.redraw());
window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => curves.redraw());
// Paper is white: light colours, drawn before the print.
const paper = (on) => () => {
  document.documentElement.classList.toggle('paper', on);
  curves.redraw(true);
  if (drawn) redrawNow();
};
window.addEventListener('beforeprint', paper(true));
window.addEventListener('afterprint', paper(false));

function makeAll() {
  build();
  makeRunButtons();
  makeFigures();
  makeDamage();
  makeHappened();
  makeTables();
}
makeAll();
makeTimeline();
curves.look(...curves.whole);

// ---- new data. A view of all steps, or of the last ones, moves along; another stays.
const timelines = () => data.runs.map((run) => (run.timeline ? (run.timeline_measured ? 2 : 1) : 0)).join();
function takeData(next) {
  const before = timelines();
  const [low, high] = curves.whole;
  const all = curves.a <= low && curves.b >= high, atEnd = curves.b >= high, length = curves.b - curves.a;
  const focused = curves.charts.findIndex((chart) => chart.canvas === document.activeElement);
  data = next;
  if (timelines() !== before) { location.reload(); return; }
  makeAll();
  if (all) curves.look(...curves.whole);
  else if (atEnd) curves.look(curves.whole[1] - length, curves.whole[1]);
  else curves.look(curves.a, curves.b);
  if (focused >= 0 && curves.charts[focused]) curves.charts[focused].canvas.focus({ preventScroll: true });
}

let tag = '';
async function follow() {
  let text;
  try {
    const answer = await fetch('data.json', { headers: tag ? { 'If-None-Match': tag } : {}, cache: 'no-store' });
    if (answer.status === 200) {
      takeData(await answer.json());
      tag = answer.headers.get('ETag') || '';
    }
    text = 'follows the run; last look ' + new Date().toLocaleTimeString('en-GB');
  } catch {
    text = 'the server does not answer; sluice report --watch has ended?';
  }
  $('live').textContent = text;
  setTimeout(follow, document.hidden ? 10000 : 2000);
}
const policy = document.querySelector('meta[http-equiv]').content;
if (policy.includes('connect-src') && location.protocol.startsWith('http')) {
  $('live').hidden = false;
  setTimeout(follow, 2000);
}
