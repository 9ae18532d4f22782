// One fleet run: live while it goes on, then its verdict, its figures and its report in place.
import { Dialog } from "../components/dialog.js";
import { RunLive } from "../components/runlive.js";
import { clock, deviceCount, figureLabel, Figures, figureText, isActive, RunBadge, seconds } from "../components/runfigures.js";
import { ErrorBox, Loading } from "../components/states.js";
import { toast, toastError } from "../components/toast.js";
import { get, post, segment } from "../core/api.js";
import { html, useState } from "../core/html.js";
import { useLoaded } from "../core/load.js";
import { bytes, count, time } from "../core/text.js";

export const title = "Run";

const pathOf = (run) => `/_emulator/runs/${segment(run.id)}`;

export default function Run({ params }) {
  const loaded = useLoaded(() => get(`/_emulator/runs/${segment(params.id)}`), [params.id]);
  const [changed, setChanged] = useState(null);
  const run = changed ?? loaded.value;
  if (loaded.error && !run) {
    return html`<h1>${params.id}</h1><${ErrorBox} error=${loaded.error} title="The run could not be read" action=${loaded.reload} /><p><a href="/console/runs">All runs</a></p>`;
  }
  if (!run) return html`<h1>${params.id}</h1><${Loading} />`;
  return html`
    <div class="head"><div><p class="small"><a href="/console/runs">Runs</a></p><h1>${run.id}</h1></div><${RunBadge} run=${run} />
      ${isActive(run) && run.started_here && html`<${Stop} run=${run} onChange=${setChanged} />`}</div>
    <p class="quiet run-about">${about(run)}</p>
    ${isActive(run) ? html`<${Going} key=${run.id} run=${run} onState=${setChanged} />` : html`<${Ended} run=${run} onChange=${setChanged} />`}`;
}

function about(run) {
  const parts = [run.scenario, run.devices !== null && `${deviceCount(run)} devices`, run.transport, run.level && `level ${run.level}`, run.target, run.began_at && `began ${time(run.began_at)}`];
  return parts.filter(Boolean).join(" · ");
}

function Going({ run, onState }) {
  if (run.live || run.started_here) return html`<${RunLive} run=${run} onState=${onState} />`;
  return html`<div class="notice"><strong>This run goes on, and its progress is not written down.</strong>
    <p>To watch one here that is started in a terminal, give it the option:</p><pre class="code">--progress fleet-runs/NAME/progress.jsonl</pre></div>`;
}

function Stop({ run, onChange }) {
  const [asked, setAsked] = useState(false);
  const stop = async (at_once) => {
    setAsked(false);
    try {
      onChange(await post(`${pathOf(run)}/stop`, { at_once }));
      toast(at_once ? "The run ends at once" : "The run ends: what is under way is handed over first");
    } catch (error) {
      toastError(error);
    }
  };
  if (run.state !== "stopping") return html`<button class="button bad" type="button" onClick=${() => stop(false)}>Stop</button>`;
  return html`<button class="button bad" type="button" onClick=${() => setAsked(true)}>End at once</button>
    ${asked && html`<${Dialog} title="End the run at once?" onClose=${() => setAsked(false)}><div class="stack">
      <p>It is being stopped in order: devices hand over what they hold, and everything is read back. At once leaves that out: nobody can say then whether anything was lost.</p>
      <div class="row"><button class="button bad" type="button" onClick=${() => stop(true)}>End it at once</button>
        <button class="button" type="button" onClick=${() => setAsked(false)}>Wait for it</button></div></div><//>`}`;
}

const KINDS = { passed: "good", failed: "bad", lost: "bad", unreachable: "bad", inconclusive: "warn", interrupted: "warn" };
const STATES = {
  killed: "This run was killed. Its seconds up to then are there: make its report.",
  unknown: "This run has no end, and whether it still goes on cannot be seen: its folder may have been copied.",
  never_began: "This run never began.",
  unreadable: "This run cannot be read.",
};

