"use strict";
(() => {
  const data = JSON.parse(document.getElementById("report-data").textContent);
  const WORDS = {
    ok: "ok", limited: "limited (429)", refused: "refused (4xx)", server_error: "server error (5xx)",
    timeout: "no answer in time", transport: "no connection", unexpected: "not the service's answer",
  };
  const PERCENTILES = ["p50", "p95", "p99", "p99.9", "max"];
  const FONT = `12px ${getComputedStyle(document.body).fontFamily}`;
  const choice = { operation: 0, measure: "response" };
  const plots = new Map();
  const whole = [0, Math.max(data.duration_s, data.width_s)];
  let shown = whole;
  const sync = uPlot.sync("time");

  // A canvas needs the colour itself, which is another one in the dark and on paper.
  const probe = document.body.appendChild(document.createElement("i"));
  probe.hidden = true;
  const colour = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const soft = (name, percent) => `color-mix(in srgb, ${colour(name)} ${percent}%, transparent)`;

  // --- numbers, as simulator/fleet/report/formatting.py writes them ---
  const three = (v) => (Math.abs(v) < 9.995 ? v.toFixed(2) : Math.abs(v) < 99.95 ? v.toFixed(1) : Math.round(v).toLocaleString("en"));
  const timeText = (s) => {
    if (s == null) return "–";
    if (s === 0) return "0";
    for (const [size, unit] of [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]]) if (Math.abs(s) >= size * 0.9995) return `${three(s / size)} ${unit}`;
    return `${(s * 1e6).toFixed(2)} µs`;
  };
  const plainTime = (s) => (s == null ? "" : timeText(s).replace(/\.0+ /, " ").replace(/(\.\d*?)0+ /, "$1 "));
  const axisCount = (v) => (v == null ? "" : v.toLocaleString("en", { maximumFractionDigits: 2 }));
  const countText = (v) => (v == null ? "–" : v.toLocaleString("en", { maximumFractionDigits: Math.abs(v) < 10 ? 1 : 0 }));
  const percentText = (v) => (v == null ? "–" : `${v.toLocaleString("en", { maximumFractionDigits: 1 })} %`);
  const clock = (s) => {
    const t = Math.max(0, Math.floor(s));
    const two = (n) => String(n).padStart(2, "0");
    return t < 3600 ? `${Math.floor(t / 60)}:${two(t % 60)}` : `${Math.floor(t / 3600)}:${two(Math.floor((t % 3600) / 60))}:${two(t % 60)}`;
  };

  // --- what lies behind the lines: phases, faults, gaps ---
  const paintSpans = (u) => {
    const { ctx, bbox } = u;
    const at = (s) => Math.round(u.valToPos(Math.min(Math.max(s, shown[0]), shown[1]), "x", true));
    ctx.save();
    const fill = (spans, name, percent) => {
      ctx.fillStyle = soft(name, percent);
      for (const span of spans) {
        if (span.end_s < shown[0] || span.begin_s > shown[1]) continue;
        ctx.fillRect(at(span.begin_s), bbox.top, Math.max(at(span.end_s) - at(span.begin_s), 2 * devicePixelRatio), bbox.height);
      }
    };
    fill(data.faults, "--warn", 14);
    fill(data.gaps, "--bad", 26);
    ctx.strokeStyle = colour("--muted");
    ctx.globalAlpha = 0.5;
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.lineWidth = devicePixelRatio;
    for (const phase of data.phases) {
      if (phase.begin_s <= shown[0] || phase.begin_s >= shown[1]) continue;
      ctx.beginPath();
      ctx.moveTo(at(phase.begin_s), bbox.top);
      ctx.lineTo(at(phase.begin_s), bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  };

  // --- each kind of plot: columns, series, axes, and the words of its readout ---
  const line = (label, name, extra = {}) => ({ label, stroke: colour(name), width: 1.5, points: { show: false }, spanGaps: false, dot: name, ...extra });
  const bars = (value) => ({ values: (_, splits) => splits.map(value) });

  const KINDS = {
    rate() {
      const { outcomes } = data.operations[choice.operation];
      const kinds = Object.keys(WORDS).filter((kind) => outcomes[kind]?.some(Boolean));
      const rate = (kind) => outcomes[kind].map((v, i) => (data.seconds[i] ? (v ?? 0) / data.seconds[i] : null));
      const rates = Object.fromEntries(kinds.map((kind) => [kind, rate(kind)]));
      let sum = data.x.map(() => 0);
      const columns = kinds.map((kind) => (sum = sum.map((v, i) => (rates[kind][i] == null ? null : (v ?? 0) + rates[kind][i]))));
      return {
        columns, text: countText, raw: kinds.map((kind) => rates[kind]),
        series: kinds.map((kind, i) => line(WORDS[kind], `--o-${kind}`, i === 0 ? { fill: soft("--o-ok", 28) } : { width: 0 })),
        bands: kinds.slice(1).map((kind, i) => ({ series: [i + 2, i + 1], fill: soft(`--o-${kind}`, 70) })),
        y: bars(axisCount), height: 230,
      };
    },
    band() {
      const found = data.operations[choice.operation][`${choice.measure}_s`];
      const name = choice.measure === "response" ? "--line-1" : "--line-2";
      const widths = [1.25, 1.25, 2.25, 1.25, 1], dashes = [, [6, 3], , [2, 2], [1, 4]];
      const marks = ["thin", "dashed", "thick", "dotted", "sparse"];
      return {
        columns: PERCENTILES.map((p) => found[p].map((v) => (v > 0 ? v : null))), text: timeText,
        series: PERCENTILES.map((p, i) => line(p, p === "max" ? "--muted" : name, { width: widths[i], dash: dashes[i], mark: marks[i] })),
        bands: [[2, 1, 30], [3, 2, 20], [4, 3, 10]].map(([upper, lower, percent]) => ({ series: [upper, lower], fill: soft(name, percent) })),
        y: bars(plainTime), log: true, height: 300,
      };
    },
    gauge(place) {
      const { lines } = data.gauges[Number(place.dataset.of)], isEach = data.width_s === 1 || lines.length > 1;
      return {
        columns: isEach ? lines.map((each) => each.high) : [lines[0].high, lines[0].low], text: countText,
        series: isEach
          ? lines.map((each, i) => line(each.name, `--line-${(i % 5) + 1}`))
          : [line("highest", "--line-1"), line("lowest", "--line-3")],
        bands: isEach ? [] : [{ series: [1, 2], fill: soft("--line-1", 22) }], y: bars(axisCount), height: 170,
      };
    },
    lag() {
      const { send_lag_max_s: max, send_lag_p99_s: p99, loop_lag_max_s: loop } = data.generator;
      return {
        columns: [p99, max, loop], text: timeText, y: bars(plainTime), height: 170,
        series: [line("lag p99", "--line-1", { width: 2, mark: "thick" }), line("lag max", "--line-1", { dash: [2, 3], mark: "dotted" }), line("loop", "--line-2")],
      };
    },
    cpu() {
      const { cpu_percent: cpu, steal_percent: steal, sent, intended } = data.generator;
      const share = intended.map((v, i) => (v ? (100 * sent[i]) / v : null));
      return {
        columns: [cpu, steal, share], text: percentText, y: bars(percentText), height: 170,
        series: [line("CPU", "--line-1"), line("steal", "--line-2"), line("sent of intended", "--line-3")],
      };
    },
  };

  // Of a logarithmic axis only 1, 2 and 5 of each power of ten.
  const round = (_, splits) => splits.map((v) => (/^[125](\.0+)?e/.test(v.toExponential(3)) ? v : null));

  // --- one plot ---
  const show = (u, place) => {
    const out = place.parentElement.querySelector(".readout");
    const { spec } = u, i = u.cursor.idx, is = i != null && u.cursor.left >= 0;
    out.replaceChildren();
    spec.series.forEach((series, at) => {
      const part = document.createElement("span"), dot = document.createElement("i");
      dot.style.background = colour(series.dot);
      // Lines of one colour differ in their width, and those without one by the shade below them.
      if (series.mark) {
        dot.className = `mark ${series.mark}`;
        dot.style.borderColor = colour(series.dot);
      }
      part.append(dot, series.label);
      if (is) {
        const value = document.createElement("b");
        value.textContent = ` ${spec.text((spec.raw ?? spec.columns)[at][i])}`;
        part.append(value);
      }
      out.append(part, " ");
    });
    if (!is) return;
    const when = u.data[0][i];
    const faults = data.faults.filter((f) => f.begin_s <= when && when < f.end_s).map((f) => f.kind);
    out.append([`at ${clock(when)}`, ...faults].join(" · "));
  };

  const draw = (place) => {
    const spec = KINDS[place.dataset.plot](place);
    const axis = (extra) => ({
      stroke: colour("--muted"), font: FONT, grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1, size: 4 }, ...extra,
    });
    const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];
    const u = new uPlot({
      width: Math.max(place.clientWidth, 200), height: spec.height, padding: [10, 28, 0, 0],
      scales: {
        x: { time: false, range: () => shown },
        y: spec.log ? { distr: 3 } : { range: (_, min, max) => [0, (max || 1) * 1.06] },
      },
      legend: { show: false },
      cursor: { sync: { key: sync.key, setSeries: false }, points: { size: 6 }, drag: { x: true, y: false, setScale: false } },
      axes: [
        axis({ size: 28, values: (_, splits) => splits.map(clock), incrs: steps, space: 64 }),
        axis({ size: 66, space: 26, ...spec.y, ...(spec.log ? { filter: round, grid: { stroke: colour("--line"), width: 1, filter: round }, ticks: { stroke: colour("--line"), width: 1, size: 4, filter: round } } : {}) }),
      ],
      series: [{}, ...spec.series],
      bands: spec.bands ?? [],
      hooks: {
        drawClear: [paintSpans],
        setCursor: [(self) => self.spec && show(self, place)],
        setSelect: [(self) => {
          if (self.select.width < 4) return;
          zoom(self.posToVal(self.select.left, "x"), self.posToVal(self.select.left + self.select.width, "x"));
          self.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        }],
      },
    }, [data.x, ...spec.columns], place);
    u.spec = spec;
    sync.sub(u);
    u.over.addEventListener("dblclick", () => zoom(...whole));
    show(u, place);
    return u;
  };

  const redraw = (places) => {
    for (const place of places) {
      const old = plots.get(place);
      if (old) {
        sync.unsub(old);
        old.destroy();
      }
      plots.set(place, draw(place));
    }
  };
  const everyPlace = () => document.querySelectorAll(".plot");
  const zoom = (from, to) => {
    const least = Math.min(4 * data.width_s, whole[1]);
    const middle = (from + to) / 2, half = Math.max(to - from, least) / 2;
    shown = [Math.max(whole[0], middle - half), Math.min(whole[1], middle + half)];
    everything.hidden = shown[0] <= whole[0] && shown[1] >= whole[1];
    for (const place of everyPlace()) plots.get(place).setScale("x", { min: shown[0], max: shown[1] });
    drawStrip();
  };

  // --- keyboard: the cursor moves, and all plots with it ---
  const onKey = (event) => {
    const u = plots.get(event.currentTarget);
    const last = u.data[0].length - 1;
    const far = event.shiftKey ? 10 : 1;
    const at = u.cursor.idx ?? 0, isOn = u.cursor.left >= 0;
    const to = {
      ArrowRight: isOn ? Math.min(at + far, last) : 0, ArrowLeft: isOn ? Math.max(at - far, 0) : last, Home: 0, End: last,
    }[event.key];
    const point = (plot) => plot.setCursor({ left: plot.valToPos(u.data[0][to], "x"), top: plot.bbox.height / devicePixelRatio / 2 }, true, false);
    if (to !== undefined) for (const place of everyPlace()) point(plots.get(place));
    else if (event.key === "+" || event.key === "-") {
      const half = (shown[1] - shown[0]) * (event.key === "+" ? 0.25 : 1), middle = isOn ? u.data[0][at] : (shown[0] + shown[1]) / 2;
      zoom(middle - half, middle + half);
    } else if (event.key === "Escape") zoom(...whole);
    else return;
    event.preventDefault();
  };

  // --- the strip of phases, faults and gaps above the plots ---
  const drawStrip = () => {
    const strip = document.querySelector(".strip");
    strip.replaceChildren();
    const left = 66, right = 28;
    for (const [kind, spans] of [["phase", data.phases], ["fault", data.faults], ["gap", data.gaps]]) {
      if (!spans.length) continue;
      const row = document.createElement("div");
      row.className = `strip-row ${kind}`;
      row.style.margin = `0 ${right + 18}px 2px ${left + 18}px`;
      for (const span of spans) {
        const from = Math.max(span.begin_s, shown[0]), to = Math.min(span.end_s, shown[1]);
        if (to <= from) continue;
        const part = document.createElement("i");
        const share = (s) => ((s - shown[0]) / (shown[1] - shown[0])) * 100;
        part.style.left = `${share(from)}%`;
        part.style.width = `${share(to) - share(from)}%`;
        part.textContent = kind === "gap" ? "" : kind === "fault" ? span.kind.replaceAll("_", " ") : span.name;
        part.title = `${span.name} (${span.kind}), ${clock(span.begin_s)} to ${clock(span.end_s)}`;
        row.append(part);
      }
      strip.append(row);
    }
  };

  // --- tables that sort by a column ---
  const number = (text) => {
    const found = /^<?\s*(-?[\d,]+(?:\.\d+)?)\s*(µs|ms|s|%)?/.exec(text);
    return found ? Number(found[1].replaceAll(",", "")) * ({ µs: 1e-6, ms: 1e-3 }[found[2]] ?? 1) : NaN;
  };
  const sortable = (table) => {
    const heads = [...table.querySelectorAll("thead th")];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const isDown = head.getAttribute("aria-sort") === "descending" || (!head.hasAttribute("aria-sort") && !head.classList.contains("n"));
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", isDown ? "ascending" : "descending");
        const body = table.tBodies[0];
        const rows = [...body.rows].map((row) => ({ row, text: row.cells[column].textContent.trim() }));
        const isNumber = rows.some(({ text }) => !Number.isNaN(number(text))) && head.classList.contains("n");
        rows.sort((a, b) => {
          if (!isNumber) return a.text.localeCompare(b.text, "en", { numeric: true }) * (isDown ? 1 : -1);
          const [x, y] = [number(a.text), number(b.text)];
          if (Number.isNaN(x) || Number.isNaN(y)) return Number(Number.isNaN(x)) - Number(Number.isNaN(y));
          return (x - y) * (isDown ? 1 : -1);
        });
        body.append(...rows.map(({ row }) => row));
      });
    });
  };

  // --- it begins ---
  const everything = document.querySelector('[data-choice="everything"]');
  everything.addEventListener("click", () => zoom(...whole));
  document.querySelector(".choices").addEventListener("submit", (event) => event.preventDefault());
  document.querySelector(".choices").addEventListener("change", (event) => {
    const name = event.target.dataset.choice;
    choice[name] = name === "operation" ? Number(event.target.value) : event.target.value;
    redraw(document.querySelectorAll('[data-plot="rate"], [data-plot="band"]'));
  });
  for (const place of everyPlace()) place.addEventListener("keydown", onKey);
  for (const table of document.querySelectorAll("table[data-sortable]")) sortable(table);
  redraw(everyPlace());
  drawStrip();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw(everyPlace()));
  addEventListener("resize", () => {
    for (const [place, u] of plots) u.setSize({ width: Math.max(place.clientWidth, 200), height: u.spec.height });
  });
  const print = (isOn) => {
    document.documentElement.classList.toggle("printing", isOn);
    redraw(everyPlace());
  };
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
})();
