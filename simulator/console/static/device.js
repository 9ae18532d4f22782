// One device: what it reads, what it was commanded, what is known of it.
import { del, get, now, segment } from "./api.js";
import { SendCommand } from "./command.js";
import { Plot } from "./plot.js";
import { cut, describe, time } from "./text.js";
import {
  Badge, Dialog, Empty, ErrorBox, html, Json, Loaded, Loading, toast, useAction, useLoaded, useMemo, useState, When,
} from "./ui.js";

const TICK_MS = 2000;
const RAW_MAX = 1000;
const POINTS = 400;
const RANGES = [[300, "5 min"], [3600, "1 h"], [21600, "6 h"], [86400, "24 h"], [604800, "7 d"]];
const OPEN = new Set(["queued", "delivered", "in_progress"]);

export function Device({ id }) {
  const device = useLoaded(() => get(`/devices/${segment(id)}`), [id], TICK_MS);
  const productId = device.value?.product_id;
  const product = useLoaded(() => (productId ? get(`/products/${segment(productId)}`) : null), [productId]);
  const path = `/devices/${segment(id)}/commands`;
  const commands = useLoaded(() => get(path, { limit: 20, order: "desc" }), [path], TICK_MS);
  const [sending, setSending] = useState(null);
  const [isRemoving, setRemoving] = useState(false);
  if (device.error?.status === 404) {
    return html`<h1>This device is not there</h1><${Empty} title="It may have been removed">
      <p>Or it belongs to another account. Its id is <code>${cut(id, 80)}</code>.</p><a class="button"
        href="#/">All devices</a><//>`;
  }
  const one = device.value;
  if (!one) return html`<h1>Device</h1>${device.error ? html`<${ErrorBox} error=${device.error}
    onAgain=${device.reload} />` : html`<${Loading} />`}`;
  const onSent = () => {
    setSending(null);
    toast("The command is sent.");
    commands.reload();
  };
  return html`
    <p class="crumbs"><a href="#/">Devices</a></p>
    <div class="head"><h1>${cut(one.device_name || one.device_id, 120)}</h1><${Badge} state=${one.status} />
      <button class="button main" type="button" onClick=${() => setSending({})}>Send a command</button></div>
    <div class="device-page">
      <${Readings} id=${id} />
      <div class="stack">
        <${Commands} commands=${commands} onAgain=${(payload) => setSending({ payload })} />
        <${About} device=${one} product=${product.value} onRemove=${() => setRemoving(true)} />
      </div>
    </div>
    ${sending && html`<${Dialog} title="Send a command" onClose=${() => setSending(null)}>
      <${SendCommand} device=${one} payload=${sending.payload} onSent=${onSent} /><//>`}
    ${isRemoving && html`<${Dialog} title="Remove this device" onClose=${() => setRemoving(false)}><${Remove}
      device=${one} /><//>`}`;
}

function Remove({ device }) {
  const action = useAction();
  const remove = async () => {
    await del(`/onboarding/device/${segment(device.device_id)}`);
    toast("The device is removed.");
    location.hash = "#/";
  };
  return html`<p>Its open commands are canceled, its readings are not listed any more, and its identifier may be
      registered again.</p>
    ${action.error && html`<${ErrorBox} error=${action.error} title="It was not removed" />`}
    <button class="button bad" type="button" disabled=${action.isBusy}
      onClick=${() => action.run(remove)}>Remove it</button>`;
}

/** Readings of a range: as they were sent where they are few, put together by the service where they are many. */
async function loadReadings(id, seconds) {
  const to = Math.ceil(now() / 1000);
  const range = { device_id: id, from: (to - seconds) * 1000, to: (to + 1) * 1000 };
  const raw = await get("/sensor-data", { ...range, order: "desc", limit: RAW_MAX });
  const ends = { from: to - seconds, to };
  if (!raw.has_more) {
    const points = raw.data.map((one) => ({ at: Date.parse(one.recorded_at) / 1000, values: one.sensor_data }));
    return { ...ends, points: points.reverse(), interval: null, newest: raw.data[0] };
  }
  const interval = Math.ceil(seconds / POINTS);
  const means = await get("/sensor-data", { ...range, agg: "avg", interval, order: "asc", limit: RAW_MAX });
  const middle = (one) => (Date.parse(one.from) + Date.parse(one.to)) / 2000;
  const points = means.data.map((one) => ({ at: middle(one), values: one.sensor_data }));
  return { ...ends, points, interval, newest: raw.data[0] };
}

function Readings({ id }) {
  const [seconds, setSeconds] = useState(300);
  const found = useLoaded(() => loadReadings(id, seconds), [id, seconds], TICK_MS);
  const { points, newest, interval } = found.value ?? { points: [] };
  return html`<section class="card" aria-labelledby="readings-title">
    <div class="head"><h2 id="readings-title">Readings</h2><div class="row" role="group" aria-label="How far back">
      ${RANGES.map(([one, label]) => html`<button class="button small" type="button" key=${one}
        aria-pressed=${String(one === seconds)}
        onClick=${() => setSeconds(one)}>${label}</button>`)}</div></div>
    <${Loaded} from=${found} title="The readings could not be read">
      ${points.length === 0 ? html`<${Last} id=${id} />` : html`
        <p class="quiet small">Newest: ${time(newest.recorded_at)}.${interval && ` Each point is the mean of ${interval} s.`}
          </p>
        <${Plots} points=${points} range=${[found.value.from, found.value.to]} />`}<//></section>`;
}

