// Send a command: to one device, some, or all of a product; as a form from the product's vocabulary, or as JSON.
import { account } from "../core/account.js";
import { get } from "../core/api.js";
import { loadVocabulary, nameOf, sendCommand } from "../core/commands.js";
import { html, useMemo, useState } from "../core/html.js";
import { useLoaded } from "../core/load.js";
import { fieldsOf, readForm } from "../core/schema.js";
import { commandAsCurl, commandAsPython } from "../core/snippets.js";
import { useStore } from "../core/store.js";
import { bytes, count, cut, plural } from "../core/text.js";
import { CopyBlock } from "./copy.js";
import { Dialog } from "./dialog.js";
import { SchemaForm } from "./schema_form.js";
import { SentCommands } from "./sent.js";
import { ErrorBox, Loading } from "./states.js";
import { Tabs } from "./tabs.js";

const PAYLOAD_BYTES = 64 * 1024; // the service's limit
const AT_ONCE = 6;
const SHOWN_IN_LINES = 50;

/** Whom it goes to, in words. */
function wordsFor(target) {
  if (!target.devices) return `all ${plural(target.total, "device")} of ${cut(target.product_name ?? "the product", 60)}`;
  if (target.devices.length === 1) return cut(target.devices[0].device_name || target.devices[0].device_id, 60);
  return plural(target.devices.length, "chosen device");
}

/** @param {{target: {devices?: object[], product_id: string|null, product_name?: string, total?: number}, payload?: object, onClose: Function}} properties */
export function SendDialog({ target, payload, onClose }) {
  const vocabulary = useLoaded(() => (target.product_id ? loadVocabulary(target.product_id) : []), [target.product_id]);
  const [sent, setSent] = useState(null);
  return html`<${Dialog} title="Send a command to ${wordsFor(target)}" onClose=${onClose}>
    ${sent ? html`<${SentCommands} sent=${sent} onBack=${() => setSent(null)} />`
      : vocabulary.value === null && !vocabulary.error ? html`<${Loading} />`
      : html`<${SendForm} target=${target} vocabulary=${vocabulary.value ?? []} failed=${vocabulary.error} payload=${payload} onSent=${setSent} />`}
  <//>`;
}

function SendForm({ target, vocabulary, failed, payload, onSent }) {
  const known = vocabulary.some((one) => one.name === payload?.command);
  const [mode, setMode] = useState(payload || !vocabulary.length ? "json" : "form");
  const [source, setSource] = useState(mode); // of the two that are written in, the one that was used last
  const [name, setName] = useState(known ? payload.command : vocabulary[0]?.name ?? "");
  const [texts, setTexts] = useState({});
  const [json, setJson] = useState(JSON.stringify(payload ?? { command: "" }, null, 2));
  const [ttl, setTtl] = useState("");
  const [faults, setFaults] = useState({});
  const [progress, setProgress] = useState(null);
  const [error, setError] = useState(null);
  const chosen = vocabulary.find((one) => one.name === name);
  const fields = useMemo(() => fieldsOf(chosen?.payload_schema).filter((one) => one.name !== "command"), [chosen]);
  const read = () => (source === "json" ? readJson(json) : readForm(fields, texts, name));
  const now = read();
  const ttlFault = ttl && !(Number.isInteger(Number(ttl)) && ttl >= 1 && ttl <= 172800) ? "This must be a whole number of seconds, 1 to 172800 (48 hours)." : "";

  const submit = async (event) => {
    event.preventDefault();
    setError(null);
    setFaults(now.faults);
    const wrong = Object.keys(now.faults)[0];
    if (wrong || ttlFault) {
      if (wrong) setMode(source);
      document.getElementById(ttlFault && !wrong ? "ttl" : `field-${wrong}`)?.focus();
      return;
    }
    try {
      const ids = await sendAll(target, now.payload, Number(ttl) || null, setProgress);
      if (ids.commands.length || ids.refused.length > 1) onSent(ids);
      else setError(ids.refused[0]?.error ?? { message: "There is no device to send it to." });
    } catch (problem) {
      setError(problem);
    } finally {
      setProgress(null);
    }
  };

  const choose = (id) => {
    if (id === "json" && source === "form") setJson(JSON.stringify(readForm(fields, texts, name).payload, null, 2));
    if (id === "json" || id === "form") setSource(id);
    setMode(id);
  };
  const tabs = [...(vocabulary.length ? [{ id: "form", label: "Form" }] : []), { id: "json", label: "JSON" }, { id: "curl", label: "As curl" }, { id: "python", label: "As Python" }];
  return html`<form class="stack" onSubmit=${submit} noValidate>
    ${failed && html`<${ErrorBox} error=${failed} title="The product's vocabulary could not be read" />`}
    ${!vocabulary.length && !failed && html`<p class="notice">${target.product_id ? "This product has no vocabulary, so there is no form: write the payload as JSON." : "The chosen devices are of several products, so there is no form: write the payload as JSON."}</p>`}
    <${Tabs} label="How to write it" tabs=${tabs} chosen=${mode} onChoose=${choose}>
      ${mode === "form" && html`<div class="stack">
        <div class="field"><label for="command-name">Command</label>
          <select class="input" id="command-name" value=${name} onChange=${(event) => { setName(event.currentTarget.value); setTexts({}); setFaults({}); }}>
            ${vocabulary.map((one) => html`<option value=${one.name} key=${one.name}>${cut(one.title || one.name, 80)}</option>`)}</select>
          ${chosen?.description && html`<span class="help">${cut(chosen.description, 500)}</span>`}</div>
        <${SchemaForm} fields=${fields} texts=${texts} faults=${faults} onChange=${(field, text) => setTexts({ ...texts, [field]: text })} />
      </div>`}
      ${mode === "json" && html`<div class="field"><label for="field-json">Payload</label>
        <textarea class="input" id="field-json" rows="10" spellcheck=${false} value=${json} aria-invalid=${Boolean(faults.json)} aria-describedby="json-help" onInput=${(event) => setJson(event.currentTarget.value)}></textarea>
        <span class="help" id="json-help">A JSON object of at most ${bytes(PAYLOAD_BYTES)}; "command" names what is to be done.</span>
        ${faults.json && html`<span class="fault">${faults.json}</span>`}</div>`}
      ${(mode === "curl" || mode === "python") && html`<${Snippet} kind=${mode} target=${target} payload=${now.payload ?? {}} ttl=${ttlFault ? null : Number(ttl) || null} />`}
    <//>
    <div class="field"><label for="ttl">Ends after (seconds)</label>
      <input class="input" id="ttl" type="number" min="1" max="172800" placeholder="3600" value=${ttl} aria-invalid=${Boolean(ttlFault)} onInput=${(event) => setTtl(event.currentTarget.value)} />
      <span class="help">A command that is not done by then ends as expired or timed out. 3600 (one hour) when left empty.</span>
      ${ttlFault && html`<span class="fault">${ttlFault}</span>`}</div>
    ${error && html`<${ErrorBox} error=${error} title="The command was not sent" />`}
    <div class="row"><button class="button main" type="submit" disabled=${progress !== null}>${progress ? `Sending ${count(progress.done)} of ${count(progress.total)}…` : `Send to ${wordsFor(target)}`}</button>
      ${progress && html`<button class="button" type="button" onClick=${() => { progress.stop.stopped = true; }}>Stop sending</button>`}</div>
  </form>`;
}

