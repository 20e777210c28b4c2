// After curves.js: pointer, keyboard and tooltips.
// The lines of the tooltip at x: every series in view, then the marks within a few pixels.
curves.linesAt = (chart, x) => {
  const lines = [placeText(x, curves.axis)];
  if (!chart.marks) {
    for (const s of curves.visible(chart)) {
      const list = s.x[curves.axis];
      const i = curves.nearest(list, x);
      if (s.mean[i] === null) continue;
      const reach = (curves.b - curves.a) / chart.width * 24;
      const outside = s.least ? x < list[Math.max(0, i - 1)] - reach || x > list[i] + reach : Math.abs(list[i] - x) > Math.max(reach, curves.gap(list, i));
      if (outside) continue;
      const [least, most] = curves.extremes(s, i, x, (curves.b - curves.a) / chart.width * 1.5);
      const extremes = least < most ? ' (' + chart.format(least) + ' to ' + chart.format(most) + ')' : '';
      const text = (s.name ? s.name + ' ' : '') + chart.format(s.mean[i]) + extremes;
      lines.push({ text, colour: s.colour });
      if (lines.length === 2) lines[0] = placeText(list[i], curves.axis) + (curves.axis === 'step' ? '' : ', step ' + s.x.step[i]);
    }
  }
  const near = (curves.b - curves.a) / chart.width * 6;
  const marks = curves.marks.filter((m) => !curves.hidden.has(m.run) && !kSilent.includes(m.kind) && Math.abs(m.x[curves.axis] - x) <= near && (chart.marks || kLoud.includes(m.kind)));
  for (const mark of marks.slice(0, 6)) lines.push({ text: markName(mark.kind) + (curves.several > 1 ? ' (' + mark.runName + ')' : '') + ', step ' + mark.x.step + ': ' + mark.text, colour: curves.several > 1 ? mark.colour : markColour(mark.kind) });
  if (marks.length > 6) lines.push('and ' + (marks.length - 6) + ' more');
  return lines;
};
// The extremes of point i and of all points within `reach` of x: what a pixel column shows.
curves.extremes = (s, i, x, reach) => {
  const list = s.x[curves.axis];
  let least = Infinity, most = -Infinity;
  const take = (j) => {
    const low = s.least ? s.least[j] : s.mean[j], high = s.most ? s.most[j] : s.mean[j];
    if (low !== null && low < least) least = low;
    if (high !== null && high > most) most = high;
  };
  take(i);
  for (let j = above(list, x - reach); j < list.length && list[j] <= x + reach; ++j) take(j);
  if (s.least) take(Math.min(above(list, x), list.length - 1));  // the bin that x is in
  return [least, most];
};
curves.gap = (list, i) => Math.max(i > 0 ? list[i] - list[i - 1] : 0, i + 1 < list.length ? list[i + 1] - list[i] : 0);

curves.hover = (chart, px, event) => {
  curves.cursor = Math.min(Math.max(curves.valueAt(chart, px), curves.a), curves.b);
  const lines = curves.linesAt(chart, curves.cursor);
  if (lines.length > 1) show(lines, event.clientX, event.clientY); else $('tip').hidden = true;
  curves.redraw();
};
curves.leave = () => { $('tip').hidden = true; curves.cursor = null; curves.redraw(); };

// The places that arrow keys go to.
curves.stops = (chart) => {
  if (chart.marks) return [...new Set(curves.marks.filter((m) => !curves.hidden.has(m.run)).map((m) => m.x[curves.axis]))].sort((p, q) => p - q);
  const [first] = curves.visible(chart);
  return first ? first.x[curves.axis] : [];
};
curves.moveCursor = (chart, by) => {
  const stops = curves.stops(chart);
  if (stops.length === 0) return;
  let i = by === -Infinity ? 0 : by === Infinity ? stops.length - 1 : curves.cursor === null ? Math.min(above(stops, curves.a), stops.length - 1) : curves.nearest(stops, curves.cursor) + by;
  i = Math.min(stops.length - 1, Math.max(0, i));
  curves.cursor = stops[i];
  const length = curves.b - curves.a;
  if (curves.cursor < curves.a || curves.cursor > curves.b) curves.look(curves.cursor - length / 2, curves.cursor + length / 2);
  const box = chart.canvas.getBoundingClientRect();
  show(curves.linesAt(chart, curves.cursor), box.left + curves.xOf(chart, curves.cursor), box.top + 30, true);
  curves.redraw();
};

