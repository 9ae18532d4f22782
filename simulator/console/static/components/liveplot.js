// A line plot of figures over the seconds of a run, drawn by uPlot, which the reports have as well.
import { html, useEffect, useRef } from "../core/html.js";
import { colour, loadPlot } from "../core/plot.js";

const HEIGHT = 200;

/**
 * @param {{title: string, unit: string, seconds: number[], lines: {label: string, values: (number|null)[], show: Function}[], clock: Function}} properties
 *   `show` writes a value with its unit
 */
export function LivePlot({ title, unit, seconds, lines, clock }) {
  const place = useRef(null);
  const plot = useRef(null);
  const data = [seconds, ...lines.map((line) => line.values)];
  const current = useRef(data);
  current.current = data;
  useEffect(() => {
    let isHere = true;
    const dark = matchMedia("(prefers-color-scheme: dark)");
    let watch = null;
    const draw = (uPlot) => {
      plot.current?.destroy();
      plot.current = new uPlot(optionsOf(place.current.clientWidth, unit, lines, clock), current.current, place.current);
    };
    const redraw = () => loadPlot().then((uPlot) => isHere && draw(uPlot));
    loadPlot().then((uPlot) => {
      if (!isHere) return;
      draw(uPlot);
      watch = new ResizeObserver(() => plot.current?.setSize({ width: place.current.clientWidth, height: HEIGHT }));
      watch.observe(place.current);
      dark.addEventListener("change", redraw);
    }, () => {});
    return () => {
      isHere = false;
      watch?.disconnect();
      dark.removeEventListener("change", redraw);
      plot.current?.destroy();
      plot.current = null;
    };
  }, []);
  useEffect(() => plot.current?.setData(data), [seconds]);
  const last = lines.map((line) => `${line.label} ${line.show(line.values.at(-1))}`).join(", ");
  return html`<figure class="card live-plot"><figcaption><h2>${title}</h2>
      <p class="small quiet">${lines.map((line, index) => html`<span class="plot-key plot-key-${index + 1}" key=${line.label}>${line.label} <b>${line.show(line.values.at(-1))}</b></span>`)}</p></figcaption>
    <div ref=${place} class="live-plot-place" role="img" aria-label="${title}. Latest: ${last}"></div></figure>`;
}

function optionsOf(width, unit, lines, clock) {
  const axis = (more) => ({
    stroke: colour("--muted"), font: `12px ${colour("--sans")}`, grid: { stroke: colour("--line"), width: 1 },
    ticks: { stroke: colour("--line"), width: 1, size: 4 }, ...more,
  });
  return {
    width: Math.max(width, 200), height: HEIGHT, padding: [8, 20, 0, 0], legend: { show: false }, cursor: { show: false },
    scales: { x: { time: false }, y: { range: (_, low, high) => [0, Math.max(high * 1.1, 1e-3)] } },
    axes: [axis({ values: (_, splits) => splits.map((at) => clock(at)), space: 60, size: 32 }), axis({ size: 56, values: (_, splits) => splits.map((at) => `${Number(at.toPrecision(3))}${unit}`) })],
    series: [{}, ...lines.map((line, index) => ({ label: line.label, stroke: colour(`--line-${index + 1}`), width: 2, points: { show: false }, spanGaps: false }))],
  };
}
