// One run: how it goes on, how it ended and why, and its report.
import { download, get, getText, post, segment } from "./api.js";
import { Plot } from "./plot.js";
import { RUNS } from "./runs.js";
import { count, cut, duration, time } from "./text.js";
import {
  Badge, ErrorBox, html, Json, Loading, useAction, useEffect, useLoaded, useMemo, useRef, useState,
} from "./ui.js";

const ACTIVE = new Set(["starting", "running", "stopping"]);
const SECONDS_KEPT = 600;

export function Run({ id }) {
  const path = `${RUNS}/${segment(id)}`;
  const [isOver, setOver] = useState(false);
  const run = useLoaded(() => get(path), [id], isOver ? 0 : 1500);
  const action = useAction();
  const one = run.value;
  const isActive = one !== null && ACTIVE.has(one.word);
  useEffect(() => {
    if (one) setOver(!isActive);
  }, [one, isActive]);
  if (!one) return html`<h1>Run</h1>${run.error ? html`<${ErrorBox} error=${run.error}
    title="The run could not be read" onAgain=${run.reload} />` : html`<${Loading} />`}`;
  const stop = () => action.run(async () => {
    await post(`${path}/stop`, { at_once: one.word === "stopping" });
    await run.reload();
  });
  return html`
    <p class="crumbs"><a href="#/runs">Runs</a></p>
    <div class="head"><h1>${cut(one.id, 120)}</h1><${Badge} state=${one.word} />
      ${isActive && one.started_here && html`<button class="button bad" type="button" disabled=${action.isBusy}
        onClick=${stop}>
        ${one.word === "stopping" ? "End it at once" : "Stop it"}</button>`}</div>
    <div class="stack">
      ${run.error && html`<${ErrorBox} error=${run.error} title="The run could not be read again"
        onAgain=${run.reload} />`}
      ${action.error && html`<${ErrorBox} error=${action.error} title="It was not stopped" />`}
      <${About} run=${one} />
      ${one.files.includes("progress.jsonl") && (isActive || !one.files.includes("report.html")) && html`<${Progress}
        path=${path} isActive=${isActive} />`}
      ${!isActive && one.files.includes("report.html") && html`<${Report} path=${path} />`}
      <${Files} path=${path} files=${one.files} />
    </div>`;
}

function About({ run }) {
  return html`<section class="card stack" aria-label="How it ended">
    ${run.sentences.length > 0 && html`<ul class="sentences">${run.sentences.map((one) => html`<li key=${one}>${one}
      </li>`)}</ul>`}
    ${run.fault && html`<p class="notice bad">${run.fault}</p>`}
    ${run.last_words && html`<${Json} value=${run.last_words} label="What it wrote last" />`}
    <dl class="facts">
      <dt>Scenario</dt><dd>${run.scenario || "–"}</dd><dt>Target</dt><dd class="mono">${run.target || "–"}</dd>
      <dt>Devices</dt><dd>${run.devices === null ? "–" : count(run.devices)}</dd>
      <dt>Began</dt><dd>${run.began_at ? time(run.began_at) : "–"}</dd>
      ${run.duration_s !== null && html`<dt>Lasted</dt><dd>${duration(run.duration_s)}</dd>`}</dl>
    ${run.thresholds.length > 0 && html`<div class="table-scroll"><table>
      <thead><tr><th scope="col">Threshold</th><th scope="col">Observed</th><th scope="col">Held</th></tr></thead>
      <tbody>${run.thresholds.map((one) => html`<tr key=${one.expression}><th scope="row" class="mono">
        ${one.expression}</th>
        <td>${observed(one)}</td><td>${one.judged ? html`<span class="badge ${one.held ? "good" : "bad"}">
          ${one.held ? "held" : "failed"}</span>` : "not judged"}</td></tr>`)}
      </tbody></table></div>`}</section>`;
}

function observed({ observed: found, unit }) {
  if (found === null) return "nothing";
  return unit === "s" ? duration(found) : `${Number(found.toPrecision(4))} ${unit}`;
}

