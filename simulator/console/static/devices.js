// All devices of the account: who is there and what they read last. The list is the API's own, asked again and again.
import { get, getAll, now, segment } from "./api.js";
import { count, cut, describe, time, value } from "./text.js";
import {
  Badge, Empty, Field, html, Input, Loaded, Select, useEffect, useLoaded, useRef, useState, When,
} from "./ui.js";

const SIZE = 50;
const TICK_MS = 2000;
const STATUSES = [["", "Any status"], ["online", "Online"], ["offline", "Offline"], ["never_seen", "Never seen"]];

export function Devices({ query: given }) {
  const [wanted, setWanted] = useState({ device_identifier: given.device_identifier ?? "", product_id: "", status: "" });
  const [cursors, setCursors] = useState([null]); // of the pages up to the one that is shown
  const products = useLoaded(() => getAll("/products", {}), []);
  const query = { ...wanted, limit: SIZE, cursor: cursors.at(-1) };
  const list = useLoaded(() => get("/devices", query), [query], TICK_MS);
  const totals = useLoaded(readTotals, [], 5 * TICK_MS);
  const readings = useLastReadings(list.value?.data);
  const set = (name) => (text) => {
    setWanted({ ...wanted, [name]: text.trim() });
    setCursors([null]);
  };
  const names = new Map((products.value ?? []).map((one) => [one.product_id, one.name]));
  const isFiltered = Object.values(wanted).some(Boolean);
  return html`
    <div class="head"><h1>Devices</h1><${Totals} totals=${totals.value} /></div>
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <${Field} id="identifier" label="Identifier" className="search">
        <${Input} id="identifier" type="search" placeholder="The whole identifier" value=${wanted.device_identifier}
          onText=${set("device_identifier")} /><//>
      <${Field} id="product" label="Product"><${Select} id="product" value=${wanted.product_id}
        onChoose=${set("product_id")}
        options=${[["", "Any product"], ...[...names].map(([id, name]) => [id, cut(name, 60)])]} /><//>
      <${Field} id="status" label="Status"><${Select} id="status" value=${wanted.status} options=${STATUSES}
        onChoose=${set("status")} /><//>
    </form>
    <${Loaded} from=${list} title="The devices could not be read">
      ${list.value?.data.length === 0 && (isFiltered || cursors.length > 1
        ? html`<${Empty} title="No device fits"><p>Change or clear the filters.</p><//>`
        : html`<${Empty} title="No devices yet"><p>Register one with an app, a label (page <a
          href="#/labels">Labels</a>) or the
            API. To see some at once, start the service with devices that play:</p>
            <pre class="code">fleet-simulator up --devices 10</pre><//>`)}
      ${list.value?.data.length > 0 && html`<${Table} rows=${list.value.data} names=${names} readings=${readings} />`}
      ${list.value && html`<${Turns} cursors=${cursors} next=${list.value.next_cursor} onTurn=${setCursors} />`}
    <//>`;
}

/** How many devices there are; the messages that are counted along with them are those of the last second. */
const readTotals = () => get("/analytics/devices", { from: Math.floor(now()) - 1000, to: Math.floor(now()), interval: 60 });

function Totals({ totals }) {
  if (!totals) return null;
  return html`<p class="quiet">
    ${count(totals.total)} in all · ${count(totals.online)} online · ${count(totals.offline)} offline
    · ${count(totals.never_seen)} never seen</p>`;
}

/** The newest reading of each device in sight; asked for again when the device was seen since. */
function useLastReadings(rows) {
  const [known, setKnown] = useState(new Map());
  const asked = useRef(new Map()); // device -> when it was seen last, as of its reading here
  useEffect(() => {
    const isStale = (row) => row.last_seen_at && asked.current.get(row.device_id) !== row.last_seen_at;
    const stale = (rows ?? []).filter(isStale);
    if (!stale.length) return;
    for (const row of stale) asked.current.set(row.device_id, row.last_seen_at);
    const read = async ({ device_id }) => {
      try {
        return [device_id, (await get("/sensor-data", { device_id, limit: 1 })).data[0] ?? null];
      } catch {
        asked.current.delete(device_id); // the next turn tries again
        return null;
      }
    };
    Promise.all(stale.map(read)).then((found) => setKnown((before) => new Map([...before, ...found.filter(Boolean)])));
  }, [rows]);
  return known;
}

function Table({ rows, names, readings }) {
  return html`<div class="card table-scroll"><table class="devices">
    <caption class="sr">Devices, in the order of their registration</caption>
    <thead><tr><th scope="col">Name</th><th scope="col">Status</th><th scope="col" class="wide">Identifier</th>
      <th scope="col" class="wide">Product</th><th scope="col">Last reading</th><th scope="col" class="number">Seen</th>
      <th scope="col" class="wider">Firmware</th></tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.device_id}>
      <th scope="row"><a href="#/devices/${segment(row.device_id)}">${cut(row.device_name || row.device_id, 120)}</a>
        </th>
      <td><${Badge} state=${row.status} /></td>
      <td class="mono wide">${cut(row.device_identifier, 120)}</td>
      <td class="wide">${cut(names.get(row.product_id) ?? row.product_id, 80)}</td>
      <td><${Reading} reading=${readings.get(row.device_id)} isSeen=${row.last_seen_at !== null} /></td>
      <td class="number nowrap"><${When} at=${row.last_seen_at} /></td>
      <td class="wider">${row.firmware_version ? cut(row.firmware_version, 40) : html`<span
        class="quiet">not known</span>`}</td></tr>`)}
    </tbody></table></div>`;
}

function Reading({ reading, isSeen }) {
  if (!reading) return html`<span class="quiet">${reading === undefined && isSeen ? "…" : "none yet"}</span>`;
  const entries = Object.entries(reading.sensor_data);
  const words = entries.slice(0, 4).map(([name, one]) => {
    const { label, unit } = describe(name);
    return `${cut(label, 40)} ${cut(value(one), 40)}${unit && `\u00a0${unit}`}`;
  });
  if (entries.length > 4) words.push(`${entries.length - 4} more`);
  return html`<span title=${`recorded ${time(reading.recorded_at)}`}>${words.join(" · ")}</span>`;
}

function Turns({ cursors, next, onTurn }) {
  if (cursors.length === 1 && !next) return null;
  return html`<nav class="row turns" aria-label="Parts of the list">
    <button class="button small" type="button" disabled=${cursors.length === 1}
      onClick=${() => onTurn(cursors.slice(0, -1))}>Before</button>
    <span class="quiet">${(cursors.length - 1) * SIZE + 1} and on</span>
    <button class="button small" type="button" disabled=${!next}
      onClick=${() => onTurn([...cursors, next])}>Next ${SIZE}</button></nav>`;
}
