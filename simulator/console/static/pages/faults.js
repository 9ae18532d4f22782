// Faults on purpose: switches for those that are wanted most, any other as JSON, and how often each was met.
import { Dialog } from "../components/dialog.js";
import { Empty, ErrorBox, Loading } from "../components/states.js";
import { toast, toastError } from "../components/toast.js";
import { del, get, post, segment } from "../core/api.js";
import { effectText, matchText, PRESETS, timesText } from "../core/fault_presets.js";
import { html, useState } from "../core/html.js";
import { useChanges } from "../core/live.js";
import { useLoaded } from "../core/load.js";
import { plural } from "../core/text.js";

export const title = "Faults";

const CONTROL = { account: "" };
const PATHS = ["/sensor-data", "/devices/{device_id}/commands", "/devices/{device_id}/commands/{command_id}/result", "/commands/send", "/onboarding/device", "/onboarding/scan-qr", "/products"];
const METHODS = ["GET", "POST", "PUT", "DELETE"];
const EXAMPLE = { match: { method: "POST", path: "/sensor-data" }, times: { next: 3 }, effect: { lose: "answer" } };

export default function Faults() {
  const faults = useLoaded(() => get("/_emulator/faults", {}, CONTROL), []);
  const [match, setMatch] = useState({ method: "", path: "", device_id: "" });
  const [share, setShare] = useState(100);
  const [isWriting, setWriting] = useState(false);
  useChanges(() => faults.reload(), [faults.reload]);
  const rows = faults.value?.data;

  const add = async (body) => {
    try {
      await post("/_emulator/faults", body, CONTROL);
      faults.reload();
      return true;
    } catch (error) {
      toastError(error);
      return false;
    }
  };
  const remove = async (id) => {
    try {
      await del(id ? `/_emulator/faults/${segment(id)}` : "/_emulator/faults", CONTROL);
    } catch (error) {
      if (error.status !== 404) toastError(error); // somebody else was first: it is gone all the same
    }
    faults.reload();
  };
  const given = Object.fromEntries(Object.entries(match).filter(([, value]) => value));
  const times = share < 100 ? { probability: share / 100 } : {};
  return html`
    <div class="head"><h1>Faults</h1>
      <button class="button" type="button" onClick=${() => setWriting(true)}>Write one as JSON</button>
      <button class="button bad" type="button" disabled=${!rows?.length} onClick=${() => remove(null).then(() => toast("No request meets a fault any more.", "good"))}>Remove all</button></div>
    ${faults.error && html`<${ErrorBox} error=${faults.error} title="The faults could not be read" action=${faults.reload} />`}
    ${!rows && !faults.error && html`<${Loading} />`}
    ${rows?.length === 0 && html`<${Empty} title="The service works as it should"><p>Switch a fault on below: requests then meet it until it is switched off. Requests of this console meet none.</p><//>`}
    ${rows?.length > 0 && html`<${List} rows=${rows} onRemove=${remove} />`}
    <section class="stack faults-new" aria-labelledby="new-title"><h2 id="new-title">Switch one on</h2>
      <${Which} match=${match} setMatch=${setMatch} share=${share} setShare=${setShare} />
      <ul class="fault-presets">${PRESETS.map((preset) => html`<${Preset} key=${preset.id} preset=${preset} onAdd=${(effect) => add({ match: given, times, effect })} />`)}</ul></section>
    ${isWriting && html`<${Dialog} title="A fault as JSON" onClose=${() => setWriting(false)}><${Writing} onDone=${() => { setWriting(false); faults.reload(); }} /><//>`}`;
}

function List({ rows, onRemove }) {
  return html`<div class="card table-scroll"><table class="faults">
    <caption class="sr">Faults, in the order in which they are asked</caption>
    <thead><tr><th scope="col">On</th><th scope="col">Effect</th><th scope="col">Requests</th><th scope="col" class="number">Fit</th><th scope="col" class="number">Met it</th></tr></thead>
    <tbody>${rows.map((one) => {
      const effect = effectText(one.effect);
      return html`<tr key=${one.fault_id}>
        <td><button class="switch" type="button" role="switch" aria-checked="true" aria-label="Switch off: ${effect}" onClick=${() => onRemove(one.fault_id)}></button></td>
        <th scope="row">${effect}</th>
        <td>${matchText(one.match)}${timesText(one.times) && html`<span class="quiet small"> ${timesText(one.times)}</span>`}</td>
        <td class="number">${one.matched}</td><td class="number">${one.hits}</td></tr>`;
    })}</tbody></table></div>`;
}

function Which({ match, setMatch, share, setShare }) {
  const set = (name) => (event) => setMatch({ ...match, [name]: event.currentTarget.value.trim() });
  return html`<form class="filters" onSubmit=${(event) => event.preventDefault()} aria-label="Which requests meet it">
    <div class="field"><label for="method">Method</label><select class="input" id="method" value=${match.method} onChange=${set("method")}><option value="">Any</option>${METHODS.map((one) => html`<option key=${one}>${one}</option>`)}</select></div>
    <div class="field"><label for="path">Path</label><input class="input" id="path" list="paths" maxlength="300" autocomplete="off" placeholder="Any" value=${match.path} onInput=${set("path")} />
      <datalist id="paths">${PATHS.map((one) => html`<option key=${one} value=${one}></option>`)}</datalist></div>
    <div class="field"><label for="device">Device id</label><input class="input" id="device" maxlength="200" autocomplete="off" placeholder="Any" value=${match.device_id} onInput=${set("device_id")} /></div>
    <div class="field"><label for="share">Share of them, %</label><input class="input" id="share" type="number" min="1" max="100" step="1" value=${share} onInput=${(event) => setShare(Math.min(100, Math.max(1, Number(event.currentTarget.value) || 100)))} /></div>
  </form>`;
}

function Preset({ preset, onAdd }) {
  const { field } = preset;
  const [value, setValue] = useState(field?.value);
  const [busy, setBusy] = useState(false);
  const act = async () => {
    setBusy(true);
    if (await onAdd(preset.effect(value))) toast(`On: ${preset.label.toLowerCase()}.`, "good");
    setBusy(false);
  };
  const read = (event) => setValue(field.options ? event.currentTarget.value : Number(event.currentTarget.value));
  const id = `fault-${preset.id}`;
  return html`<li class="card fault-preset"><h3>${preset.label}</h3><p class="quiet small">${preset.help}</p>
    <div class="row">
      ${field && html`<label class="small" for=${id}>${field.label}${field.unit ? `, ${field.unit}` : ""}</label>
        ${field.options ? html`<select class="input" id=${id} value=${value} onChange=${read}>${field.options.map((one) => html`<option key=${one}>${one}</option>`)}</select>`
          : html`<input class="input" id=${id} type="number" min=${field.min} max=${field.max} step=${field.step} value=${value} onInput=${read} />`}`}
      <button class="button small" type="button" disabled=${busy} aria-label="Switch on: ${preset.label}" onClick=${act}>Switch on</button></div></li>`;
}

function Writing({ onDone }) {
  const [text, setText] = useState(JSON.stringify(EXAMPLE, null, 2));
  const [error, setError] = useState(null);
  const act = async (event) => {
    event.preventDefault();
    let body;
    try {
      body = JSON.parse(text);
    } catch (broken) {
      setError({ message: `This is no JSON: ${broken.message}` });
      return;
    }
    try {
      await post("/_emulator/faults", body, CONTROL);
      onDone();
    } catch (refused) {
      setError(refused);
    }
  };
  return html`<form class="stack" onSubmit=${act}>
    <div class="field"><label for="fault-json">match, times and effect</label>
      <p class="help">Which requests, at which times, and one effect. <a href="/docs" target="_blank" rel="noopener">The documents</a> have every member.</p>
      <textarea class="input mono" id="fault-json" rows="12" spellcheck="false" maxlength="200000" value=${text} onInput=${(event) => setText(event.currentTarget.value)}></textarea></div>
    ${error && html`<${ErrorBox} error=${error} title="This fault was not added" />`}
    <div class="row"><button class="button main" type="submit">Add</button><span class="quiet small">${plural(text.length, "character")}</span></div></form>`;
}
