// Fleet runs of a folder: how each ended, and a scenario started.
import { Dialog } from "../components/dialog.js";
import { clock, deviceCount, figure, figureLabel, figureText, isActive, RunBadge } from "../components/runfigures.js";
import { ScenarioChoice } from "../components/scenariochoice.js";
import { Empty, ErrorBox, Loading } from "../components/states.js";
import { get, segment } from "../core/api.js";
import { html, useEffect, useState } from "../core/html.js";
import { liveState } from "../core/live.js";
import { useLoaded } from "../core/load.js";
import { useMedia, useSettled } from "../core/media.js";
import { keepInAddress, navigate } from "../core/router.js";
import { useStore } from "../core/store.js";
import { count, plural, time } from "../core/text.js";

export const title = "Runs";

const STEP = 50;
const ACTIVE_MS = 2000;
const QUIET_MS = 10000;
const SHOWN = ["readings.age p99", "commands.age p99", "errors"];

export default function Runs({ query }) {
  const [q, setQ] = useState(query.q ?? "");
  const [limit, setLimit] = useState(STEP);
  const [isStarting, setStarting] = useState(query.start !== undefined);
  const text = useSettled(q, 200);
  const runs = useLoaded(() => get("/_emulator/runs", { q: text, limit: Math.min(limit, 200) }), [text, limit]);
  useEffect(() => keepInAddress({ q: text }), [text]);
  useReading(runs);

  const found = runs.value;
  return html`
    <div class="head"><h1>Runs</h1>
      <button class="button main" type="button" onClick=${() => setStarting(true)}>Start a run</button></div>
    ${found && html`<p class="quiet runs-where">Fleet runs in <code>${found.folder}</code>. Each holds its report, its seconds and its ledgers.</p>`}
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <div class="field search"><label for="search">Search</label>
        <input class="input" id="search" type="search" maxlength="200" autocomplete="off" placeholder="Part of a run's name" value=${q} onInput=${(event) => setQ(event.currentTarget.value)} /></div>
    </form>
    ${runs.error && html`<${ErrorBox} error=${runs.error} title="The runs could not be read" action=${runs.reload} />`}
    ${!found && !runs.error && html`<${Loading} />`}
    ${found && found.total === 0 && html`<${NoRuns} isFiltered=${Boolean(text)} folder=${found.folder} onStart=${() => setStarting(true)} />`}
    ${found && found.total > 0 && html`<${List} runs=${found.data} />`}
    ${found && found.total > found.data.length && html`<div class="row runs-more">
      <span class="quiet">${count(found.data.length)} of ${plural(found.total, "run")}</span>
      ${found.data.length < 200 ? html`<button class="button small" type="button" onClick=${() => setLimit(limit + STEP)}>Show more</button>` : html`<span class="quiet">Search by name to see the others.</span>`}</div>`}
    ${isStarting && html`<${Dialog} title="Start a run" onClose=${() => setStarting(false)}>
      <${ScenarioChoice} hasFolder=${found?.scenarios !== null} onStarted=${(run) => navigate(`/console/runs/${segment(run.id)}`)} /><//>`}`;
}

/** Read the list again and again: often while a run goes on, and at once when the service is back. */
function useReading(runs) {
  const isQuick = runs.value?.data.some(isActive);
  const live = useStore(liveState);
  useEffect(() => {
    if (live === "off" || live === "ended") return undefined;
    runs.reload();
    const timer = setInterval(() => document.hidden || runs.reload(), isQuick ? ACTIVE_MS : QUIET_MS);
    return () => clearInterval(timer);
  }, [isQuick, runs.reload, live]);
}

function NoRuns({ isFiltered, folder, onStart }) {
  if (isFiltered) return html`<${Empty} title="No run has that in its name"><p>Change or clear what you search for.</p><//>`;
  return html`<${Empty} title="No runs yet">
    <p>A fleet run plays a scenario of virtual devices against this service, measures it, and proves that nothing was lost. Runs come here when they are started from this page, or in a terminal with:</p>
    <pre class="code">fleet-simulator run scenario.yaml --out ${folder}/first</pre>
    <div><button class="button main" type="button" onClick=${onStart}>Start a run</button></div><//>`;
}

const Name = ({ run }) => html`<a href="/console/runs/${segment(run.id)}">${run.id}</a>`;
const Began = ({ run }) => (run.began_at ? html`<time datetime=${run.began_at}>${time(run.began_at)}</time>` : html`<span class="quiet">–</span>`);
const why = (run) => run.fault ?? run.verdict?.sentences[0] ?? "";
const shown = (run, name) => {
  const found = figure(run, name);
  return found ? figureText(found) : "–";
};

function List({ runs }) {
  const isSmall = useMedia("(max-width: 60rem)");
  if (isSmall) {
    return html`<ul class="stack">${runs.map((run) => html`<li class="card run-card" key=${run.id}>
      <div class="run-line"><strong><${Name} run=${run} /></strong><${RunBadge} run=${run} /></div>
      ${why(run) && html`<p class="quiet small">${why(run)}</p>`}
      <p class="quiet small"><${Began} run=${run} />${run.duration_s !== null ? ` · ${clock(run.duration_s)}` : ""}${run.devices !== null ? ` · ${plural(run.devices, "device")}` : ""}</p>
      ${run.figures.length > 0 && html`<dl class="facts-row">${SHOWN.filter((name) => figure(run, name)).map((name) => html`<div key=${name}><dt>${figureLabel(name)}</dt><dd>${shown(run, name)}</dd></div>`)}</dl>`}</li>`)}</ul>`;
  }
  return html`<div class="card table-scroll runs-table" tabindex="0" role="region" aria-label="Table of runs"><table>
    <caption class="sr">Fleet runs, those that go on first, then the latest</caption>
    <thead><tr><th scope="col">Run</th><th scope="col">Verdict</th><th scope="col">Began</th>
      <th scope="col" class="number">Lasted</th><th scope="col" class="number">Devices</th>${SHOWN.map((name) => html`<th scope="col" class="number" key=${name}>${figureLabel(name)}</th>`)}<th scope="col" class="number">Lost</th></tr></thead>
    <tbody>${runs.map((run) => html`<tr key=${run.id}>
      <th scope="row" class="run-name"><${Name} run=${run} />${why(run) && html`<span class="quiet small">${why(run)}</span>`}</th>
      <td><${RunBadge} run=${run} /></td><td class="nowrap"><${Began} run=${run} /></td>
      <td class="number nowrap">${run.duration_s === null ? "–" : clock(run.duration_s)}</td><td class="number nowrap">${deviceCount(run)}</td>
      ${SHOWN.map((name) => html`<td class="number nowrap" key=${name}>${shown(run, name)}</td>`)}
      <td class="number">${run.lost === null ? "–" : count(run.lost)}</td></tr>`)}</tbody></table></div>`;
}
