// Choose a scenario, see what a run of it would do or what is wrong with it, and start it.
import { ErrorBox, Loading } from "./states.js";
import { get, post, segment } from "../core/api.js";
import { html, useState } from "../core/html.js";
import { useLoaded } from "../core/load.js";
import { count, decimals, duration, plural } from "../core/text.js";

export function ScenarioChoice({ hasFolder, onStarted }) {
  const [name, setName] = useState("");
  const listed = useLoaded(() => (hasFolder ? get("/_emulator/scenarios") : Promise.resolve({ data: [] })), [hasFolder]);
  if (!hasFolder) return html`<${NoFolder} />`;
  if (listed.error) return html`<${ErrorBox} error=${listed.error} action=${listed.reload} />`;
  if (!listed.value) return html`<${Loading} />`;
  const names = listed.value.data.map((one) => one.name);
  if (names.length === 0) {
    return html`<p>The folder of scenarios is empty. Write one to start from, and open this dialog again:</p><pre class="code">fleet-simulator init scenario.yaml</pre>`;
  }
  return html`<div class="stack">
    <div class="field"><label for="scenario">Scenario</label>
      <select class="input" id="scenario" value=${name} onChange=${(event) => setName(event.currentTarget.value)}>
        <option value="">Choose one</option>${names.map((one) => html`<option value=${one} key=${one}>${one}</option>`)}</select></div>
    ${name && html`<${Checked} key=${name} name=${name} onStarted=${onStarted} />`}</div>`;
}

const NoFolder = () => html`<div class="stack"><p>This service starts no runs, since it was not given a folder of scenarios. End it and start it again with:</p>
  <pre class="code">fleet-simulator up --scenarios DIR --runs fleet-runs</pre>
  <p class="quiet">Runs that are started in a terminal are shown here all the same.</p></div>`;

function Checked({ name, onStarted }) {
  const checked = useLoaded(() => get(`/_emulator/scenarios/${segment(name)}`), [name]);
  const [audit, setAudit] = useState(true);
  const [state, setState] = useState({ busy: false, error: null });
  const start = async () => {
    setState({ busy: true, error: null });
    try {
      onStarted(await post("/_emulator/runs", { scenario: name, audit }));
    } catch (error) {
      setState({ busy: false, error });
    }
  };
  if (checked.isLoading) return html`<${Loading} text="Checking the scenario…" />`;
  if (checked.error) return html`<${ErrorBox} error=${checked.error} action=${checked.reload} />`;
  const { faults, plan, text } = checked.value;
  return html`
    ${plan ? html`<${Plan} plan=${plan} />` : html`<${Faults} faults=${faults} />`}
    ${state.error && html`<${ErrorBox} error=${state.error} title="The run was not started" />`}
    <div class="row"><button class="button main" type="button" disabled=${!plan || state.busy} onClick=${start}>${state.busy ? "Starting…" : "Start the run"}</button>
      <label class="check"><input type="checkbox" checked=${audit} onChange=${(event) => setAudit(event.currentTarget.checked)} />Read everything back at the end</label>
      ${!plan && html`<button class="button" type="button" onClick=${checked.reload}>Check it again</button>`}</div>
    <p class="quiet small">It goes against this service, as a process of its own, and ends when the service ends.</p>
    <details open=${!plan}><summary>${name}</summary><${Lines} text=${text} faults=${faults} /></details>`;
}

function Plan({ plan }) {
  const last = plan.phases.at(-1);
  const peak = Math.max(0, ...plan.phases.map((phase) => Object.values(phase.rates).reduce((sum, rate) => sum + rate, 0)));
  return html`<div class="stack">${plan.description && html`<p>${plan.description}</p>`}
    <dl class="facts"><dt>Devices</dt><dd>${count(plan.devices)}</dd>
      <dt>Lasts</dt><dd>${duration((last?.end_s ?? 0) * 1000)}, and until everything is handed over</dd>
      <dt>Phases</dt><dd>${plan.phases.map((phase) => phase.name).join(", ")}</dd>
      <dt>Requests</dt><dd>up to ${decimals(peak)}/s</dd><dt>Workers</dt><dd>${plural(plan.workers, "process", "processes")}</dd></dl></div>`;
}

const place = (fault) => (fault.line === null ? "" : `line ${fault.line}, column ${fault.column}: `);

const Faults = ({ faults }) => html`<div class="notice bad" role="alert"><strong>${plural(faults.length, "fault")} in this scenario</strong>
  <ul class="scenario-faults">${faults.map((fault, index) => html`<li key=${index}><code>${place(fault)}</code>${fault.text}</li>`)}</ul>
  <p class="small">Mend the file, then check it again.</p></div>`;

function Lines({ text, faults }) {
  const wrong = new Set(faults.map((fault) => fault.line));
  return html`<pre class="code scenario-text" tabindex="0" aria-label="The scenario">${text.split("\n").slice(0, 2000).map((line, index) => html`<span
    class="scenario-line ${wrong.has(index + 1) ? "wrong" : ""}" key=${index}><span class="scenario-number" aria-hidden="true">${index + 1}</span>${line}${"\n"}</span>`)}</pre>`;
}