/** What stands where a range is empty: when the last reading was, of all. */
function Last({ id }) {
  const last = useLoaded(() => get("/sensor-data", { device_id: id, limit: 1 }), [id]);
  const one = last.value?.data[0];
  return html`<p class="empty quiet">${!last.value ? "No readings in this time." : one
    ? html`No readings in this time. The last one is of <time datetime=${one.recorded_at}>${time(one.recorded_at)}
      </time>.`
    : "This device has sent no readings yet."}</p>`;
}

function Plots({ points, range }) {
  const names = useMemo(() => [...new Set(points.flatMap((one) => Object.keys(one.values)))], [points]);
  const columns = useMemo(() => new Map(names.map((name) => {
    const own = points.filter((one) => typeof one.values[name] === "number");
    return [name, [own.map((one) => one.at), own.map((one) => one.values[name])]];
  })), [points]);
  return html`<div class="plots">${names.map((name) => {
    const { label, unit } = describe(name);
    return html`<${Plot} key=${name} title=${cut(label, 80)} unit=${unit} lines=${["value"]} data=${columns.get(name)}
      range=${range} sync="device" />`;
  })}</div>`;
}

function Commands({ commands, onAgain }) {
  return html`<section class="card" aria-labelledby="commands-title"><h2 id="commands-title">Commands</h2>
    <${Loaded} from=${commands} title="The commands could not be read">
      ${commands.value?.data.length === 0 && html`<p class="quiet">None yet.</p>`}
      <ol class="commands">${commands.value?.data.map((one) => html`<${Command} key=${one.id} one=${one}
        onAgain=${onAgain} />`)}</ol>
      ${commands.value?.has_more && html`<p class="quiet small">The newest 20 are shown.</p>`}<//></section>`;
}

function Command({ one, onAgain }) {
  const { command, ...rest } = one.command_payload;
  const hasMore = Object.keys(rest).length > 0;
  return html`<li class="command">
    <div class="row"><strong class="grow">${cut(typeof command === "string" ? command : "without a name", 100)}
      </strong><${Badge} state=${one.status} /></div>
    <p class="quiet small">sent <${When} at=${one.created_at} />${one.delivered_at && html` · delivered <${When}
      at=${one.delivered_at} />`}
      ${one.completed_at && html` · ended <${When} at=${one.completed_at} />`}
      ${OPEN.has(one.status) && one.expires_at && html` · expires ${time(one.expires_at)}`}</p>
    ${one.status_reason && html`<p class="small">${cut(one.status_reason, 500)}</p>`}
    <div class="row">${(hasMore || one.result !== null) && html`<details class="grow"><summary>
      ${one.result !== null ? "Payload and result" : "Payload"}</summary>
      <div class="stack"><${Json} value=${one.command_payload} label="Payload" />
      ${one.result !== null && html`<${Json} value=${one.result} label="Result" />`}</div></details>`}
      <button class="button small" type="button" onClick=${() => onAgain(one.command_payload)}>Send again…</button>
        </div></li>`;
}

function About({ device, product, onRemove }) {
  return html`<section class="card" aria-labelledby="about-title"><h2 id="about-title">About</h2>
    <dl class="facts">
      <dt>Product</dt><dd>${cut(product?.name ?? device.product_id, 200)}</dd>
      <dt>Identifier</dt><dd class="mono">${cut(device.device_identifier, 300)}</dd>
      <dt>Device id</dt><dd class="mono">${device.device_id}</dd>
      <dt>User</dt><dd class="mono">${cut(device.user_id, 200)}</dd>
      <dt>Firmware</dt><dd>${device.firmware_version ? cut(device.firmware_version, 255) : html`<span
        class="quiet">not known</span>`}</dd>
      <dt>Last seen</dt><dd><${When} at=${device.last_seen_at} /></dd>
      <dt>Registered</dt><dd>${time(device.created_at)}</dd>
    </dl>
    <div class="row"><a class="button small"
      href="#/requests?device_id=${encodeURIComponent(device.device_id)}">Its requests</a>
      <button class="button small bad" type="button" onClick=${onRemove}>Remove…</button></div>
    <details><summary>As the service answers it</summary><${Json} value=${device} label="The device as JSON" />
      </details></section>`;
}
