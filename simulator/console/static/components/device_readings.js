// What a device has read: the latest values, and plots over a range that goes along with the time.
import { loadLast, loadNewer, loadReadings, column, describe, namesOf } from "../core/readings.js";
import { html, useCallback, useEffect, useMemo, useRef, useState } from "../core/html.js";
import { now } from "../core/clock.js";
import { useChanges } from "../core/live.js";
import { ago, duration, time, value as shown } from "../core/text.js";
import { Plot } from "./plot.js";
import { ErrorBox, Loading } from "./states.js";

const RANGES = [["5 min", 300e3], ["1 h", 3600e3], ["24 h", 86400e3], ["7 d", 7 * 86400e3], ["30 d", 30 * 86400e3]];
const SHOWN = 8;
const AGAIN_MS = 5000; // means are read anew so often
const ROOM_MS = 2000; // what arrives with a time slightly ahead is in sight too

export function DeviceReadings({ deviceId }) {
  const [range, setRange] = useState(RANGES[1][1]);
  const [zoom, setZoom] = useState(null);
  const [state, setState] = useState({ points: [], interval: null, last: null, error: null, isLoading: true });
  const [to, setTo] = useState(() => now() + ROOM_MS);
  const [all, setAll] = useState(false);
  const loadedAt = useRef(0);
  const isFirst = useRef(true);
  const view = zoom ?? { from: to - range, to };

  const load = useCallback(async () => {
    const end = now() + ROOM_MS;
    const wanted = zoom ?? { from: end - range, to: end };
    try {
      const [found, last] = await Promise.all([loadReadings(deviceId, wanted.from, wanted.to), loadLast(deviceId)]);
      loadedAt.current = performance.now();
      if (!zoom) setTo(end);
      if (isFirst.current && found.points.length && found.points[0].at > end - RANGES[0][1]) setRange(RANGES[0][1]); // a new device
      isFirst.current = false;
      setState({ ...found, last, error: null, isLoading: false });
    } catch (error) {
      setState((before) => ({ ...before, error, isLoading: false }));
    }
  }, [deviceId, range, zoom?.from, zoom?.to]);
  useEffect(() => { load(); }, [load]);

  useChanges(async (changes, isBack) => {
    if (zoom) return;
    const end = now() + ROOM_MS;
    setTo(end);
    if (isBack) { load(); return; }
    if (!changes.device_ids.includes(deviceId) && !changes.more) return;
    if (state.interval !== null || !state.last) {
      if (performance.now() - loadedAt.current > (state.last ? AGAIN_MS : 0)) load();
      return;
    }
    const newer = await loadNewer(deviceId, state.last.at, end).catch(() => []);
    if (newer.length) setState((before) => ({ ...before, points: appended(before.points, newer, end - range), last: newer.at(-1) }));
  }, [deviceId, range, zoom, state.interval, state.last]);

  const names = useMemo(() => namesOf(state.points), [state.points]);
  const moveBy = (part) => setZoom({ from: view.from + (view.to - view.from) * part, to: view.to + (view.to - view.from) * part });
  const scaleBy = (factor) => {
    const middle = (view.from + view.to) / 2;
    const half = Math.max(500, ((view.to - view.from) * factor) / 2);
    setZoom({ from: middle - half, to: middle + half });
  };
  return html`<section class="card" aria-labelledby="readings-title">
    <div class="head"><h2 id="readings-title">Readings</h2>
      <div class="row">
        <label><span class="sr">Range</span><select class="input" value=${zoom ? "" : range} onChange=${(event) => { setZoom(null); setRange(Number(event.currentTarget.value)); }}>
          ${zoom && html`<option value="">${duration(view.to - view.from)}</option>`}
          ${RANGES.map(([label, ms]) => html`<option value=${ms} key=${ms}>Last ${label}</option>`)}</select></label>
        <div class="row" role="group" aria-label="Zoom">
          <button class="button small" type="button" aria-label="Earlier" onClick=${() => moveBy(-0.5)}>←</button>
          <button class="button small" type="button" aria-label="Later" onClick=${() => moveBy(0.5)}>→</button>
          <button class="button small" type="button" aria-label="Zoom in" onClick=${() => scaleBy(0.5)}>+</button>
          <button class="button small" type="button" aria-label="Zoom out" onClick=${() => scaleBy(2)}>−</button>
          ${zoom && html`<button class="button small" type="button" onClick=${() => setZoom(null)}>Back to live</button>`}
        </div>
      </div></div>
    ${state.last && html`<${Latest} last=${state.last} />`}
    ${state.error && html`<${ErrorBox} error=${state.error} title="The readings could not be read" action=${load} />`}
    <${Plots} state=${state} names=${all ? names : names.slice(0, SHOWN)} view=${view} onZoom=${(from, end) => setZoom({ from, to: end })} goTo=${setZoom} />
    ${names.length > SHOWN && html`<button class="button small" type="button" onClick=${() => setAll(!all)}>${all ? `Show the first ${SHOWN}` : `Show all ${names.length} plots`}</button>`}
    ${state.interval && html`<p class="quiet small">Each point is the mean of ${duration(state.interval * 1000)}. Zoom in to see each reading.</p>`}
  </section>`;
}

function appended(points, newer, from) {
  const first = points.findIndex((one) => one.at >= from);
  return [...(first < 0 ? [] : points.slice(first)), ...newer];
}

function Latest({ last }) {
  const at = new Date(last.at).toISOString();
  return html`<dl class="tiles" aria-label="Latest values">
    ${Object.entries(last.values).slice(0, 24).map(([name, one]) => {
      const { label, unit } = describe(name);
      return html`<div key=${name}><dt title=${name}>${label}</dt><dd>${typeof one === "number" ? shown(one) : JSON.stringify(one)}${unit && html` <small>${unit}</small>`}</dd></div>`;
    })}
    <div><dt>read</dt><dd class="tile-time"><time datetime=${at} title=${time(at)}>${ago(at, now())}</time></dd></div>
  </dl>`;
}

function Plots({ state, names, view, onZoom, goTo }) {
  const columns = useMemo(() => Object.fromEntries(names.map((name) => [name, column(state.points, name)])), [state.points, names.join("\n")]);
  if (state.isLoading) return html`<${Loading} />`;
  if (!state.last) return html`<p class="quiet">No readings yet. They appear here when the device sends its first.</p>`;
  if (!state.points.length) {
    const at = new Date(state.last.at).toISOString();
    return html`<p class="quiet">Nothing was read in this range. The last reading is of ${time(at)}.
      <button class="link" type="button" onClick=${() => goTo({ from: state.last.at - 1800e3, to: state.last.at + 1800e3 })}>Show that hour</button></p>`;
  }
  return html`<div class="plots">${names.map((name, number) => {
    const { label, unit } = describe(name);
    return html`<${Plot} key=${name} number=${number} label=${label} unit=${unit} data=${columns[name]} from=${view.from} to=${view.to} onZoom=${onZoom} />`;
  })}</div>`;
}
