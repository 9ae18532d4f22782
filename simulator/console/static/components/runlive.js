// What the terminal's live view shows of a run, in the browser.
import { LivePlot } from "./liveplot.js";
import { clock, Figures, perSecond, seconds } from "./runfigures.js";
import { Loading } from "./states.js";
import { html, useEffect, useState } from "../core/html.js";
import { useRunLive } from "../core/runlive.js";
import { count, plural } from "../core/text.js";

const PERCENTILES = ["p50", "p95", "p99", "p99.9"];
const SILENT_S = 6;
const HELD = "http.long_poll"; // so long the service held a poll on purpose

export function RunLive({ run, onState }) {
  const live = useRunLive(run, onState);
  const { head, second } = live;
  return html`<div class="stack">
    ${live.fault && html`<div class="notice bad" role="alert">${live.fault}</div>`}
    ${live.isLost && html`<p class="notice warn" role="status">The stream of this run has broken off. It is taken up again by itself.</p>`}
    ${second && !live.stage && !live.isLost && html`<${Silence} at=${live.at} />`}
    ${!head && !live.fault && html`<${Loading} text="The run begins…" />`}
    ${head && html`<${Progress} live=${live} head=${head} />`}
    ${second && html`<${Now} second=${second} head=${head} />
      <div class="live-plots"><${LivePlot} title="Answers per second" unit="" seconds=${live.seconds} clock=${clock}
          lines=${[{ label: "ok", values: live.ok, show: perSecond }, { label: "errors", values: live.errors, show: perSecond }, { label: "429", values: live.limited, show: perSecond }]} />
        <${LivePlot} title="99th percentile, last ${second.window_s} s" unit=" s" seconds=${live.seconds} clock=${clock}
          lines=${[{ label: "response", values: live.p99, show: seconds }, { label: "age of readings", values: live.age, show: seconds }]} /></div>
      <${Operations} second=${second} /><div class="live-cards"><${Audit} second=${second} /><${Generator} second=${second} /></div>`}
    ${live.notes.length > 0 && html`<${Notes} notes=${live.notes} />`}</div>`;
}

