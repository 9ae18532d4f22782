"use strict";
(() => {
  const data = JSON.parse(document.getElementById("report-data").textContent);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const plots = [];

  const markLines = (u) => {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.strokeStyle = colour("--muted");
    ctx.globalAlpha = 0.5;
    ctx.setLineDash([3, 3]);
    ctx.lineWidth = devicePixelRatio;
    for (const mark of data.marks) {
      const x = Math.round(u.valToPos(mark.at_s, "x", true));
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  };

  const readout = (u, chart, line) => {
    const index = u.cursor.idx;
    if (index == null || u.cursor.left < 0) {
      line.replaceChildren(...u.__legend.map((node) => node.cloneNode(true)));
      return;
    }
    line.replaceChildren();
    const add = (tag, text) => {
      const part = document.createElement(tag);
      part.textContent = text;
      line.append(part);
      return part;
    };
    const shown = u.series.slice(1).map((series, i) => ({ series, i: i + 1 })).filter(({ series, i }) => {
      return chart.crowd ? i === u.__focus : true;
    });
    for (const { series, i } of shown) {
      const at = u.cursor.idxs ? u.cursor.idxs[i] : index;
      const value = at == null ? null : u.data[i][at];
      add("i", "").style.background = series.stroke ? colour(chart.crowd ? "--crowd" : `--line-${((i - 1) % 5) + 1}`) : "none";
      line.append(`${series.label} `);
      add("b", value == null ? "–" : value.toFixed(chart.digits));
    }
    line.append(` at +${u.data[0][index].toFixed(1)} s`);
  };

  const draw = (place) => {
    const chart = data.charts[Number(place.dataset.chart)];
    const line = place.parentElement.querySelector(".readout");
    place.__legend ??= [...line.childNodes].map((node) => node.cloneNode(true));
    const legend = place.__legend;
    const axis = (extra) => ({
      stroke: colour("--muted"), font: `12px ${colour("--sans")}`,
      grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1, size: 4 }, ...extra,
    });
    const aligned = uPlot.join(chart.series.map((series) => [series.x, series.y]));
    const u = new uPlot({
      width: Math.max(place.clientWidth, 200), height: 220, padding: [10, 8, 0, 0],
      scales: { x: { time: false, range: [0, data.duration_s] } },
      legend: { show: false },
      focus: { alpha: chart.crowd ? 0.2 : 1 },
      cursor: {
        focus: { prox: chart.crowd ? 30 : -1 }, points: { size: 7 }, drag: { x: false, y: false },
        dataIdx: (self, i, hovered) => {
          // Lines that share no instants: take each line's nearest reading, not the gap under the cursor.
          const values = self.data[i];
          if (values[hovered] != null) return hovered;
          for (let step = 1; step < values.length; step += 1) {
            if (values[hovered - step] != null) return hovered - step;
            if (values[hovered + step] != null) return hovered + step;
          }
          return null;
        },
      },
      axes: [
        axis({ values: (_, splits) => splits.map((v) => `${v} s`), space: 60 }),
        axis({ size: 52, values: (_, splits) => splits.map((v) => v.toLocaleString("en", { maximumFractionDigits: 3 })) }),
      ],
      series: [{}, ...chart.series.map((series, i) => ({
        label: series.name, spanGaps: true, width: chart.crowd ? 1.25 : 2, points: { show: series.x.length < 3 },
        stroke: chart.crowd ? colour("--crowd") + "8c" : colour(`--line-${(i % 5) + 1}`),
      }))],
      hooks: {
        drawClear: [markLines],
        setSeries: [(self, i) => { self.__focus = i; if (self.__legend) readout(self, chart, line); }],
        setCursor: [(self) => { if (self.__legend) readout(self, chart, line); }],
      },
    }, aligned, place);
    u.__legend = legend;
    return u;
  };

  const drawAll = () => {
    for (const u of plots.splice(0)) u.destroy();
    for (const place of document.querySelectorAll(".plot")) plots.push(draw(place));
  };
  drawAll();
  dark.addEventListener("change", drawAll);
  addEventListener("resize", () => {
    for (const u of plots) u.setSize({ width: Math.max(u.root.parentElement.clientWidth, 200), height: 220 });
  });
})();