function Ended({ run, onChange }) {
  return html`<div class="stack">
    <${Verdict} run=${run} />
    ${run.figures.length > 0 && html`<${Figures} figures=${[["Lasted", clock(run.duration_s ?? 0)], ...run.figures.map((one) => [figureLabel(one.name), figureText(one)]), ...(run.lost === null ? [] : [["Lost", count(run.lost)]])]} />`}
    ${run.thresholds.length > 0 && html`<${Thresholds} thresholds=${run.thresholds} />`}
    ${run.last_words.length > 0 && html`<details class="card"><summary>What its program wrote</summary><pre class="code" tabindex="0" aria-label="What its program wrote">${run.last_words.join("\n")}</pre></details>`}
    ${run.state !== "never_began" && html`<${Report} run=${run} onChange=${onChange} />`}
    ${run.files.length > 0 && html`<details class="card"><summary>Files, ${bytes(run.size_bytes)}</summary>
      <ul class="run-files">${run.files.map((name) => html`<li key=${name}><a href="${pathOf(run)}/${segment(name)}" download=${name}>${name}</a></li>`)}</ul></details>`}</div>`;
}

function Verdict({ run }) {
  const { verdict } = run;
  if (!verdict) return html`<div class="notice ${run.state === "unknown" ? "warn" : "bad"}"><strong>${STATES[run.state] ?? run.state}</strong>${run.fault && html`<p>${run.fault}</p>`}</div>`;
  const [first, ...others] = verdict.sentences;
  return html`<div class="notice ${KINDS[verdict.word] ?? ""}"><strong>${first ?? verdict.word}</strong>
    ${others.length > 0 && html`<ul>${others.map((sentence) => html`<li key=${sentence}>${sentence}</li>`)}</ul>`}
    <p class="small">Exit code ${verdict.exit_code}</p></div>`;
}

const observed = (one) => (one.observed === null ? "nothing observed" : one.unit === "s" ? seconds(one.observed) : `${Number(one.observed.toPrecision(4))}${one.unit ? ` ${one.unit}` : ""}`);

const Thresholds = ({ thresholds }) => html`<div class="card table-scroll" tabindex="0" role="region" aria-label="Thresholds"><table><caption class="sr">Thresholds</caption>
  <thead><tr><th scope="col">Threshold</th><th scope="col">Held</th><th scope="col" class="number">Observed</th></tr></thead>
  <tbody>${thresholds.map((one) => html`<tr key=${one.expression}><th scope="row" class="mono">${one.expression}</th>
    <td><span class="badge ${!one.judged ? "warn" : one.held ? "good" : "bad"}">${!one.judged ? "not judged" : one.held ? "held" : "missed"}</span></td><td class="number nowrap">${observed(one)}</td></tr>`)}</tbody></table></div>`;

function Report({ run, onChange }) {
  const [state, setState] = useState({ busy: false, error: null, made: 0 });
  const path = `${pathOf(run)}/report`;
  const make = async () => {
    setState({ ...state, busy: true, error: null });
    try {
      onChange(await post(path, {}));
      setState({ busy: false, error: null, made: state.made + 1 });
    } catch (error) {
      setState({ ...state, busy: false, error });
    }
  };
  const has = run.files.includes("report.html");
  return html`<section class="stack" aria-labelledby="report-head"><div class="head run-report-head"><h2 id="report-head">Report</h2>
      ${has && html`<a class="button small" href=${path} target="_blank" rel="noopener">Open in a tab of its own</a>`}
      <button class="button small" type="button" disabled=${state.busy} onClick=${make}>${state.busy ? "Making it…" : has ? "Make it anew" : "Make the report"}</button></div>
    ${state.error && html`<${ErrorBox} error=${state.error} title="The report could not be made" />`}
    ${has ? html`<iframe class="report-frame" key=${state.made} sandbox="allow-scripts" src=${path} title="Report of ${run.id}"></iframe>` : html`<p class="quiet">There is no report in the run's folder yet.</p>`}</section>`;
}
