#!/usr/bin/env python3
"""The page of `sluice report` in a headless Chromium: drawn curves against data, hover, zoom, keyboard, several runs,
damaged files, light and dark, paper, and --watch.

Usage: report_page_test.py SLUICE [FOLDER FOR SCREENSHOTS].  Ends with 77 (skipped) where no Chromium is found.

Pictures of browsers differ by version and fonts, so no picture is kept. A chart tells its axes in data-plot, and the
test looks for the curve's colour on the canvas where the data say that it must be.
"""
import json
import math
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "page"))
import browser  # noqa: E402

PEAK = 40.0


def loss_at(step, steps, shift):
    return 3 + shift + 7 * math.exp(-9 * step / steps) + 0.03 * math.sin(step)


def write_run(folder, steps, shift=0.0, peak=0, damaged=False):
    """metrics.jsonl, events.jsonl, config.yaml, plan.json and trace.json of a run that never was."""
    folder.mkdir(parents=True)
    lines = []
    for step in range(1, steps + 1):
        lines.append(json.dumps({
            "step": step, "loss": PEAK if step == peak else loss_at(step, steps, shift), "grad_norm": 1 + 1 / step, "lr": 1e-3 * step / steps,
            "loss_scale": 1.0, "skipped": step == 17, "tokens": 1000 * step, "step_ms": 50.0, "tokens_per_s": 20000.0 + step % 7, "mfu": 0.4,
            "memory": {"device_peak": 1 << 30, "host_peak": 0, "pinned": 0, "nvme": 0, "resident_peak": 2 << 30},
            "timers_ms": {"forward": 15.0 + shift, "backward": 30.0, "comm": 2.0, "optimizer": 3.0, "io": 0.0, "data": 0.1},
            **({"eval_loss": loss_at(step, steps, shift)} if step % (steps // 4) == 0 else {})}))
    if damaged:
        lines.insert(3, "no JSON <img src=x onerror=alert(1)>")
        lines.append('{"step": 5')
    (folder / "metrics.jsonl").write_text("\n".join(lines) + ("" if damaged else "\n"))
    half = steps // 2
    events = [("start", 0, "sluice train <b>run</b>.yaml"), ("save", half, "checkpoint is complete"), ("restart", half + 3, "rank 1 failed"),
              ("resume", half, "resumed"), ("end", steps, "finished")]
    (folder / "events.jsonl").write_text("".join(json.dumps({"time": 1.7e9 + i, "event": kind, "step": step, "text": text}) + "\n"
                                                 for i, (kind, step, text) in enumerate(events)))
    (folder / "config.yaml").write_text(f"train:\n  steps: {steps}  # run.yaml:2:10\n  seed: {int(shift)}  # --set\n")
    (folder / "plan.json").write_text(json.dumps({"tiers": {"device": {"peak": 1 << 30, "budget": 3 << 29, "by_tag": {"parameters": 1 << 30}}}}))
    slices = [{"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": "compute"}}]
    slices += [{"ph": "X", "name": f"Forward {i}", "pid": 0, "tid": 0, "ts": 10 * i, "dur": 9, "args": {}} for i in range(20)]
    (folder / "trace.json").write_text(json.dumps({"traceEvents": slices}))


def check(condition, what):
    if not condition:
        raise AssertionError(what)


# Pixels of the canvas: how many are not the background, and whether a colour is near (x, y) of the plot.
PROBES = """
window.probe = (canvas) => {
  const plot = JSON.parse(canvas.dataset.plot);
  const g = canvas.getContext('2d');
  const image = g.getImageData(0, 0, canvas.width, canvas.height);
  const ratio = canvas.width / canvas.clientWidth;
  const rgb = (name) => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim().slice(1).match(/../g).map((h) => parseInt(h, 16));
  return {
    plot,
    inked() { let n = 0; for (let i = 3; i < image.data.length; i += 4) if (image.data[i] > 0) ++n; return n; },
    x(value) { return plot.left + (value - plot.a) / (plot.b - plot.a) * plot.width; },
    y(value) { return plot.bottom - (value - plot.low) / (plot.high - plot.low) * (plot.bottom - plot.top); },
    near(px, py, colour, reach) {
      const want = rgb(colour);
      for (let y = Math.floor((py - reach) * ratio); y <= (py + reach) * ratio; ++y) {
        for (let x = Math.floor((px - reach) * ratio); x <= (px + reach) * ratio; ++x) {
          const at = 4 * (y * canvas.width + x);
          if (x < 0 || y < 0 || x >= canvas.width || y >= canvas.height || image.data[at + 3] < 60) continue;
          if (want.every((w, c) => Math.abs(w - image.data[at + c]) < 48)) return true;
        }
      }
      return false;
    },
  };
};
window.chart = (title) => [...document.querySelectorAll('figure.chart')].find((f) => f.querySelector('figcaption').textContent.startsWith(title)).querySelector('canvas');
0
"""


class Report:
    def __init__(self, page):
        self.page = page
        page.evaluate(PROBES)

    def titles(self):
        return self.page.evaluate("[...document.querySelectorAll('figure.chart figcaption')].map((c) => c.textContent)")

    def plot(self, title="Training loss"):
        return self.page.evaluate(f"probe(chart({json.dumps(title)})).plot")

    def near(self, title, x, y, colour, reach=3):
        return self.page.evaluate(f"(() => {{ const p = probe(chart({json.dumps(title)})); return p.near(p.x({x}), p.y({y}), '{colour}', {reach}); }})()")

    def box(self, title="Training loss"):
        return self.page.evaluate(f"(() => {{ chart({json.dumps(title)}).scrollIntoView({{block: 'center'}}); const b = chart({json.dumps(title)}).getBoundingClientRect();"
                                  " return {left: b.left, top: b.top, height: b.height}; })()")

    def tip(self):
        return self.page.evaluate("document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent")

    def check_drawn(self):
        for title in self.titles():
            check(self.page.evaluate(f"probe(chart({json.dumps(title)})).inked()") > 300, f"{title}: the chart is empty")
        check(self.page.complaints() == [], f"the console has {self.page.complaints()}")
        check(self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than the window")
        check(self.page.evaluate("document.querySelector('main img, main b b') === null"), "data became markup")

    def hover(self, x, title="Training loss"):
        """The pointer at a value of the x axis; the tooltip's text."""
        box, plot = self.box(title), self.plot(title)
        self.page.move(box["left"] + plot["left"] + (x - plot["a"]) / (plot["b"] - plot["a"]) * plot["width"], box["top"] + box["height"] / 2)
        return self.tip()

    def click(self, selector):
        self.page.evaluate(f"document.querySelector({json.dumps(selector)}).click()")
        self.page.frame()


def check_one_run(report, steps):
    """Curves are where the data say, in steps and in tokens; hover, zoom and keyboard."""
    report.check_drawn()
    for title in ("Training loss", "What happened", "Validation loss", "Gradient norm", "Learning rate", "Tokens per second", "MFU", "Time of a step by phase",
                  "Memory of a rank: device"):
        check(any(t.startswith(title) for t in report.titles()), f"no chart {title}")
    for step in (1, steps // 10, steps // 2, steps):
        y = loss_at(step, steps, 0)
        check(report.near("Training loss", step, y, "c0"), f"the loss of step {step} is not drawn at {y}")
        check(not report.near("Training loss", step, y + 2, "c0"), f"something is drawn above the loss of step {step}")
    check(report.near("Validation loss", steps // 2, loss_at(steps // 2, steps, 0), "c0"), "the validation loss is not drawn")
    check(report.near("Memory of a rank: device", steps // 2, 3 << 29, "budget", 6), "the budget is not drawn")
    tip = report.hover(steps // 2)
    check(f"step {steps // 2}" in tip and f"{loss_at(steps // 2, steps, 0):.4g}"[:4] in tip, f"the tooltip says {tip!r}")
    check("resumed" in tip and "rank 1 failed" not in tip, f"no resume in {tip!r}")

    box, plot = report.box(), report.plot()
    x = lambda value: box["left"] + plot["left"] + (value - plot["a"]) / (plot["b"] - plot["a"]) * plot["width"]  # noqa: E731
    report.page.drag(x(steps * 0.25), x(steps * 0.5), box["top"] + 60)
    for title in ("Training loss", "Learning rate", "What happened"):
        now = report.plot(title)
        check(abs(now["a"] - steps * 0.25) < steps * 0.01 and abs(now["b"] - steps * 0.5) < steps * 0.01, f"{title}: the drag led to {now}")
    middle = round(steps * 0.4)
    check(report.near("Training loss", middle, loss_at(middle, steps, 0), "c0"), "the curve is not where it should be after the zoom")

    report.page.evaluate("chart('Training loss').focus()")
    report.page.press("0")
    check(report.plot()["b"] == steps, "0 does not show all")
    report.page.press("End")
    report.page.press("ArrowLeft")
    check(f"step {steps - 1}" in report.tip(), f"the arrow key led to {report.tip()!r}")
    check(f"step {steps - 1}" in report.page.evaluate("document.getElementById('said').textContent"), "the value is not said")
    report.page.press("+")
    check(report.plot()["b"] - report.plot()["a"] < steps * 0.6, "+ does not zoom")
    report.page.press("Escape")
    check(report.tip() == "", "Escape leaves the tooltip")
    report.click("#everything")

    report.click("#axes [data-axis=tokens]")
    check(report.plot()["b"] == 1000 * steps, "the axis of tokens ends elsewhere")
    check(report.near("Training loss", 1000 * (steps // 2), loss_at(steps // 2, steps, 0), "c0"), "the loss over tokens is not drawn")
    check("tokens" in report.hover(1000 * (steps // 2)), "the tooltip has no tokens")
    report.click("#axes [data-axis=step]")
    report.click("#log")
    check(report.plot()["log"] is True and report.plot("Learning rate")["log"] is False, "log scale")
    report.click("#log")
    check("checkpoint is complete" in report.page.evaluate("document.getElementById('happened').textContent"), "the list of events lacks the save")
    check("run.yaml:2:10" in report.page.evaluate("document.getElementById('tables').textContent"), "the configuration lacks its origin")
    check(report.page.evaluate("document.querySelectorAll('#plots canvas').length") == 1, "no timeline of the step")


def check_peak(report, steps, peak):
    """One high step among many: in the band of its bin, at its place, and in the tooltip."""
    report.check_drawn()
    check(report.plot()["high"] >= PEAK, "the peak is not on the axis")
    check(report.page.evaluate(f"(() => {{ const c = chart('Training loss'), p = probe(c); for (let y = p.y({PEAK}) - 3; y < p.y({PEAK}) + 8; ++y)"
                               f" for (let x = p.x({peak}) - 3; x <= p.x({peak}) + 3; ++x) {{ const d = c.getContext('2d').getImageData(x, y, 1, 1).data; if (d[2] > d[0] + 10 && d[3] > 20) return true; }}"
                               " return false; })()"), "the peak is not drawn")
    check("40)" in report.hover(peak), f"the tooltip does not know the peak: {report.tip()!r}")
    check("a point" in report.page.evaluate("document.getElementById('binned').textContent"), "the page does not say how many steps a point has")


def check_several(report, steps):
    report.check_drawn()
    for r, colour in enumerate(("c0", "c4", "c6")):
        check(report.near("Training loss", steps // 2, loss_at(steps // 2, steps, r), colour), f"run {r} is not drawn")
    tip = report.hover(steps // 2)
    check(all(f"run{r}" in tip for r in range(3)), f"the tooltip lacks a run: {tip!r}")
    check(report.page.evaluate("document.querySelectorAll('#runs button').length") == 3, "no legend")
    report.click("#runs button:nth-child(2)")
    check(not report.near("Training loss", steps // 2, loss_at(steps // 2, steps, 1), "c4"), "the hidden run is drawn")
    report.click("#runs button:nth-child(2)")
    check(report.near("Training loss", steps // 2, loss_at(steps // 2, steps, 1), "c4"), "the run does not come back")
    text = report.page.evaluate("document.getElementById('tables').textContent")
    check("what differs" in text and "train.seed" in text and "train.steps" not in text, f"the configuration is not compared: {text!r}")


def sluice(program, *arguments, code=0):
    done = subprocess.run([program, "report", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=120)
    check(done.returncode == code, f"{arguments}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def check_watch(program, chromium, folder):
    """The served page follows the run; Ctrl-C ends the server."""
    write_run(folder, 200)
    server = subprocess.Popen([program, "report", str(folder), "--watch"], stdout=subprocess.PIPE, encoding="utf-8")
    try:
        url = next(m.group(0) for m in (re.search(r"http://127\.0\.0\.1:\d+/", line) for line in server.stdout) if m)
        report = Report(chromium.open(url))
        report.check_drawn()
        check(report.plot()["b"] == 200, "the served page has other steps")
        with open(folder / "metrics.jsonl", "a", encoding="utf-8") as more:
            more.writelines(json.dumps({"step": s, "loss": 3.0, "tokens": 1000 * s, "step_ms": 50.0}) + "\n" for s in range(201, 301))
        report.page.wait_for("probe(chart('Training loss')).plot.b === 300")
        report.check_drawn()
        for path, status in (("etc/passwd", 404), ("../x", 404)):
            try:
                urllib.request.urlopen(url + path)
                raise AssertionError(f"{path} is served")
            except urllib.error.HTTPError as refused:
                check(refused.code == status, f"{path}: {refused.code}")
    finally:
        server.send_signal(signal.SIGINT)
        code = server.wait(timeout=30)
    check(code == 130, f"Ctrl-C: exit code {code}")


def check_other_pages(program, chromium, scratch):
    """Pages of other commands share the scripts: they draw, and their console is empty."""
    (scratch / "text.txt").write_text("a text that repeats itself a little; " * 500)
    (scratch / "plan.yaml").write_text("model: {type: gpt2, layers: 2, hidden: 64, heads: 4, seq: 64, vocab: 257}\ndata: {text: [text.txt]}\n"
                                       "train: {steps: 3, micro_batch: 1}\nzero: {stage: 3}\nlaunch: {nproc: 2}\n")
    for arguments, canvases in ((["data", "stats", "text.txt", "--html", "stats.html"], 3), (["plan", "plan.yaml", "--profile", "h100-sxm", "--html", "plan.html"], 2)):
        subprocess.run([program, *arguments], cwd=scratch, check=True, stdout=subprocess.DEVNULL, timeout=120)
        page = chromium.open((scratch / arguments[-1]).as_uri())
        page.evaluate(PROBES)
        inked = page.evaluate("[...document.querySelectorAll('canvas')].map((c) => { const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let n = 0;"
                              " for (let i = 3; i < d.length; i += 4) if (d[i] > 0) ++n; return n; })")
        check(len(inked) >= canvases and min(inked) > 300, f"{arguments[-1]}: charts with {inked} pixels")
        page.evaluate("document.querySelector('canvas').focus()")
        page.press("ArrowRight")
        check(page.evaluate("!document.getElementById('tip').hidden"), f"{arguments[-1]}: no tooltip")
        check(page.complaints() == [], f"{arguments[-1]}: the console has {page.complaints()}")


def run(program, scratch, pictures):
    steps = 400
    for r in range(3):
        write_run(scratch / f"run{r}", steps, float(r))
    write_run(scratch / "long", 60_000, peak=41_234)
    write_run(scratch / "broken", 40, damaged=True)
    print(sluice(program, scratch / "run0"))
    sluice(program, *(scratch / f"run{r}" for r in range(3)), "-o", scratch / "three.html")
    check("metrics.jsonl:4: no JSON object" in sluice(program, scratch / "broken"), "the terminal does not name the damaged line")
    sluice(program, scratch / "long", "-o", scratch / "long.html")
    check((scratch / "long.html").stat().st_size < 3 << 20, "a long run makes a large page")
    with browser.Browser() as chromium:
        report = Report(chromium.open((scratch / "run0" / "report.html").as_uri()))
        check_one_run(report, steps)
        check(len(report.page.print_pdf()) > 10_000, "the page does not print")
        check_peak(Report(chromium.open((scratch / "long.html").as_uri())), 60_000, 41_234)
        check_several(Report(chromium.open((scratch / "three.html").as_uri(), dark=True)), steps)
        report = Report(chromium.open((scratch / "three.html").as_uri(), width=390, height=800, phone=True))
        report.check_drawn()
        report = Report(chromium.open((scratch / "broken" / "report.html").as_uri()))
        report.check_drawn()
        check("metrics.jsonl:4" in report.page.evaluate("document.getElementById('damage').textContent"), "the page does not name the damaged line")
        check_watch(program, chromium, scratch / "watched")
        check_other_pages(program, chromium, scratch)
        if pictures:
            for name, width, dark in (("run0/report", 1200, False), ("three", 1200, True), ("three", 390, False), ("broken/report", 1200, False), ("long", 1200, False)):
                chromium.open((scratch / f"{name}.html").as_uri(), width=width, dark=dark).screenshot(f"{pictures}/{name.replace('/', '-')}-{width}.png")
    print("every chart is drawn where the data say")


def main(argv):
    try:
        with browser.Browser():
            pass
    except browser.NoBrowser as missing:
        print(f"skipped: {missing}")
        return 77
    with tempfile.TemporaryDirectory(prefix="sluice-report-") as scratch:
        run(argv[1], pathlib.Path(scratch), argv[2] if len(argv) > 2 else "")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