/** A second comes each second: without one for a while, what is shown is old. */
function Silence({ at }) {
  const [now, setNow] = useState(performance.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(performance.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const silent = Math.floor((now - at) / 1000);
  if (silent < SILENT_S) return null;
  return html`<p class="notice warn" role="status">No figures for ${silent} s. The run goes on; the disk of its folder may be full, or its machine too busy.</p>`;
}

function Progress({ live, head }) {
  const { second, stage } = live;
  const at = second ? second.second + 1 : 0;
  const { phase } = second ?? {};
  return html`<section class="card stack run-progress" aria-label="Progress">
    <div class="run-line"><strong>${stage ? stage.text : phase ? `Phase ${phase.name}` : "Before the load"}</strong>
      ${second?.waiting_for && html`<span class="quiet">until ${second.waiting_for}</span>`}
      <span class="quiet run-clock">${stage?.whole ? `${count(stage.done)} of ${count(stage.whole)}` : `${clock(at)} of ${clock(head.duration_s)}`}</span></div>
    ${stage?.whole ? html`<progress class="run-bar" max=${stage.whole} value=${stage.done} aria-label=${stage.text}></progress>`
      : html`<progress class="run-bar" max=${head.duration_s || 1} value=${Math.min(at, head.duration_s)} aria-label="Time of the run"></progress>`}
    <ol class="run-phases" aria-label="Phases">${head.phases.map((one) => html`<li key=${one.name + one.begin_s} aria-current=${phase?.name === one.name ? "step" : undefined}
      style=${{ flexGrow: Math.max(one.end_s - one.begin_s, head.duration_s / 40) }}>${one.name}</li>`)}</ol>
    ${second?.faults.map((fault) => html`<p class="notice warn small" key=${fault.name + fault.begin_s}><strong>Fault ${fault.name}</strong> ${plural(fault.devices, "device")}, ${clock(Math.max(0, fault.end_s - second.second))} left</p>`)}</section>`;
}

function Now({ second, head }) {
  const ages = second.ages;
  const fleet = second.fleet;
  const tiles = [
    ["Good answers", perSecond(second.all.ok_per_s)],
    ["Errors", perSecond(second.all.errors_per_s), soFar(second)],
    ["Limited (429)", perSecond(second.all.limited_per_s)],
    ["Response, p99", seconds(second.all.response_s.p99), `p50 ${seconds(second.all.response_s.p50)}`],
    ...Object.entries(ages).map(([name, one]) => [name === "readings.age" ? "Age of readings, p99" : "Age of commands, p99", seconds(one.p99), `p50 ${seconds(one.p50)}, ${perSecond(one.per_s)}`]),
    ...(fleet.online === undefined ? [] : [["Online", `${count(fleet.online)} of ${count(head.devices)}`, fleetNote(fleet)]]),
  ];
  return html`<${Figures} figures=${tiles} />`;
}

function soFar(second) {
  const others = Object.entries(second.so_far).filter(([kind]) => kind !== "ok");
  return others.length ? `so far ${others.map(([kind, many]) => `${count(many)} ${kind.replaceAll("_", " ")}`).join(", ")}` : "none so far";
}

const fleetNote = (fleet) => Object.entries(fleet).filter(([name]) => name !== "online").map(([name, value]) => `${count(value)} ${name.replaceAll("_", " ")}`).join(", ");

const Operations = ({ second }) => html`<div class="card table-scroll" tabindex="0" role="region" aria-label="By operation"><table class="run-operations"><caption>By operation: per second, and response time over the last ${second.window_s} s</caption>
  <thead><tr><th scope="col">Operation</th><th scope="col" class="number">ok</th><th scope="col" class="number">429</th><th scope="col" class="number">errors</th>${PERCENTILES.map((name) => html`<th scope="col" class="number" key=${name}>${name}</th>`)}</tr></thead>
  <tbody>${Object.entries(second.operations).map(([name, row]) => html`<tr key=${name}><th scope="row">${name}${name === HELD && html` <span class="quiet small">held on purpose</span>`}</th>
    <td class="number nowrap">${perSecond(row.ok_per_s)}</td><td class="number nowrap">${perSecond(row.limited_per_s)}</td><td class="number nowrap ${row.errors_per_s ? "wrong" : ""}">${perSecond(row.errors_per_s)}</td>
    ${PERCENTILES.map((percent) => html`<td class="number nowrap" key=${percent}>${seconds(row.response_s[percent])}</td>`)}</tr>`)}</tbody></table></div>`;

const LABELS = { under_way: "under way" };

function Audit({ second }) {
  const streams = Object.entries(second.audit);
  return html`<section class="card"><h2>Audit so far</h2><dl class="facts">
    ${streams.map(([name, stream]) => html`<dt key=${name}>${name}</dt><dd>${Object.entries(stream).map(([word, many]) => `${count(many)} ${LABELS[word] ?? word}`).join(", ")}</dd>`)}
    ${streams.length === 0 && html`<dt>readings</dt><dd>no ledgers are kept</dd>`}</dl>
    <p class="quiet small">By the devices' own ledgers; the service is read back at the end.</p></section>`;
}

function Generator({ second }) {
  const { generator, workers, gaps } = second;
  const sent = generator.intended ? generator.sent / generator.intended : 1;
  const isLate = generator.send_lag_p99_s > 0.01;
  return html`<section class="card"><h2>Generator</h2><dl class="facts">
    <dt>lag</dt><dd>p99 ${seconds(generator.send_lag_p99_s)}, max ${seconds(generator.send_lag_max_s)}${isLate && html` <span class="badge warn">late</span>`}</dd>
    <dt>sent</dt><dd>${count(generator.sent)} of ${count(generator.intended)}, ${(sent * 100).toFixed(1)} %</dd>
    <dt>CPU</dt><dd>${Math.round(generator.cpu_percent)} % of a core, steal ${Math.round(generator.steal_percent)} %</dd>
    ${workers.map((one) => html`<dt key=${one.number}>worker ${one.number}</dt><dd>${one.state}, ${plural(one.devices, "device")}, CPU ${Math.round(one.cpu_percent)} %</dd>`)}
    ${gaps.map((gap, index) => html`<dt key=${index}>gap</dt><dd class="wrong">worker ${gap.worker}: ${clock(gap.from_s)} to ${clock(gap.to_s)}, ${gap.reason}</dd>`)}</dl></section>`;
}

const Notes = ({ notes }) => html`<section class="card"><h2>What happened</h2>
  <ol class="run-notes">${[...notes].reverse().map((note, index) => html`<li key=${notes.length - index} class="note-${note.tone}"><span class="quiet">${clock(note.at_s)}</span> ${note.text}</li>`)}</ol></section>`;
