// Of the page of plan_body.html, after timeline.js. Its data (runtime/plan/page/html_page.cpp): the plan, and times in ticks, `ticks` of them in the drawn step.
const plan = data.plan;
// ---- what stands above the charts -----------------------------------------------------------
$('about').textContent = data.about;
$('verdict').textContent = data.verdict;
$('verdict').className = plan.fits ? 'fits' : 'misses';
figure(secondsText(plan.step_ms / 1e3), 'a step');
figure(countText(plan.tokens_per_s), 'tokens/s');
figure((100 * plan.mfu).toFixed(1) + ' %', 'MFU');
figure(plan.limiting_lane, 'limits the step');
for (const tier of data.tiers) figure(bytesText(tier.peak), tier.name + ' of a rank, peak');
if (plan.run_seconds > 0) figure(longText(plan.run_seconds), 'the run, ' + countText(plan.run_steps) + ' steps');
if (plan.token_budget) {
  figure(longText(plan.token_budget.seconds), countText(plan.token_budget.tokens) + ' tokens, ' +
    countText(plan.token_budget.steps) + ' steps');
}
if (plan.drive_seconds) figure(longText(plan.drive_seconds), 'until a drive of a node is worn out');

// ---- tables ---------------------------------------------------------------------------------
const orDash = (bytes) => (bytes > 0 ? bytesText(bytes) : '–');

function makeTables() {
  const phases = Object.keys(plan.by_phase);
  for (const tier of data.tiers) {
    const of = phases.map((phase) => plan.by_phase[phase][tier.name]);
    const tags = [...new Set(of.flatMap((phase) => Object.keys(phase.by_tag)))];
    const rest = of.map((phase) => phase.peak - Object.values(phase.by_tag).reduce((a, b) => a + b, 0));
    const rows = tags.map((tag) => ({ cells: [words(tag)].concat(of.map((phase) => orDash(phase.by_tag[tag] || 0))) }));
    if (rest.some((bytes) => bytes > 0)) rows.push({ cells: ['slots not in use'].concat(rest.map(orDash)) });
    if (tier.beside > 0) rows.push({ cells: [tier.beside_name].concat(phases.map(() => orDash(tier.beside))) });
    rows.push({ sum: true, cells: ['peak'].concat(of.map((phase) => orDash(phase.peak + tier.beside))) });
    if (tier.nccl > 0) rows.push({ cells: [tier.nccl_name].concat(phases.map(() => orDash(tier.nccl))) });
    table(tier.name + ' by phase', ['bytes of a rank'].concat(phases), rows);
  }
  const busy = Object.entries(plan.lanes).filter(([, lane]) => lane.busy_ms > 0);
  table('Lanes', ['lane', 'busy', 'of the step', 'compute waits', 'hides from'], busy.map(([name, lane]) => ({
    cells: [name, secondsText(lane.busy_ms / 1e3), (100 * lane.busy_ms / plan.step_ms).toFixed(1) + ' %',
      lane.waiting_ms > 0 ? secondsText(lane.waiting_ms / 1e3) : '–',
      name === 'compute' ? '' : lane.tokens_to_hide === null ? 'grows with tokens' : lane.tokens_to_hide > 0 ? countText(lane.tokens_to_hide) + ' tokens' : 'hides'] })));
  const node = plan.per_node;
  table('Bytes', ['', 'a rank', 'a node of ' + node.ranks], [
    ['device, peak', plan.tiers.device.peak, node.device], ['host, peak', plan.tiers.host.peak, node.host], ['NVMe', plan.tiers.nvme.peak, node.nvme],
    ['sent in a step', plan.comm_bytes, node.comm_bytes], ['to the host in a step', plan.to_host_bytes, node.to_host_bytes],
    ['to the device in a step', plan.to_device_bytes, node.to_device_bytes], ['read from NVMe in a step', plan.nvme_read_bytes_per_step, node.nvme_read_bytes_per_step],
    ['written to NVMe in a step', plan.nvme_write_bytes_per_step, node.nvme_write_bytes_per_step],
  ].filter((row) => row[1] > 0).map((row) => ({ cells: [row[0], bytesText(row[1]), bytesText(row[2])] })));
  if (plan.search) {
    table('Suggestions', ['arguments', 'a step', 'tokens/s', 'device', 'host', 'NVMe', 'fits'], plan.suggestions.concat(plan.other_numbers).map((s) => ({ code: 0, classes: ['', '', '', '', '', '', s.fits ? 'yes' : 'no'],
      cells: [(s.with ? 'other numbers, with ' + s.with + ': ' : '') + (s.set_line || 'as configured'), secondsText(s.step_ms / 1e3), countText(s.tokens_per_s), orDash(s.peak.device), orDash(s.peak.host), orDash(s.peak.nvme), s.fits ? 'yes' : 'misses ' + bytesText(s.missing)] })), [0]);
    add($('tables'), 'p', plan.search.evaluated + ' of ' + plan.search.candidates + ' configurations were planned.', 'dim');
  }
  if (plan.compare) {
    table('Stages and offload targets', ['offload', 'stage', 'device', 'host', 'NVMe', 'a step', 'fits'], plan.compare.map((row) => ({ classes: ['', '', '', '', '', '', row.fits ? 'yes' : 'no'],
      cells: row.refused ? [row.offload, String(row.stage), '-', '-', '-', '-', 'refused: ' + row.refused]
        : [row.offload, String(row.stage), orDash(row.peak.device), orDash(row.peak.host), orDash(row.peak.nvme), secondsText(row.step_ms / 1e3), row.fits ? 'yes' : 'no'] })));
  }
  for (const note of plan.notes) add($('tables'), 'p', 'Note: ' + note, 'dim');
}

startTimeline(data);
makeTables();
