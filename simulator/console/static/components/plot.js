// One line over time. Dragging over a part of it zooms in; the pointer shows values on all plots of the page at once.
import { html, useEffect, useRef, useState } from "../core/html.js";
import { colour, loadPlot } from "../core/plot.js";
import { value as shown } from "../core/text.js";

const HEIGHT = 150;
const two = (number) => String(number).padStart(2, "0");

/** Ticks of the time axis, as exact as the range needs. */
function ticks(plot, seconds) {
  const range = plot.scales.x.max - plot.scales.x.min;
  return seconds.map((second) => {
    const at = new Date(second * 1000);
    const clock = `${two(at.getHours())}:${two(at.getMinutes())}`;
    if (range < 600) return `${clock}:${two(at.getSeconds())}`;
    return range < 2 * 86400 ? clock : `${at.getDate()}.${at.getMonth() + 1}. ${clock}`;
  });
}

function options(width, number, onZoom, onCursor, unit) {
  const axis = { stroke: colour("--muted"), font: "12px ui-sans-serif, system-ui, sans-serif", grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1, size: 4 } };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { sync: { key: "device" }, drag: { x: true, y: false, setScale: false }, points: { size: 7 } },
    scales: { x: { time: true, auto: false, range: (plot, min, max) => [min, max] } },
    axes: [
      { ...axis, space: 80, size: 30, values: ticks },
      { ...axis, size: (plot, marks) => 20 + 7.5 * Math.max(6, ...(marks ?? []).map((mark) => mark.length)), values: (plot, marks) => marks.map((mark) => `${shown(mark)}${unit === "%" || unit.startsWith("°") ? unit.replace("C", "") : ""}`) },
    ],
    series: [{}, { stroke: colour(`--line-${(number % 6) + 1}`), width: 1.5, points: { size: 4, show: (plot, series, first, last) => last - first < 60 } }],
    hooks: {
      setSelect: [(plot) => {
        const { left, width: wide } = plot.select;
        if (wide < 4) return;
        plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        onZoom(plot.posToVal(left, "x") * 1000, plot.posToVal(left + wide, "x") * 1000);
      }],
      setCursor: [(plot) => onCursor(plot.cursor.idx == null || plot.cursor.left < 0 ? null : plot.cursor.idx)],
    },
  };
}

/** @param {{data: [number[], number[]], from: number, to: number, label: string, unit: string, number: number, onZoom: Function}} properties */
export function Plot({ data, from, to, label, unit, number, onZoom }) {
  const place = useRef(null);
  const plot = useRef(null);
  const readout = useRef(null);
  const latest = useRef(null);
  const [failed, setFailed] = useState(false);
  latest.current = { data, from, to, onZoom, unit };

  useEffect(() => {
    let stopped = false;
    let watch = null;
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const say = (index) => {
      const { data: [xs, ys], unit: ofValue } = latest.current;
      readout.current.textContent = index === null || ys[index] === undefined ? "" : `${shown(ys[index])} ${ofValue} at ${new Date(xs[index] * 1000).toLocaleTimeString("en-GB")}`;
    };
    const make = (UPlot) => {
      if (stopped) return;
      plot.current?.destroy();
      const { data: now, from: min, to: max } = latest.current;
      plot.current = new UPlot(options(place.current.clientWidth, number, (one, other) => latest.current.onZoom(one, other), say, unit), now, place.current);
      plot.current.setScale("x", { min: min / 1000, max: max / 1000 });
      watch ??= new ResizeObserver(() => plot.current.setSize({ width: place.current.clientWidth, height: HEIGHT }));
      watch.observe(place.current);
    };
    const again = () => loadPlot().then(make, () => setFailed(true));
    again();
    dark.addEventListener("change", again);
    return () => {
      stopped = true;
      watch?.disconnect();
      dark.removeEventListener("change", again);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [number, unit]);

  useEffect(() => {
    if (!plot.current) return;
    plot.current.setData(data, false);
    plot.current.setScale("x", { min: from / 1000, max: to / 1000 });
  }, [data, from, to]);

  const inRange = data[1].filter((_, index) => data[0][index] * 1000 >= from && data[0][index] * 1000 <= to);
  const summary = inRange.length ? `lowest ${shown(Math.min(...inRange))}, highest ${shown(Math.max(...inRange))}${unit && ` ${unit}`}` : "nothing in this range";
  return html`<figure class="plot">
    <figcaption><h3>${label}${unit && html` <span class="quiet">${unit}</span>`}</h3><span class="quiet small" ref=${readout}></span></figcaption>
    ${failed ? html`<p class="quiet">The plots could not be loaded: load the page again.</p>` : html`<div class="plot-place" ref=${place} role="img" aria-label="${label}: ${summary}"></div>`}
  </figure>`;
}
