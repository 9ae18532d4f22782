// Faults on purpose: a list of those that are on, a form for those that are wanted most, any other as JSON.
import { del, Failure, get, post, segment } from "./api.js";
import { cut, value } from "./text.js";
import { Empty, ErrorBox, Field, html, Input, Loaded, Select, toast, useAction, useLoaded, useState } from "./ui.js";

const PATH = "/_emulator/faults";
const METHODS = [["", "Any"], ...["GET", "POST", "PUT", "DELETE"].map((one) => [one, one])];
const PATHS = [
  "/sensor-data", "/devices/{device_id}/commands", "/devices/{device_id}/commands/{command_id}/result",
  "/commands/send", "/onboarding/device", "/onboarding/scan-qr", "/products",
];
const EXAMPLE = { match: { method: "POST", path: "/sensor-data" }, times: { next: 3 }, effect: { lose: "answer" } };
/** What happens to a request; `number` is what its effect needs, with its unit. */
const EFFECTS = {
  latency: {
    label: "The answer comes late", help: "The request is carried out at once.", number: ["By", "s", 2],
    effect: (s) => ({ latency: { fixed_s: s } }),
  },
  lose_answer: {
    label: "The answer is lost", effect: () => ({ lose: "answer" }),
    help: "Carried out; the connection closes without an answer. Does your firmware send twice?",
  },
  lose_request: {
    label: "The request is lost", help: "The connection closes, and nothing is carried out.",
    effect: () => ({ lose: "request" }),
  },
  limited: {
    label: "429, too many requests", help: "Nothing is carried out.", number: ["Retry after", "s", 10],
    effect: (s) => ({ answer: { status: 429, retry_after_s: s } }),
  },
  failed: {
    label: "The server fails", help: "An error instead of the answer; nothing is carried out.",
    number: ["Status", "", 503], effect: (status) => ({ answer: { status } }),
  },
  reset: {
    label: "The connection is reset", help: "As a lost answer, with a TCP reset.", effect: () => ({ reset: "answer" }),
  },
  truncate: {
    label: "The body ends too early", help: "Half of the JSON comes, then the connection closes.",
    effect: () => ({ truncate: true }),
  },
};