curves.onKey = (chart, event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const page = Math.max(1, Math.round(curves.stops(chart).length / 20));
  const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -page, PageDown: page, Home: -Infinity, End: Infinity };
  if (event.key in moves) curves.moveCursor(chart, moves[event.key] * (event.shiftKey ? 10 : 1));
  else if (event.key === '+' || event.key === '=') curves.zoom(0.5, curves.cursor);
  else if (event.key === '-') curves.zoom(2, curves.cursor);
  else if (event.key === '0') curves.lookAtAll();
  else if (event.key === 'Escape') { curves.drag = null; curves.leave(); } else return;
  event.preventDefault();
};

curves.listen = (chart) => {
  const canvas = chart.canvas;
  const fingers = new Map();
  const place = (event) => event.clientX - canvas.getBoundingClientRect().left;
  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    fingers.set(event.pointerId, place(event));
    canvas.setPointerCapture(event.pointerId);
    const x = Math.min(Math.max(curves.valueAt(chart, place(event)), curves.a), curves.b);
    curves.drag = fingers.size === 1 ? { from: x, to: x } : null;
    curves.hover(chart, place(event), event);
  });
  canvas.addEventListener('pointermove', (event) => {
    const px = place(event);
    const before = fingers.get(event.pointerId);
    if (before === undefined) { curves.hover(chart, px, event); return; }
    fingers.set(event.pointerId, px);
    const other = [...fingers].find(([id]) => id !== event.pointerId);
    if (other) {
      const was = Math.abs(before - other[1]), now = Math.abs(px - other[1]);
      if (was > 4 && now > 4) curves.zoom(was / now, curves.valueAt(chart, other[1]));
      return;
    }
    if (curves.drag) curves.drag.to = Math.min(Math.max(curves.valueAt(chart, px), curves.a), curves.b);
    curves.hover(chart, px, event);
  });
  canvas.addEventListener('pointerup', (event) => {
    fingers.delete(event.pointerId);
    const drag = curves.drag;
    curves.drag = null;
    // A drag of a few pixels is a click.
    if (drag && Math.abs(drag.to - drag.from) / (curves.b - curves.a) * chart.width > 6) curves.look(Math.min(drag.from, drag.to), Math.max(drag.from, drag.to));
    curves.redraw();
  });
  canvas.addEventListener('pointercancel', (event) => { fingers.delete(event.pointerId); curves.drag = null; curves.leave(); });
  canvas.addEventListener('pointerleave', curves.leave);
  canvas.addEventListener('blur', curves.leave);
  canvas.addEventListener('dblclick', curves.lookAtAll);
  canvas.addEventListener('keydown', (event) => curves.onKey(chart, event));
  canvas.addEventListener('wheel', (event) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      curves.zoom(Math.exp(event.deltaY * 0.002), curves.valueAt(chart, place(event)));
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      const shift = event.deltaX / chart.width * (curves.b - curves.a);
      curves.look(curves.a + shift, curves.b + shift);
    }
  }, { passive: false });
};

// Adds a chart with its canvas to `parent`. Returns the box of title and canvas.
curves.add = (parent, chart) => {
  const box = add(parent, 'figure', null, 'chart' + (chart.wide ? ' wide-chart' : ''));
  add(box, 'figcaption', chart.title);
  chart.canvas = add(box, 'canvas');
  chart.canvas.tabIndex = 0;
  chart.canvas.setAttribute('role', 'application');
  chart.canvas.setAttribute('aria-label', chart.title + '; arrow keys move from ' + (chart.marks ? 'event to event' : 'point to point') + ', + and - zoom, 0 shows all');
  curves.charts.push(chart);
  curves.listen(chart);
  return box;
};
