// Fleet runs of a folder: how each ended, and a scenario started.
import { get, post, segment } from "./api.js";
import { count, cut, duration } from "./text.js";
import {
  Badge, Dialog, Empty, ErrorBox, Field, html, Loaded, Select, useAction, useLoaded, useState, When,
} from "./ui.js";

export const RUNS = "/_emulator/runs";

export function Runs() {
  const list = useLoaded(() => get(RUNS), [], 3000);
  const [isStarting, setStarting] = useState(false);
  const { data, folder, scenarios } = list.value ?? {};
  return html`
    <div class="head"><h1>Runs</h1><button class="button main" type="button" disabled=${!list.value}
      onClick=${() => setStarting(true)}>Start a run</button></div>
    <${Loaded} from=${list} title="The runs could not be read">
      <p class="quiet">Fleet runs in <code>${folder}</code>, the latest first.</p>
      ${data?.length === 0 && html`<${Empty} title="No runs yet"><p>Start one here, or in a terminal:</p>
        <pre class="code">fleet-simulator run SCENARIO.yaml --out ${folder}/NAME</pre><//>`}
      ${data?.length > 0 && html`<${Table} rows=${data} />`}<//>
    ${isStarting && html`<${Dialog} title="Start a run" onClose=${() => setStarting(false)}><${Start}
      scenarios=${scenarios} /><//>`}`;
}

function Table({ rows }) {
  return html`<div class="card table-scroll"><table>
    <caption class="sr">Runs, the latest first</caption>
    <thead><tr><th scope="col">Run</th><th scope="col">Verdict</th><th scope="col">Began</th><th scope="col"
      class="number">Lasted</th>
      <th scope="col" class="number">Devices</th><th scope="col" class="wide">Target</th></tr></thead>
    <tbody>${rows.map((one) => html`<tr key=${one.id}>
      <th scope="row"><a href="#/runs/${segment(one.id)}">${cut(one.id, 120)}</a></th><td><${Badge}
        state=${one.word} /></td>
      <td class="nowrap"><${When} at=${one.began_at} none="–" /></td><td class="number nowrap">
        ${duration(one.duration_s)}</td>
      <td class="number">${one.devices === null ? "–" : count(one.devices)}</td><td class="mono wide">
        ${cut(one.target || "–", 120)}</td></tr>`)}
    </tbody></table></div>`;
}

function Start({ scenarios }) {
  const [name, setName] = useState(scenarios?.[0] ?? "");
  const action = useAction();
  if (scenarios === null) {
    return html`<p>The service was started without a folder of scenarios, so none can be started from here:</p>
      <pre class="code">fleet-simulator up --scenarios DIR</pre>`;
  }
  if (!scenarios.length) {
    return html`<p>The folder of scenarios holds no <code>.yaml</code> file. This writes one:</p>
      <pre class="code">fleet-simulator init</pre>`;
  }
  const submit = (event) => {
    event.preventDefault();
    action.run(async () => {
      const run = await post(RUNS, { scenario: name });
      location.hash = `#/runs/${segment(run.id)}`;
    });
  };
  return html`<form class="stack" onSubmit=${submit}>
    <${Field} id="scenario" label="Scenario"
      help="A process of its own loads this service, whatever port of this machine the scenario names.">
      <${Select} id="scenario" value=${name} onChoose=${setName} options=${scenarios.map((one) => [one, one])} /><//>
    ${action.isBusy && html`<p class="loading"
      role="status">Starting: it says within some seconds whether it can run.</p>`}
    ${action.error && html`<${ErrorBox} error=${action.error} title="The run was not started" />`}
    <div><button class="button main" type="submit" disabled=${action.isBusy}>Start it</button></div></form>`;
}
