// One or a few lines over time, drawn by uPlot. Plots with the same `sync` show the pointer's time together.
import { value as shown } from "./text.js";
import { html, useEffect, useRef, useState } from "./ui.js";

const two = (number) => String(number).padStart(2, "0");
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Ticks of an axis of times, as exact as the range needs. */
function clockTicks(plot, seconds) {
  const range = plot.scales.x.max - plot.scales.x.min;
  return seconds.map((second) => {
    const at = new Date(second * 1000);
    const clock = `${two(at.getHours())}:${two(at.getMinutes())}`;
    if (range < 600) return `${clock}:${two(at.getSeconds())}`;
    return range < 2 * 86400 ? clock : `${at.getDate()}.${at.getMonth() + 1}. ${clock}`;
  });
}

function options({ lines, height, sync, isClock }, width, onIndex) {
  const grid = { stroke: colour("--line"), width: 1 };
  const axis = { stroke: colour("--muted"), font: "12px system-ui, sans-serif", grid, ticks: { ...grid, size: 4 } };
  return {
    width,
    height,
    legend: { show: false },
    cursor: { sync: sync ? { key: sync } : undefined, drag: { x: false, y: false }, points: { size: 7 } },
    scales: { x: { time: isClock } },
    axes: [
      isClock ? { ...axis, space: 80, size: 30, values: clockTicks } : { ...axis, size: 30 },
      {
        ...axis,
        size: (_, marks) => 20 + 7.5 * Math.max(5, ...(marks ?? []).map((mark) => mark.length)),
        values: (_, marks) => marks.map(shown),
      },
    ],
    series: [{}, ...lines.map((_, number) => ({
      stroke: colour(`--line-${(number % 2) + 1}`), width: 1.5, spanGaps: true,
      points: { size: 4, show: (plot, series, first, last) => last - first < 60 },
    }))],
    hooks: { setCursor: [(plot) => onIndex(plot.cursor.left < 0 ? null : plot.cursor.idx)] },
  };
}

/**
 * @param {{title: string, unit: string, lines: string[], data: number[][], range?: [number, number], height?: number,
 *   sync?: string, isClock?: boolean}} properties `data` is [xs, ys of each line]; xs in seconds
 */
export function Plot(properties) {
  const { title, unit, lines, data, range, height = 150, isClock = true } = properties;
  const place = useRef(null);
  const plot = useRef(null);
  const [index, setIndex] = useState(null);
  const show = () => {
    plot.current.setData(data);
    if (range) plot.current.setScale("x", { min: range[0], max: range[1] });
  };
  const latest = useRef(show);
  latest.current = show;
  useEffect(() => {
    const make = () => {
      plot.current?.destroy();
      const made = options({ ...properties, height, isClock }, place.current.clientWidth, setIndex);
      plot.current = new uPlot(made, [[]], place.current);
      latest.current();
    };
    make();
    const watch = new ResizeObserver(() => plot.current.setSize({ width: place.current.clientWidth, height }));
    watch.observe(place.current);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", make);
    return () => {
      watch.disconnect();
      dark.removeEventListener("change", make);
      plot.current.destroy();
    };
  }, [lines.join()]);
  useEffect(show, [data, range?.[0], range?.[1]]);

  const numbers = data.slice(1).flat().filter((one) => one !== null && one !== undefined);
  const low = numbers.reduce((least, one) => Math.min(least, one), Infinity);
  const high = numbers.reduce((most, one) => Math.max(most, one), -Infinity);
  const summary = numbers.length ? `${shown(low)} to ${shown(high)} ${unit}` : "nothing in this range";
  const at = index === null ? data[0].length - 1 : index;
  return html`<figure class="plot">
    <figcaption><strong>${title}</strong><span class="quiet small">${lines.map((line, number) => {
      const one = data[number + 1][at];
      return html`<span class="plot-key plot-key-${number + 1}" key=${line}>${lines.length > 1 && `${line} `}${
        one === null || one === undefined ? "–" : `${Number(one.toPrecision(4))} ${unit}`}</span>`;
    })}</span></figcaption>
    <div class="plot-place" ref=${place} role="img" aria-label="${title}: ${summary}"></div></figure>`;
}
