// What the service was sent and what it answered: newest first, with filters, each request whole.
import { del, get } from "./api.js";
import { bytes, cut, duration, time } from "./text.js";
import {
  Dialog, Empty, ErrorBox, Field, html, Input, Json, Loaded, Select, toast, useAction, useLoaded, useState,
} from "./ui.js";

const SHOWN = 100;
const PATH = "/_emulator/requests";
const METHODS = [["", "Any"], ...["GET", "POST", "PUT", "DELETE"].map((one) => [one, one])];
const STATUSES = [["", "Any"], ["2xx", "2xx, carried out"], ["4xx", "4xx, refused"], ["5xx", "5xx, failed"]];

export function Requests({ query }) {
  const [wanted, setWanted] = useState({ text: "", method: "", status: "", device_id: query.device_id ?? "" });
  const [isPaused, setPaused] = useState(false);
  const [chosen, setChosen] = useState(null);
  const action = useAction();
  const list = useLoaded(() => get(PATH, { ...wanted, limit: SHOWN }), [wanted], isPaused ? 0 : 1000);
  const set = (name) => (text) => setWanted({ ...wanted, [name]: text.trim() });
  const clear = async () => {
    await del(PATH);
    await list.reload();
    toast("All requests are forgotten.");
  };
  const rows = list.value?.data;
  return html`
    <div class="head"><h1>Requests</h1>
      <button class="button" type="button" aria-pressed=${String(isPaused)} onClick=${() => setPaused(!isPaused)}>
        ${isPaused ? "Go on" : "Pause"}</button>
      <button class="button bad" type="button" disabled=${!rows?.length || action.isBusy}
        onClick=${() => action.run(clear)}>Forget all</button></div>
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <${Field} id="text" label="Text" className="search"><${Input} id="text" type="search"
        placeholder="In path, body or answer" value=${wanted.text} onText=${set("text")} /><//>
      <${Field} id="method" label="Method"><${Select} id="method" value=${wanted.method} options=${METHODS}
        onChoose=${set("method")} /><//>
      <${Field} id="status" label="Answer"><${Select} id="status" value=${wanted.status} options=${STATUSES}
        onChoose=${set("status")} /><//>
      <${Field} id="device" label="Device id"><${Input} id="device" value=${wanted.device_id}
        onText=${set("device_id")} /><//>
    </form>
    ${action.error && html`<${ErrorBox} error=${action.error} title="They were not forgotten" />`}
    ${isPaused && html`<p class="quiet small" role="status">Paused: what comes meanwhile is shown when it goes on.</p>`}
    <${Loaded} from=${list} title="The requests could not be read">
      ${rows?.length === 0 && (Object.values(wanted).some(Boolean)
        ? html`<${Empty} title="No request fits">
          <p>Change or clear the filters; what comes from now on appears by itself.</p><//>`
        : html`<${Empty} title="Nothing came yet">
          <p>Requests of devices, apps and scripts appear here. Those of this console are left out.</p><//>`)}
      ${rows?.length > 0 && html`<${Table} rows=${rows} onOpen=${setChosen} />`}<//>
    ${chosen && html`<${Whole} one=${chosen} onClose=${() => setChosen(null)} />`}`;
}

/** The answer's status as a word with a colour; how it ended, where there was none. */
function Outcome({ one }) {
  const status = one.answer?.status;
  const tone = !status || status >= 500 ? "bad" : status >= 400 ? "warn" : "good";
  const words = status ?? one.outcome.replaceAll("_", " ");
  return html`<span class="badge ${tone}">${words}</span>${one.faults.length > 0 && html` <span
    class="badge violet">fault</span>`}`;
}

function Table({ rows, onOpen }) {
  return html`<div class="card table-scroll"><table class="requests">
    <caption class="sr">Requests, the newest first</caption>
    <thead><tr><th scope="col">Received</th><th scope="col">Request</th><th scope="col">Answer</th>
      <th scope="col" class="number">Took</th><th scope="col" class="wide">Account</th></tr></thead>
    <tbody>${rows.map((one) => html`<tr key=${one.id}>
      <td class="nowrap"><time datetime=${one.received_at}>${time(one.received_at)}</time></td>
      <td><button class="link mono" type="button" onClick=${() => onOpen(one)}>
        ${one.method} ${cut(one.path + (one.query && `?${one.query}`), 300)}</button></td>
      <td class="nowrap"><${Outcome} one=${one} /></td>
      <td class="number nowrap">${duration(one.duration_ms / 1000)}</td>
      <td class="mono wide">${one.account ? cut(one.account, 24) : html`<span class="quiet">none</span>`}</td></tr>`)}
        </tbody></table></div>`;
}

function Whole({ one, onClose }) {
  return html`<${Dialog} title="${one.method} ${cut(one.path, 120)}" onClose=${onClose}>
    <p><${Outcome} one=${one} /> ${time(one.received_at)}, ${duration(one.duration_ms / 1000)},
      from ${one.client ?? "an unknown address"}</p>
    <${Message} title="Request" message=${one.request} />
    ${one.answer ? html`<${Message} title="Answer ${one.answer.status}" message=${one.answer} />` : html`<p
      class="quiet">There was no answer.</p>`}<//>`;
}

function Message({ title, message }) {
  const { headers, body, body_bytes: size, truncated } = message;
  const lines = headers.map((one) => `${one.name}: ${one.value}`).join("\n");
  return html`<section class="stack"><h3>${title}</h3>
    <${Json} value=${lines || "no headers"} label="Headers" />
    ${size > 0 ? html`<${Json} value=${readable(body)} label="Body" />` : html`<p class="quiet small">No body.</p>`}
    ${truncated && html`<p class="quiet small">The beginning of ${bytes(size)} is kept.</p>`}</section>`;
}

function readable(body) {
  try {
    return JSON.stringify(JSON.parse(body), null, 2);
  } catch {
    return body;
  }
}
