// After report.js: figures, damaged lines, and the list of what happened.
const timeOf = (unix) => (unix ? new Date(unix * 1000).toLocaleString('en-GB', { dateStyle: 'short', timeStyle: 'medium' }) : '');
const best = (run) => run.evaluations.loss.reduce((found, loss, i) => (found === null || loss < found.loss ? { loss, step: run.evaluations.x.step[i] } : found), null);
const lastLoss = (run) => { const curve = curveOf(run, 'loss'); return curve ? lastOf(curve.mean) : null; };
const trained = (run, axis) => (run.steps > 0 ? run.x[axis][run.x[axis].length - 1] : 0);
const ending = (run) => [...run.marks.list].reverse().find((mark) => ['end', 'start', 'resume', 'restart'].includes(mark.kind));

// The sentence below the title. A run without a last word goes on, or was killed.
function stateOf(run) {
  const last = ending(run);
  if (!run.has_events) return run.steps > 0 ? 'a run without events.jsonl' : 'nothing was recorded yet';
  if (last && last.kind === 'end') return last.text;
  return 'goes on, or ended without a word';
}

function makeFigures() {
  $('figures').textContent = '';
  const [run] = data.runs;
  if (several) {
    $('about').textContent = data.runs.map((r) => r.name).join(', ');
    return;
  }
  const found = best(run);
  $('about').textContent = run.folder;
  $('verdict').textContent = stateOf(run);
  figure(String(trained(run, 'step')), 'steps');
  figure(number(lastLoss(run)), run.per_bin > 1 ? 'training loss, last point' : 'training loss, last step');
  if (found) figure(number(found.loss), 'best validation loss, step ' + found.step);
  if (found) figure(number(Math.exp(found.loss)), 'perplexity there');
  figure(countText(trained(run, 'tokens')), 'tokens');
  figure(clockText(trained(run, 'seconds')), 'time in steps');
  if (run.medians.tokens_per_s) figure(countText(run.medians.tokens_per_s), 'tokens/s, median');
  if (run.medians.mfu) figure(share(run.medians.mfu), 'of the measured rate, median');
  if (run.medians.mfu_of_card) figure(share(run.medians.mfu_of_card), 'of the card, median');
  for (const [tier, key] of kTiers) {
    const peak = maximum(curveOf(run, key));
    if (peak > 0) figure(bytesText(peak), tierName(tier) + ' peak of a rank');
  }
}

function makeDamage() {
  const lines = data.runs.flatMap((run) => run.damage.concat(run.damaged > run.damage.length ? [run.folder + ': ' + (run.damaged - run.damage.length) + ' more'] : []));
  $('damage').hidden = lines.length === 0;
  $('damage').textContent = '';
  if (lines.length === 0) return;
  add($('damage'), 'h2', 'Damaged lines, left out');
  const list = add($('damage'), 'ul');
  for (const line of lines) add(list, 'li', line);
}

// Kinds that the list shows from the start. The others are a click away.
const kQuiet = ['evaluation', 'save_begun'];
let showsAll = false;
function makeHappened() {
  const section = $('happened');
  section.textContent = '';
  const marks = curves.marks;
  if (marks.length === 0) return;
  add(section, 'h2', 'What happened');
  const left = data.runs.reduce((sum, run) => sum + run.marks.left_out, 0);
  if (left > 0) add(section, 'p', left + ' events of kinds that happened more than 400 times are left out.', 'dim small');
  const listed = marks.filter((mark) => showsAll || !kQuiet.includes(mark.kind));
  const timed = listed.every((mark) => mark.time);
  const ordered = listed.map((mark, i) => [timed ? mark.time : mark.x.step, i, mark]).sort((p, q) => p[0] - q[0] || p[1] - q[1]).map((entry) => entry[2]);
  const heads = ['step', 'event', 'what'].concat(several ? ['run'] : [], ['when']);
  const box = add(section, 'div', null, 'wide events');
  box.tabIndex = 0;
  box.setAttribute('aria-label', 'What happened');
  const node = add(box, 'table');
  const top = add(add(node, 'thead'), 'tr');
  heads.forEach((head) => { add(top, 'th', head, head === 'what' || head === 'event' || head === 'run' ? 'text' : '').scope = 'col'; });
  const body = add(node, 'tbody');
  for (const mark of ordered) {
    const row = add(body, 'tr');
    add(row, 'td', String(mark.x.step));
    const kind = add(row, 'td', null, 'text kind');
    add(kind, 'i').style.background = 'var(--' + markColour(mark.kind) + ')';
    kind.appendChild(document.createTextNode(markName(mark.kind)));
    add(row, 'td', mark.text, 'text');
    if (several) add(row, 'td', mark.runName, 'text kind');
    add(row, 'td', timeOf(mark.time));
  }
  if (!marks.some((mark) => kQuiet.includes(mark.kind))) return;
  const more = add(section, 'button', showsAll ? 'without evaluations and beginnings of saves' : 'with evaluations and beginnings of saves');
  more.type = 'button';
  more.addEventListener('click', () => { showsAll = !showsAll; makeHappened(); });
}
