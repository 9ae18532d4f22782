// Figures of fleet runs as people read them, and a run's state and verdict as a word with a colour.
import { html } from "../core/html.js";
import { count, decimals, duration } from "../core/text.js";

const KINDS = {
  passed: "good", failed: "bad", lost: "bad", inconclusive: "warn", unreachable: "bad", interrupted: "warn",
  starting: "accent", running: "accent", stopping: "warn", killed: "bad", unknown: "warn", never_began: "bad", unreadable: "bad",
};
const WORDS = { lost: "data lost", unknown: "did not end", never_began: "never began", unreadable: "cannot be read" };
const ACTIVE = new Set(["starting", "running", "stopping"]);

export const isActive = (run) => ACTIVE.has(run.state);

/** The verdict of a run that ended, the state of any other. */
export function RunBadge({ run }) {
  const word = run.verdict?.word ?? run.state;
  return html`<span class="badge ${KINDS[word] ?? ""}">${WORDS[word] ?? word}</span>`;
}

/** Seconds -> "1.4 ms", "340 ms", "2.4 s"; a dash for what was not measured. */
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value > 0 && value < 0.01) return `${(value * 1000).toFixed(1)} ms`;
  return duration(value * 1000);
}

/** Seconds of a run -> "0:12", "1:02:03" */
export function clock(value) {
  const whole = Math.max(0, Math.floor(value));
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60), whole % 60];
  const two = (part) => String(part).padStart(2, "0");
  return h ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

export const perSecond = (value) => `${decimals(value ?? 0)}/s`;
export const share = (value) => (value === 0 ? "0 %" : `${(value * 100).toFixed(value < 0.001 ? 3 : value < 0.1 ? 1 : 0)} %`);

export function figureText({ value, unit }) {
  if (unit === "s") return seconds(value);
  return unit === "share" ? share(value) : perSecond(value);
}

const LABELS = { "readings.age": "Age of readings", "commands.age": "Age of commands", "readings accepted per second": "Readings accepted", errors: "Errors" };

/** "readings.age p99" -> "Age of readings, p99" */
export function figureLabel(name) {
  const [subject, percentile] = name.split(/ (?=p[\d.]+$)/);
  return `${LABELS[subject] ?? subject}${percentile ? `, ${percentile}` : ""}`;
}

/** A headline figure of a run by its name; null when the run has none of that name. */
export const figure = (run, name) => run.figures.find((one) => one.name === name) ?? null;

export const Figures = ({ figures }) => html`<dl class="run-tiles">${figures.map(([name, value, note]) => html`<div key=${name}>
  <dt>${name}</dt><dd>${value}</dd>${note && html`<dd class="note">${note}</dd>`}</div>`)}</dl>`;

export const deviceCount = (run) => (run.devices === null ? "–" : count(run.devices));