function Snippet({ kind, target, payload, ttl }) {
  const apiKey = useStore(account);
  const whom = target.devices ? { device_ids: target.devices.map((one) => one.device_id) } : { product_id: target.product_id };
  const text = (kind === "curl" ? commandAsCurl : commandAsPython)(whom, payload, ttl, apiKey);
  return html`<div class="stack"><${CopyBlock} text=${text} label=${kind === "curl" ? "As curl" : "As Python"} />
    <p class="quiet small">It takes the account's secret key from the environment: <code>export SECRET_KEY=msk_...</code></p></div>`;
}

function readJson(text) {
  if (new Blob([text]).size > PAYLOAD_BYTES * 4) return { faults: { json: `This is ${bytes(new Blob([text]).size)}; the service takes ${bytes(PAYLOAD_BYTES)}.` } };
  try {
    const payload = JSON.parse(text);
    if (payload === null || typeof payload !== "object" || Array.isArray(payload)) return { faults: { json: "This must be a JSON object, such as {\"command\": \"ping\"}." } };
    const size = new Blob([JSON.stringify(payload)]).size;
    if (size > PAYLOAD_BYTES) return { faults: { json: `This is ${bytes(size)}; the service takes ${bytes(PAYLOAD_BYTES)}. Put large data elsewhere and send its address.` } };
    return { payload, faults: {} };
  } catch (error) {
    return { faults: { json: `This is no JSON: ${error.message}.` } };
  }
}

/** Send it to each, a few at a time. @returns {{commands: object[], refused: {device: object, error: Error}[], isStopped: boolean}} */
async function sendAll(target, payload, ttl, onProgress) {
  const stop = { stopped: false };
  const devices = target.devices ?? (await allOf(target.product_id, (found) => onProgress({ done: 0, total: found, stop })));
  const commands = [];
  const refused = [];
  let next = 0;
  const worker = async () => {
    while (next < devices.length && !stop.stopped) {
      const device = devices[next++];
      try {
        commands.push({ ...(await sendCommand(device.device_id, payload, ttl)), device_name: device.device_name });
      } catch (error) {
        refused.push({ device, error });
        if (error.status === 0 || error.status === 401) stop.stopped = true; // no service, or no session: the rest would fail alike
      }
      onProgress({ done: commands.length + refused.length, total: devices.length, stop });
    }
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, devices.length) }, worker));
  return { commands, refused, total: devices.length, isStopped: stop.stopped, shown: SHOWN_IN_LINES, name: nameOf(payload) };
}

async function allOf(productId, onFound) {
  const found = [];
  let total = 1;
  while (found.length < total) {
    const page = await get("/_emulator/device-table", { product_id: productId, offset: found.length, limit: 200 });
    if (!page.data.length) break;
    total = page.total;
    found.push(...page.data);
    onFound(total);
  }
  return found;
}
