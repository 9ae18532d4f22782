// Fleet runs of a folder: how each ended, two or more side by side, and a scenario started.
import { Dialog } from "../components/dialog.js";
import { clock, deviceCount, figure, figureLabel, figureText, isActive, RunBadge } from "../components/runfigures.js";
import { ScenarioChoice } from "../components/scenariochoice.js";
import { Empty, ErrorBox, Loading } from "../components/states.js";
import { toastError } from "../components/toast.js";
import { get, post, segment } from "../core/api.js";
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
  const [chosen, setChosen] = useState([]);
  const [isStarting, setStarting] = useState(query.start !== undefined);
  const [comparison, setComparison] = useState(null);
  const text = useSettled(q, 200);
  const runs = useLoaded(() => get("/_emulator/runs", { q: text, limit: Math.min(limit, 200) }), [text, limit]);
  useEffect(() => keepInAddress({ q: text }), [text]);
  useReading(runs);

  const toggle = (id) => setChosen(chosen.includes(id) ? chosen.filter((one) => one !== id) : [...chosen, id]);
  const found = runs.value;
  return html`
    <div class="head"><h1>Runs</h1>
      <button class="button main" type="button" onClick=${() => setStarting(true)}>Start a run</button></div>
    ${found && html`<p class="quiet runs-where">Fleet runs in <code>${found.folder}</code>. Each holds its report, its seconds and its ledgers.</p>`}
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <div class="field search"><label for="search">Search</label>
        <input class="input" id="search" type="search" maxlength="200" autocomplete="off" placeholder="Part of a run's name" value=${q} onInput=${(event) => setQ(event.currentTarget.value)} /></div>
      <${CompareButton} chosen=${chosen} onClear=${() => setChosen([])} onDone=${setComparison} order=${(found?.data ?? []).map((run) => run.id)} />
    </form>
    ${runs.error && html`<${ErrorBox} error=${runs.error} title="The runs could not be read" action=${runs.reload} />`}
    ${!found && !runs.error && html`<${Loading} />`}
    ${comparison && html`<${Comparison} made=${comparison} onClose=${() => setComparison(null)} />`}
    ${found && found.total === 0 && html`<${NoRuns} isFiltered=${Boolean(text)} folder=${found.folder} onStart=${() => setStarting(true)} />`}
    ${found && found.total > 0 && html`<${List} runs=${found.data} chosen=${chosen} onToggle=${toggle} />`}
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
const Choice = ({ run, chosen, onToggle }) => html`<input type="checkbox" aria-label="Compare ${run.id}" checked=${chosen.includes(run.id)}
  disabled=${["never_began", "unreadable", "starting"].includes(run.state)} onChange=${() => onToggle(run.id)} />`;
const why = (run) => run.fault ?? run.verdict?.sentences[0] ?? "";
const shown = (run, name) => {
  const found = figure(run, name);
  return found ? figureText(found) : "–";
};

function List({ runs, chosen, onToggle }) {
  const isSmall = useMedia("(max-width: 60rem)");
  if (isSmall) {
    return html`<ul class="stack">${runs.map((run) => html`<li class="card run-card" key=${run.id}>
      <div class="run-line"><${Choice} run=${run} chosen=${chosen} onToggle=${onToggle} /><strong><${Name} run=${run} /></strong><${RunBadge} run=${run} /></div>
      ${why(run) && html`<p class="quiet small">${why(run)}</p>`}
      <p class="quiet small"><${Began} run=${run} />${run.duration_s !== null ? ` · ${clock(run.duration_s)}` : ""}${run.devices !== null ? ` · ${plural(run.devices, "device")}` : ""}</p>
      ${run.figures.length > 0 && html`<dl class="facts-row">${SHOWN.filter((name) => figure(run, name)).map((name) => html`<div key=${name}><dt>${figureLabel(name)}</dt><dd>${shown(run, name)}</dd></div>`)}</dl>`}</li>`)}</ul>`;
  }
  return html`<div class="card table-scroll runs-table" tabindex="0" role="region" aria-label="Table of runs"><table>
    <caption class="sr">Fleet runs, those that go on first, then the latest</caption>
    <thead><tr><th scope="col"><span class="sr">Compare</span></th><th scope="col">Run</th><th scope="col">Verdict</th><th scope="col">Began</th>
      <th scope="col" class="number">Lasted</th><th scope="col" class="number">Devices</th>${SHOWN.map((name) => html`<th scope="col" class="number" key=${name}>${figureLabel(name)}</th>`)}<th scope="col" class="number">Lost</th></tr></thead>
    <tbody>${runs.map((run) => html`<tr key=${run.id}>
      <td><${Choice} run=${run} chosen=${chosen} onToggle=${onToggle} /></td>
      <th scope="row" class="run-name"><${Name} run=${run} />${why(run) && html`<span class="quiet small">${why(run)}</span>`}</th>
      <td><${RunBadge} run=${run} /></td><td class="nowrap"><${Began} run=${run} /></td>
      <td class="number nowrap">${run.duration_s === null ? "–" : clock(run.duration_s)}</td><td class="number nowrap">${deviceCount(run)}</td>
      ${SHOWN.map((name) => html`<td class="number nowrap" key=${name}>${shown(run, name)}</td>`)}
      <td class="number">${run.lost === null ? "–" : count(run.lost)}</td></tr>`)}</tbody></table></div>`;
}

function CompareButton({ chosen, order, onClear, onDone }) {
  const [busy, setBusy] = useState(false);
  const [anyway, setAnyway] = useState(false);
  if (chosen.length === 0) return html`<p class="quiet small runs-hint">Tick two runs to compare them, or more for their history.</p>`;
  const act = async () => {
    setBusy(true);
    try {
      onDone(await post("/_emulator/run-comparisons", { runs: oldestFirst(chosen, order), anyway }));
    } catch (error) {
      toastError(error);
    } finally {
      setBusy(false);
    }
  };
  return html`<div class="row runs-hint" role="group" aria-label="Compare">
    <button class="button main" type="button" disabled=${chosen.length < 2 || busy} onClick=${act}>${busy ? "Comparing…" : chosen.length > 2 ? `History of ${chosen.length} runs` : "Compare"}</button>
    <label class="check small"><input type="checkbox" checked=${anyway} onChange=${(event) => setAnyway(event.currentTarget.checked)} />Of different scenarios, too</label>
    <button class="link small" type="button" onClick=${onClear}>Clear ${plural(chosen.length, "run")}</button></div>`;
}

/** The list has the latest run first; A, what B is held against, is the older one. */
const oldestFirst = (chosen, order) => [...chosen].sort((one, other) => order.indexOf(other) - order.indexOf(one));

const OUTCOMES = { not_worse: ["good", "Nothing is worse"], worse: ["bad", "Something is worse"], not_judged: ["warn", "It cannot be judged"] };

function Comparison({ made, onClose }) {
  const [kind, words] = OUTCOMES[made.outcome];
  return html`<section class="stack run-comparison" aria-label="Comparison">
    <div class="notice ${kind}" role="status"><strong>${words}.</strong> ${made.conclusion}
      <p class="small">${made.runs.length === 2 ? html`A is ${made.runs[0]}, B is ${made.runs[1]}.` : `${made.runs.length} runs, the latest against those before it.`}</p></div>
    <div class="row"><a class="button small" href=${made.page} target="_blank" rel="noopener">Open in a tab of its own</a>
      <button class="button small" type="button" onClick=${onClose}>Close the comparison</button></div>
    <iframe class="report-frame" sandbox="allow-scripts" src=${made.page} title="Comparison of ${made.runs.join(" and ")}"></iframe></section>`;
}