/** The lines of `run --progress`, read as the file grows. */
function useProgress(path, isActive) {
  const [known, setKnown] = useState({ lines: [], error: null });
  const after = useRef(0);
  useEffect(() => {
    let timer = 0;
    let isOver = false;
    const turn = async () => {
      try {
        let found;
        do {
          found = await get(`${path}/progress`, { after: after.current });
          if (isOver) return;
          const isNew = found.place < after.current; // the file was begun anew
          after.current = found.place;
          const { lines } = found;
          const add = (before) => [...(isNew ? [] : before.lines), ...lines].slice(-4 * SECONDS_KEPT);
          setKnown((before) => ({ lines: add(before), error: null }));
        } while (found.lines.length);
      } catch (error) {
        setKnown((before) => ({ ...before, error }));
      }
      if (isActive && !isOver) timer = setTimeout(turn, 1000);
    };
    turn();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [path, isActive]);
  return known;
}

function Progress({ path, isActive }) {
  const { lines, error } = useProgress(path, isActive);
  const seconds = useMemo(() => lines.filter((one) => one.event === "second").slice(-SECONDS_KEPT), [lines]);
  const rates = useMemo(() => columns(seconds, ["ok_per_s", "errors_per_s"], (one) => one.alone), [seconds]);
  const waits = useMemo(() => columns(seconds, ["p50", "p99"], (one) => one.figures?.["all operations"]?.response_s, 1000), [seconds]);
  const head = lines.find((one) => one.event === "run");
  const last = seconds.at(-1);
  const stage = lines.at(-1)?.event === "stage" ? lines.at(-1) : null;
  const notes = lines.filter((one) => one.event === "note").slice(-50).reverse();
  return html`<section class="card stack" aria-labelledby="progress-title"><h2 id="progress-title">Progress</h2>
    ${error && html`<${ErrorBox} error=${error} title="Its progress could not be read" />`}
    ${!lines.length && !error && html`<p class="loading" role="status">Nothing is written down yet.</p>`}
    ${stage?.text && html`<p role="status">
      ${stage.text}${stage.whole ? `: ${count(stage.done)} of ${count(stage.whole)}` : ""}</p>`}
    ${last && html`<p class="quiet">${placeOf(last, head)}</p>
      ${head?.duration_s > 0 && html`<progress class="run-bar" aria-label="How far it is" max=${head.duration_s}
        value=${Math.min(last.second, head.duration_s)}></progress>`}
      <div class="plots"><${Plot} title="Exchanges" unit="/s" lines=${["ok", "errors"]} data=${rates} isClock=${false}
        height=${200} />
        <${Plot} title="Response time" unit="ms" lines=${["p50", "p99"]} data=${waits} isClock=${false}
          height=${200} /></div>`}
    ${notes.length > 0 && html`<h3>Events</h3><ul class="run-notes">${notes.map((one, index) => html`<li key=${index}
      class="note-${one.tone}">
      <span class="quiet mono">${count(Math.round(one.at_s ?? 0))} s</span> ${cut(String(one.text), 500)}</li>`)}
        </ul>`}</section>`;
}

function placeOf({ second, phase }, head) {
  const whole = head?.duration_s ? ` of ${count(Math.round(head.duration_s))}` : "";
  return `Second ${count(second)}${whole}${phase ? `, phase ${cut(String(phase.name), 80)}` : ""}`;
}

/** [seconds, values of each name], as plots take them; what is missing is null. */
function columns(seconds, names, pick, scale = 1) {
  const number = (one, name) => (typeof pick(one)?.[name] === "number" ? pick(one)[name] * scale : null);
  return [seconds.map((one) => one.second), ...names.map((name) => seconds.map((one) => number(one, name)))];
}

/** The report in a frame that can do nothing to this page; see report.html. */
function Report({ path }) {
  const report = useLoaded(() => getText(`${path}/files/report.html`), [path]);
  const frame = useRef(null);
  useEffect(() => {
    const onReady = (event) => {
      const isFrame = event.source === frame.current?.contentWindow;
      if (isFrame && event.data === "ready" && report.value !== null) event.source.postMessage(report.value, "*");
    };
    addEventListener("message", onReady);
    return () => removeEventListener("message", onReady);
  }, [report.value]);
  if (report.error) return html`<${ErrorBox} error=${report.error} title="The report could not be read"
    onAgain=${report.reload} />`;
  if (report.value === null) return html`<${Loading} />`;
  return html`<section aria-labelledby="report-title"><h2 id="report-title">Report</h2>
    <iframe class="report-frame" ref=${frame} title="Report of the run" sandbox="allow-scripts" src="report.html">
      </iframe></section>`;
}

function Files({ path, files }) {
  const action = useAction();
  if (!files.length) return null;
  return html`<section class="card stack" aria-labelledby="files-title"><h2 id="files-title">Files</h2>
    ${action.error && html`<${ErrorBox} error=${action.error} title="The file could not be fetched" />`}
    <div class="row">${files.map((name) => html`<button class="button small mono" type="button" key=${name}
      onClick=${() => action.run(() => download(`${path}/files/${segment(name)}`, name))}>${name}</button>`)}</div></section>`;
}
