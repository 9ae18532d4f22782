// What the service was sent and what it answered: live, with filters, each request whole.
import { Dialog } from "../components/dialog.js";
import { Exchange, Outcome } from "../components/logged_request.js";
import { Empty, ErrorBox, Loading } from "../components/states.js";
import { toast, toastError } from "../components/toast.js";
import { del, get, segment } from "../core/api.js";
import { html, useEffect, useState } from "../core/html.js";
import { onChanges } from "../core/live.js";
import { useLoaded } from "../core/load.js";
import { useMedia, useSettled } from "../core/media.js";
import { keepInAddress } from "../core/router.js";
import { cut, duration, time } from "../core/text.js";

export const title = "Requests";

const SHOWN = 100;
const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"];
const STATUSES = [["2xx", "2xx, carried out"], ["3xx", "3xx, unchanged"], ["4xx", "4xx, refused"], ["5xx", "5xx, failed"]];

export default function Requests({ query }) {
  const [filters, setFilters] = useState({ method: query.method ?? "", status: query.status ?? "", device_id: query.device_id ?? "", text: query.text ?? "" });
  const [isPaused, setPaused] = useState(false);
  const [chosen, setChosen] = useState(null);
  const settled = useSettled(JSON.stringify(filters), 250);
  const tail = useTail(settled, isPaused);
  useEffect(() => keepInAddress(JSON.parse(settled)), [settled]);
  const isFiltered = Object.values(filters).some(Boolean);
  const set = (name) => (event) => setFilters({ ...filters, [name]: event.currentTarget.value });
  const clear = async () => {
    try {
      await del("/_emulator/requests", { account: "" });
      tail.restart();
      toast("All requests are forgotten.", "good");
    } catch (error) {
      toastError(error);
    }
  };
  return html`
    <div class="head"><h1>Requests</h1>
      <button class="button" type="button" aria-pressed=${String(isPaused)} onClick=${() => setPaused(!isPaused)}>${isPaused ? "Go on" : "Pause"}</button>
      <button class="button bad" type="button" disabled=${!tail.requests?.length} onClick=${clear}>Forget all</button></div>
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <div class="field search"><label for="text">Text</label>
        <input class="input" id="text" type="search" maxlength="200" autocomplete="off" placeholder="In path, body or answer" value=${filters.text} onInput=${set("text")} /></div>
      <div class="field"><label for="method">Method</label>
        <select class="input" id="method" value=${filters.method} onChange=${set("method")}><option value="">Any</option>${METHODS.map((one) => html`<option key=${one}>${one}</option>`)}</select></div>
      <div class="field"><label for="status">Status</label>
        <select class="input" id="status" value=${filters.status} onChange=${set("status")}><option value="">Any</option>${STATUSES.map(([value, label]) => html`<option key=${value} value=${value}>${label}</option>`)}</select></div>
      <div class="field"><label for="device">Device id</label>
        <input class="input" id="device" maxlength="200" autocomplete="off" value=${filters.device_id} onInput=${set("device_id")} /></div>
    </form>
    ${tail.error && html`<${ErrorBox} error=${tail.error} title=${tail.error.code === "request_log_off" ? "The service keeps no requests" : "The requests could not be read"} action=${tail.restart} />`}
    ${!tail.requests && !tail.error && html`<${Loading} />`}
    ${tail.requests?.length === 0 && (isFiltered
      ? html`<${Empty} title="No request fits"><p>Change or clear the filters; what comes from now on appears by itself.</p><//>`
      : html`<${Empty} title="Nothing came yet"><p>Requests of devices, apps and scripts appear here as they end. Those of this console are left out.</p><//>`)}
    ${tail.requests?.length > 0 && html`<${List} requests=${tail.requests} onOpen=${setChosen} />`}
    ${isPaused && html`<p class="quiet small" role="status">Paused. What comes meanwhile is shown when it goes on.</p>`}
    ${chosen && html`<${RequestDialog} id=${chosen} onClose=${() => setChosen(null)} />`}`;
}

/** The newest requests that fit, asked for once a second. */
function useTail(filters, isPaused) {
  const [state, setState] = useState({ requests: null, error: null });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (isPaused) return undefined;
    let isOver = false;
    const load = async () => {
      if (document.hidden) return;
      try {
        const found = await get("/_emulator/requests", { ...JSON.parse(filters), limit: SHOWN }, { account: "" });
        if (!isOver) setState({ requests: found.data, error: null });
      } catch (error) {
        if (!isOver) setState({ requests: null, error });
      }
    };
    load();
    const timer = setInterval(load, 1000);
    const stop = onChanges((_event, isBack) => isBack && load());
    return () => {
      isOver = true;
      clearInterval(timer);
      stop();
    };
  }, [filters, isPaused, turn]);
  return { ...state, restart: () => setTurn(turn + 1) };
}

function List({ requests, onOpen }) {
  const isSmall = useMedia("(max-width: 60rem)");
  const open = (one) => html`<button class="link request-path" type="button" onClick=${() => onOpen(one.id)}><span class="mono">${one.method || "?"} ${cut(one.path + (one.query ? `?${one.query}` : ""), 300)}</span></button>`;
  if (isSmall) {
    return html`<ul class="stack">${requests.map((one) => html`<li class="card request-card" key=${one.id}>${open(one)}
      <div class="row"><${Outcome} request=${one} /><span class="quiet small">${duration(one.duration_ms)} · ${time(one.received_at)}</span></div></li>`)}</ul>`;
  }
  return html`<div class="card table-scroll"><table class="requests">
    <caption class="sr">Requests, the newest first</caption>
    <thead><tr><th scope="col">Received</th><th scope="col">Request</th><th scope="col">Answer</th><th scope="col" class="number">Took</th><th scope="col">Account</th></tr></thead>
    <tbody>${requests.map((one) => html`<tr key=${one.id}>
      <td class="nowrap"><time datetime=${one.received_at} title=${one.received_at}>${time(one.received_at)}</time></td>
      <td>${open(one)}</td><td class="nowrap"><${Outcome} request=${one} /></td>
      <td class="number nowrap">${duration(one.duration_ms)}</td><td class="mono">${one.account ? cut(one.account, 24) : html`<span class="quiet">none</span>`}</td></tr>`)}</tbody></table></div>`;
}

function RequestDialog({ id, onClose }) {
  const found = useLoaded(() => get(`/_emulator/requests/${segment(id)}`, {}, { account: "" }), [id]);
  const one = found.value;
  return html`<${Dialog} title=${one ? `${one.method || "?"} ${cut(one.path, 120)}` : "Request"} onClose=${onClose}>
    <div class="stack">
      ${found.error && html`<${ErrorBox} error=${found.error} title="This request is not in the log any more" />`}
      ${!one && !found.error && html`<${Loading} />`}
      ${one && html`<${Exchange} request=${one} />`}
    </div><//>`;
}
