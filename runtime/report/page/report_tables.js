// After report_events.js: the tables of runs, phases, memory and configuration.
const names = () => data.runs.map((run) => run.name);

function runsTable() {
  if (!several) return;
  table('Runs', ['run', 'steps', 'loss', 'best validation', 'at step', 'tokens', 'time', 'tokens/s', 'MFU', 'state'], data.runs.map((run) => {
    const found = best(run);
    return { cells: [run.name, String(trained(run, 'step')), number(lastLoss(run)), found ? number(found.loss) : '–', found ? String(found.step) : '–', countText(trained(run, 'tokens')),
      clockText(trained(run, 'seconds')), run.medians.tokens_per_s ? countText(run.medians.tokens_per_s) : '–', run.medians.mfu ? share(run.medians.mfu) : '–', stateOf(run)] };
  }), [9]);
}

function phasesTable() {
  const rows = [['step', 'step_ms']].concat(kPhases.map((name) => [kPhaseNames[name], 'timers_ms.' + name])).filter(([, key]) => data.runs.some((run) => run.medians[key] > 0));
  if (rows.length === 0) return;
  table('Time of a step by phase, median', ['phase'].concat(data.runs.flatMap((run) => [several ? run.name : 'time', 'of the step'])), rows.map(([name, key]) => ({
    sum: key === 'step_ms',
    cells: [name].concat(data.runs.flatMap((run) => (run.medians[key] > 0 ? [milliseconds(run.medians[key]), share(run.medians[key] / run.medians.step_ms)] : ['–', '–']))) })));
  add($('tables'), 'p', 'Phases overlap, so they need not add up to the step.', 'dim small');
}

function memoryTable() {
  const rows = data.runs.flatMap((run) => kTiers.flatMap(([tier, key]) => {
    const planned = run.plan ? run.plan.tiers.find((t) => t.name === tier) : undefined;
    const peak = maximum(curveOf(run, key));
    if (peak === 0 && !(planned && planned.peak > 0)) return [];
    const against = planned && planned.peak > 0 && peak > 0 ? (100 * (peak / planned.peak - 1)).toFixed(2) : null;
    const tags = planned ? Object.entries(planned.by_tag).filter(([, bytes]) => bytes > 0).sort((p, q) => q[1] - p[1]) : [];
    return [{ cells: (several ? [run.name] : []).concat([tierName(tier), planned ? bytesText(planned.peak) : '–', peak > 0 ? bytesText(peak) : '–', against === null ? '–' : (against > 0 ? '+' : '') + against + ' %',
      planned && planned.budget > 0 ? bytesText(planned.budget) : 'none', tags.map(([tag, bytes]) => words(tag) + ' ' + bytesText(bytes)).join(', ')]) }];
  }));
  if (rows.length > 0) table('Memory of a rank against the plan', (several ? ['run'] : []).concat(['tier', 'planned peak', 'measured peak', 'difference', 'budget', 'planned for']), rows, [several ? 6 : 5]);
}

let everyKey = false;
function configTable() {
  const { rows, equal } = data.config;
  if (rows.length === 0 && equal === 0) return;
  if (several) {
    if (rows.length === 0) {
      add($('tables'), 'h2', 'Configuration');
      add($('tables'), 'p', 'All ' + equal + ' keys are equal.');
      return;
    }
    table('Configuration: what differs', ['key'].concat(names()), rows.map((row) => ({ code: 0, cells: [row.key].concat(row.cells.map((cell) => (cell.length ? cell[0] + '  (' + cell[1] + ')' : '–'))) })), [0, ...names().map((_, r) => r + 1)]);
    add($('tables'), 'p', equal === 1 ? 'The other key is equal.' : 'The other ' + equal + ' keys are equal.', 'dim small');
    return;
  }
  const listed = rows.filter((row) => everyKey || row.cells[0][1] !== 'default');
  table('Configuration', ['key', 'value', 'from'], listed.map((row) => ({ code: 0, cells: [row.key, row.cells[0][0], row.cells[0][1]] })), [0, 1, 2]);
  const more = add($('tables'), 'button', everyKey ? 'only what was set' : 'all ' + rows.length + ' keys, with defaults');
  more.type = 'button';
  more.addEventListener('click', () => { everyKey = !everyKey; makeTables(); });
}

function makeTables() {
  $('tables').textContent = '';
  runsTable();
  phasesTable();
  memoryTable();
  configTable();
}

// ---- the timeline: one run's, and buttons for the others
function makeTimeline() {
  const having = data.runs.filter((run) => run.timeline);
  $('step').hidden = having.length === 0;
  if (having.length === 0) return;
  const showRun = (run) => {
    $('step-title').textContent = (!run.timeline_measured ? 'A step as planned' : run.timeline.rows.some((row) => row.name.startsWith('plan ')) ? 'The last step: measured and planned' : 'The last step as measured') + (several ? ', ' + run.name : '');
    startTimeline(run.timeline);
  };
  if (having.length > 1) {
    for (const run of having) {
      const button = add($('step-runs'), 'button', run.name);
      button.type = 'button';
      button.setAttribute('aria-pressed', String(run === having[0]));
      button.addEventListener('click', () => {
        for (const other of $('step-runs').children) other.setAttribute('aria-pressed', String(other === button));
        showRun(run);
      });
    }
  }
  showRun(having[0]);
}
