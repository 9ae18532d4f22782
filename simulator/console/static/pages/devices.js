// All devices: who is there, what they read last, what is open. Searched, filtered and sorted by the service.
import { Badge } from "../components/badge.js";
import { Grid } from "../components/grid.js";
import { SendDialog } from "../components/send.js";
import { Empty, ErrorBox, Loading } from "../components/states.js";
import { get, segment } from "../core/api.js";
import { now } from "../core/clock.js";
import { html, useEffect, useRef, useState } from "../core/html.js";
import { useChanges } from "../core/live.js";
import { useLoaded } from "../core/load.js";
import { useMedia, useSettled } from "../core/media.js";
import { describe } from "../core/readings.js";
import { keepInAddress } from "../core/router.js";
import { ago, count, cut, plural, time, value } from "../core/text.js";
import { useWindows } from "../core/windows.js";

export const title = "Devices";

const STATUSES = [["", "Any status"], ["online", "Online"], ["offline", "Offline"], ["never_seen", "Never seen"]];

const When = ({ at }) => (at ? html`<time datetime=${at} title="${time(at)}">${ago(at, now())}</time>` : html`<span class="quiet">never</span>`);
const Name = ({ row }) => html`<a href="/console/devices/${segment(row.device_id)}" title=${row.device_name}>${row.device_name || row.device_id}</a>`;

function inWords(name, one) {
  const { label, unit } = describe(name);
  return `${label} ${value(one)}${unit && `\u00a0${unit}`}`;
}

function Reading({ row }) {
  if (!row.last_reading_at) return html`<span class="quiet">none yet</span>`;
  if (!row.last_reading) return html`<span class="quiet">too large to show here</span>`;
  const text = Object.entries(row.last_reading).map(([name, one]) => inWords(name, one)).join(" · ");
  return html`<span title="${text}, ${time(row.last_reading_at)}">${text}</span>`;
}

const select = (chosen, onChoose) => ({
  id: "select", label: html`<span class="sr">Chosen</span>`, width: "1.2rem",
  cell: (row) => html`<input type="checkbox" aria-label="Choose ${cut(row.device_name || row.device_id, 60)}" checked=${chosen.has(row.device_id)}
    onChange=${(event) => onChoose(row, event.currentTarget.checked)} />`,
});

const COLUMNS = {
  status: { id: "last_seen_at", label: "Status", width: "8.5rem", sortable: true, cell: (row) => html`<${Badge} state=${row.status} />` },
  name: { id: "device_name", label: "Name", width: "minmax(9rem, 1.4fr)", sortable: true, cell: (row) => html`<${Name} row=${row} />` },
  identifier: { id: "device_identifier", label: "Identifier", width: "minmax(7rem, 1fr)", sortable: true, cell: (row) => html`<span class="mono" title=${row.device_identifier}>${row.device_identifier}</span>` },
  product: { id: "product_name", label: "Product", width: "minmax(7rem, 1fr)", sortable: true, cell: (row) => html`<span title=${row.product_name ?? row.product_id}>${row.product_name ?? row.product_id}</span>` },
  reading: { id: "reading", label: "Last reading", width: "minmax(10rem, 1.8fr)", cell: (row) => html`<${Reading} row=${row} />` },
  readAt: { id: "last_reading_at", label: "Read", width: "6.5rem", sortable: true, number: true, cell: (row) => html`<${When} at=${row.last_reading_at} />` },
  seenAt: { id: "seen", label: "Seen", width: "6.5rem", number: true, cell: (row) => html`<${When} at=${row.last_seen_at} />` },
  open: { id: "open_commands", label: "Open commands", width: "8rem", sortable: true, number: true, cell: (row) => (row.open_commands ? count(row.open_commands) : html`<span class="quiet">0</span>`) },
  firmware: { id: "firmware_version", label: "Firmware", width: "7rem", sortable: true, cell: (row) => row.firmware_version ?? html`<span class="quiet">not known</span>` },
};

/** On a phone: two lines in one column. */
const SMALL = { id: "device_name", label: "Device", width: "minmax(0, 1fr)", sortable: true, cell: (row) => html`
  <div class="device-line"><${Name} row=${row} /><${Badge} state=${row.status} /></div>
  <div class="device-line small quiet"><span class="device-reading"><${Reading} row=${row} /></span><span>${row.open_commands ? `${count(row.open_commands)} open` : ""}</span></div>` };