export function Faults() {
  const list = useLoaded(() => get(PATH), [], 2000);
  const action = useAction();
  const rows = list.value?.data;
  const remove = (id) => action.run(async () => {
    await del(id ? `${PATH}/${segment(id)}` : PATH).catch((error) => {
      if (error.status !== 404) throw error; // somebody else was first: it is gone all the same
    });
    await list.reload();
  });
  const add = async (body) => {
    await post(PATH, body);
    await list.reload();
    toast("The fault is on.");
  };
  return html`
    <div class="head"><h1>Faults</h1><button class="button bad" type="button"
      disabled=${!rows?.length || action.isBusy} onClick=${() => remove(null)}>Remove all</button></div>
    ${action.error && html`<${ErrorBox} error=${action.error} title="It was not removed" />`}
    <div class="stack">
      <${Loaded} from=${list} title="The faults could not be read">
        ${rows?.length === 0 && html`<${Empty} title="The service works as it should">
          <p>Switch a fault on below: requests meet it until it is removed. Those of this console meet none.</p><//>`}
        ${rows?.length > 0 && html`<${Table} rows=${rows} onRemove=${remove} />`}<//>
      <${Add} onAdd=${add} />
      <${AddJson} onAdd=${add} />
    </div>`;
}

function Table({ rows, onRemove }) {
  return html`<div class="card table-scroll"><table>
    <caption class="sr">Faults, in the order in which they are asked</caption>
    <thead><tr><th scope="col">Effect</th><th scope="col">Requests</th><th scope="col" class="number">Fit</th>
      <th scope="col" class="number">Met it</th><td></td></tr></thead>
    <tbody>${rows.map((one) => html`<tr key=${one.fault_id}>
      <th scope="row">${inWords(one.effect)}</th><td>${matchWords(one.match)} <span class="quiet">
        ${timesWords(one.times)}</span></td>
      <td class="number">${one.matched}</td><td class="number">${one.hits}</td>
      <td class="number"><button class="button small" type="button" aria-label="Remove: ${inWords(one.effect)}"
        onClick=${() => onRemove(one.fault_id)}>Remove</button></td>
    </tr>`)}</tbody></table></div>`;
}

function inWords(effect) {
  const [name, given] = Object.entries(effect).find(([, one]) => one !== null) ?? ["", null];
  if (name === "latency") return `answers ${given.fixed_s ?? `${given.min_s} to ${given.max_s}`} s late`;
  if (name === "answer" && given.retry_after_s != null) return `answers ${given.status}, retry after ${given.retry_after_s} s`;
  if (name === "answer") return `answers ${given.status}`;
  if (name === "lose") return given === "answer" ? "the answer is lost" : "the request is lost";
  if (name === "reset") return `the connection is reset (${given})`;
  return name === "truncate" ? "the body ends too early" : cut(JSON.stringify(effect), 200);
}

function matchWords(match) {
  const { method, path, ...others } = Object.fromEntries(Object.entries(match).filter(([, one]) => one != null));
  const rest = Object.entries(others).map(([name, one]) => `${name} ${value(one)}`);
  return cut([[method, path].filter(Boolean).join(" ") || "every request", ...rest].join(", "), 300);
}

function timesWords(times) {
  return [
    times.after && `not the first ${times.after}`, times.next && `${times.next} times`,
    times.probability && `${Math.round(times.probability * 1000) / 10} % of them`,
  ].filter(Boolean).join(", ");
}

function Add({ onAdd }) {
  const [kind, setKind] = useState("latency");
  const [number, setNumber] = useState("2");
  const [match, setMatch] = useState({ method: "", path: "", device_id: "" });
  const [times, setTimes] = useState({ share: "100", next: "" });
  const action = useAction();
  const { help, number: needed, effect } = EFFECTS[kind];
  const choose = (name) => {
    setKind(name);
    setNumber(String(EFFECTS[name].number?.[2] ?? ""));
  };
  const set = (name) => (text) => setMatch({ ...match, [name]: text.trim() });
  const submit = (event) => {
    event.preventDefault();
    const given = Object.fromEntries(Object.entries(match).filter(([, one]) => one));
    const when = {};
    if (times.share !== "100") when.probability = Number(times.share) / 100;
    if (times.next) when.next = Number(times.next);
    action.run(() => onAdd({ match: given, times: when, effect: effect(Number(number)) }));
  };
  return html`<form class="card stack" onSubmit=${submit} aria-labelledby="add-title"><h2
    id="add-title">Switch a fault on</h2>
    <div class="pair">
      <${Field} id="effect" label="Effect" help=${help}><${Select} id="effect" value=${kind} onChoose=${choose}
        options=${Object.entries(EFFECTS).map(([name, one]) => [name, one.label])} /><//>
      ${needed && html`<${Field} id="number" label=${needed[0] + (needed[1] && `, ${needed[1]}`)}>
        <${Input} id="number" type="number" min="0" step="any" required value=${number} onText=${setNumber} /><//>`}
    </div>
    <div class="pair">
      <${Field} id="method" label="Method"><${Select} id="method" value=${match.method} options=${METHODS}
        onChoose=${set("method")} /><//>
      <${Field} id="path" label="Path"><${Input} id="path" list="paths" placeholder="Any" value=${match.path}
        onText=${set("path")} />
        <datalist id="paths">${PATHS.map((one) => html`<option key=${one} value=${one}></option>`)}</datalist><//>
      <${Field} id="device" label="Device id"><${Input} id="device" placeholder="Any" value=${match.device_id}
        onText=${set("device_id")} /><//>
      <${Field} id="share" label="Share of them, %"><${Input} id="share" type="number" min="1" max="100" required
        value=${times.share} onText=${(share) => setTimes({ ...times, share })} /><//>
      <${Field} id="next" label="How many times"><${Input} id="next" type="number" min="1" placeholder="Until removed"
        value=${times.next} onText=${(next) => setTimes({ ...times, next })} /><//>
    </div>
    ${action.error && html`<${ErrorBox} error=${action.error} title="This fault was not added" />`}
    <div><button class="button main" type="submit" disabled=${action.isBusy}>Switch it on</button></div></form>`;
}

function readJson(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Failure(400, "invalid_json", `This is no JSON: ${error.message}.`);
  }
}

function AddJson({ onAdd }) {
  const [text, setText] = useState(JSON.stringify(EXAMPLE, null, 2));
  const action = useAction();
  const submit = (event) => {
    event.preventDefault();
    action.run(() => onAdd(readJson(text)));
  };
  return html`<details class="card"><summary>Write one as JSON</summary><form class="stack" onSubmit=${submit}>
    <${Field} id="fault-json" label="match, times and effect" help="As POST /_emulator/faults takes it.">
      <textarea class="input" id="fault-json" rows="6" spellcheck=${false} value=${text}
        onInput=${(event) => setText(event.currentTarget.value)}></textarea><//>
    ${action.error && html`<${ErrorBox} error=${action.error} title="This fault was not added" />`}
    <div><button class="button" type="submit" disabled=${action.isBusy}>Add it</button></div></form></details>`;
}