export default function Devices({ query }) {
  const [wanted, setWanted] = useState({ q: query.q ?? "", product_id: query.product_id ?? "", status: query.status ?? "" });
  const [sort, setSort] = useState({ by: query.sort ?? "registered", ascending: query.order !== "desc" });
  const [chosen, setChosen] = useState(new Map());
  const [target, setTarget] = useState(null);
  const text = useSettled(wanted.q, 200);
  const isSmall = useMedia("(max-width: 48rem)");
  const isWide = useMedia("(min-width: 90rem)");
  const products = useLoaded(() => get("/products", { limit: 1000 }), []);
  const parameters = { q: text, product_id: wanted.product_id, status: wanted.status, sort: sort.by === "registered" ? "" : sort.by, order: sort.ascending ? "" : "desc" };
  const rows = useWindows("/_emulator/device-table", parameters);
  useEffect(() => keepInAddress(parameters), [JSON.stringify(parameters)]);
  useReloading(rows);

  const onSort = (by) => setSort((before) => (before.by === by ? { by, ascending: !before.ascending } : { by, ascending: true }));
  const set = (name) => (event) => setWanted({ ...wanted, [name]: event.currentTarget.value });
  const isFiltered = Boolean(wanted.q || wanted.product_id || wanted.status);
  const choose = (row, isChosen) => {
    const next = new Map(chosen);
    if (isChosen) next.set(row.device_id, row);
    else next.delete(row.device_id);
    setChosen(next);
  };
  const c = COLUMNS;
  const box = select(chosen, choose);
  const columns = isSmall ? [box, SMALL] : isWide ? [box, c.name, c.status, c.identifier, c.product, c.reading, c.readAt, c.seenAt, c.open, c.firmware] : [box, c.name, c.status, c.product, c.reading, c.readAt, c.open, c.firmware];

  return html`
    <div class="head"><h1>Devices</h1><span class="quiet" role="status">${rows.total === null ? "" : isFiltered ? `${plural(rows.total, "device")} found` : plural(rows.total, "device")}</span></div>
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <div class="field search"><label for="search">Search</label>
        <input class="input" id="search" type="search" maxlength="200" autocomplete="off" placeholder="Name, identifier, id or product" value=${wanted.q} onInput=${set("q")} /></div>
      <div class="field"><label for="product">Product</label>
        <select class="input" id="product" value=${wanted.product_id} onChange=${set("product_id")}>
          <option value="">Any product</option>
          ${products.value?.data.map((one) => html`<option value=${one.product_id} key=${one.product_id}>${one.name.slice(0, 60)}</option>`)}
        </select></div>
      <div class="field"><label for="status">Status</label>
        <select class="input" id="status" value=${wanted.status} onChange=${set("status")}>${STATUSES.map(([id, label]) => html`<option value=${id} key=${id}>${label}</option>`)}</select></div>
      <div class="row filters-end">${actions({ chosen, setChosen, wanted, products, rows, setTarget })}</div>
    </form>
    <${Table} rows=${rows} columns=${columns} rowHeight=${isSmall ? 66 : 44} sort=${sort} onSort=${onSort} isFiltered=${isFiltered} isSelected=${(row) => chosen.has(row.device_id)} />
    ${target && html`<${SendDialog} target=${target} onClose=${() => setTarget(null)} />`}`;
}

/** What can be done with the chosen devices, or with all of a product. */
function actions({ chosen, setChosen, wanted, products, rows, setTarget }) {
  if (chosen.size) {
    const devices = [...chosen.values()];
    const ofOne = devices.every((one) => one.product_id === devices[0].product_id) ? devices[0].product_id : null;
    return html`<button class="button main" type="button" onClick=${() => setTarget({ devices, product_id: ofOne })}>Send a command to ${plural(chosen.size, "device")}</button>
      <button class="button" type="button" onClick=${() => setChosen(new Map())}>Clear the choice</button>`;
  }
  if (!wanted.product_id || wanted.q || wanted.status || !rows.total) return null;
  const name = products.value?.data.find((one) => one.product_id === wanted.product_id)?.name;
  const target = { product_id: wanted.product_id, product_name: name, total: rows.total };
  return html`<button class="button" type="button" onClick=${() => setTarget(target)}>Send a command to all ${count(rows.total)} of it</button>`;
}

function Table({ rows, columns, rowHeight, sort, onSort, isFiltered, isSelected }) {
  if (rows.error && !rows.isFresh) return html`<${ErrorBox} error=${rows.error} title="The devices could not be read" action=${rows.reload} />`;
  if (rows.total === null) return html`<${Loading} />`;
  if (rows.total === 0 && isFiltered) return html`<${Empty} title="No device fits"><p>Change or clear what you search for.</p><//>`;
  if (rows.total === 0) {
    return html`<${Empty} title="No devices yet">
      <p>Register one with an app, a label, or the API. To see some at once, end the service and start it with devices that play:</p>
      <pre class="code">fleet-simulator up --devices 10</pre><//>`;
  }
  return html`<div class="grid"><${Grid} label="Devices" columns=${columns} total=${rows.total} rowAt=${rows.rowAt} rowHeight=${rowHeight}
    sort=${sort} onSort=${onSort} onWindow=${rows.onWindow} isSelected=${isSelected} /></div>`;
}

/** Read what is in sight again when something of it has changed; never twice at the same time. */
function useReloading(rows) {
  const current = useRef(rows);
  const registered = useRef(null);
  const busy = useRef(false);
  current.current = rows;
  useChanges(async (changes, isBack) => {
    const isOther = registered.current !== changes.registrations; // the first event, too: what was shown may be some seconds old
    registered.current = changes.registrations;
    const changed = new Set(changes.device_ids);
    const isMeant = isBack || changes.more || isOther || current.current.visible().some((row) => changed.has(row.device_id));
    if (!isMeant || busy.current) return;
    busy.current = true;
    try {
      await current.current.reload();
    } finally {
      busy.current = false;
    }
  }, []);
}
