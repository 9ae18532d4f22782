// What all pages are made of. Text of devices and servers only ever becomes text: never put it into HTML by hand.
import { Failure, now, reach } from "./api.js";
import { ago, cut, time } from "./text.js";
import {
  html, render, useCallback, useEffect, useMemo, useRef, useState,
} from "./vendor/htm-preact.module.js";

export { html, render, useCallback, useEffect, useMemo, useRef, useState };

/** Read something when `keys` change, and again every `everyMs` while the page is seen; 0 reads it once. */
export function useLoaded(read, keys, everyMs = 0) {
  const [state, setState] = useState({ value: null, error: null, key: "" });
  const key = JSON.stringify(keys);
  const latest = useRef(null);
  latest.current = { read, key };
  const reload = useCallback(async () => {
    const { read: wanted, key: asked } = latest.current;
    let result;
    try {
      result = { value: await wanted(), error: null, key: asked };
    } catch (error) {
      result = { error, key: asked };
    }
    // An answer to an older question is late; an error leaves what was known of the same question.
    if (latest.current?.key !== asked) return;
    setState((before) => ({ value: before.key === asked ? before.value : null, ...result }));
  }, []);
  useEffect(() => {
    let timer = 0;
    let isOver = false;
    const turn = async () => {
      if (!document.hidden) await reload();
      if (everyMs && !isOver && reach.state !== "ended") timer = setTimeout(turn, everyMs);
    };
    turn();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [key, everyMs]);
  useEffect(() => () => { latest.current = null; }, []);
  return { value: state.key === key ? state.value : null, error: state.key === key ? state.error : null, reload };
}

/** Do something that a button asks for: busy meanwhile, and what goes wrong is shown. */
export function useAction() {
  const [state, setState] = useState({ isBusy: false, error: null });
  const run = async (action) => {
    setState({ isBusy: true, error: null });
    try {
      await action();
      setState({ isBusy: false, error: null });
    } catch (error) {
      if (!(error instanceof Failure)) console.error(error); // a mistake of ours
      setState({ isBusy: false, error });
    }
  };
  return { ...state, run };
}

export const Loading = () => html`<p class="loading" role="status">Loading…</p>`;

export const Empty = ({ title, children }) => html`<div class="card empty"><h2>${title}</h2>${children}</div>`;

export function ErrorBox({ error, title = "This did not work", onAgain }) {
  const details = (error.details ?? []).filter((one) => one.issue && one.issue !== error.message);
  return html`<div class="notice bad" role="alert"><strong>${title}</strong>
    <p>${cut(error.message, 2000)}</p>
    ${details.length > 0 && html`<ul>${details.map((one) => html`<li key=${one.field}>${one.field}: ${one.issue}
      </li>`)}</ul>`}
    ${onAgain && html`<button class="button small" type="button" onClick=${onAgain}>Try again</button>`}</div>`;
}

/** The first picture of a list: what came, or why nothing is there. */
export function Loaded({ from, title, children }) {
  if (from.value !== null) return html`${from.error && html`<${ErrorBox} error=${from.error} title=${title}
    onAgain=${from.reload} />`}${children}`;
  return from.error ? html`<${ErrorBox} error=${from.error} title=${title}
    onAgain=${from.reload} />` : html`<${Loading} />`;
}

const TONES = {
  online: "good", succeeded: "good", passed: "good", queued: "", delivered: "accent", in_progress: "accent", running: "accent",
  starting: "accent", stopping: "warn", inconclusive: "warn", interrupted: "warn", failed: "bad", rejected: "violet",
  expired: "bad", timed_out: "bad", lost: "bad", unreachable: "bad", unreadable: "bad", "no end": "warn",
};

/** A state as a word with a colour. */
export const Badge = ({ state }) => html`<span class="badge ${TONES[state] ?? ""}">${state.replaceAll("_", " ")}
  </span>`;

export function When({ at, none = "never" }) {
  if (!at) return html`<span class="quiet">${none}</span>`;
  return html`<time datetime=${at} title="${time(at)} (${at})">${ago(at, now())}</time>`;
}

export function Json({ value, label }) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return html`<pre class="json" tabindex="0" role="group" aria-label=${label}>${cut(text, 200_000)}</pre>`;
}

/** A window over the page; Escape and the button close it. */
export function Dialog({ title, onClose, children }) {
  const place = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    place.current.showModal();
    return () => before?.focus?.();
  }, []);
  return html`<dialog ref=${place} aria-labelledby="dialog-title" onClose=${onClose}>
    <div class="dialog-head"><h2 id="dialog-title">${title}</h2>
      <button class="button small" type="button" onClick=${() => place.current.close()}>Close</button></div>
    <div class="dialog-body stack">${children}</div></dialog>`;
}

/** A field of a form: `children` is the control, which has the id `id`. */
export const Field = ({ id, label, help, fault, children, className = "" }) => html`<div class="field ${className}">
  <label for=${id}>${label}</label>${children}
  ${help && html`<span class="help" id="${id}-help">${help}</span>`}
  ${fault && html`<span class="fault" role="alert">${fault}</span>`}</div>`;

export const Select = ({ id, value, options, onChoose }) => html`<select class="input" id=${id} value=${value}
  onChange=${(event) => onChoose(event.currentTarget.value)}>
  ${options.map(([one, label]) => html`<option value=${one} key=${one} selected=${one === value}>${label}</option>`)}
    </select>`;

/** The words of an input; `onText` gets them as they are written. */
export const Input = ({ onText, ...rest }) => html`<input class="input" maxlength="1000" autocomplete="off" ...${rest}
  onInput=${(event) => onText(event.currentTarget.value)} />`;

let showToast = () => {};

/** Say something for some seconds. */
export const toast = (text, tone = "good") => showToast({ text, tone });

export function Toasts() {
  const [shown, setShown] = useState(null);
  showToast = setShown;
  useEffect(() => {
    const timer = shown && setTimeout(() => setShown(null), 6000);
    return () => clearTimeout(timer);
  }, [shown]);
  return html`<div class="toasts" role="status">${shown && html`<p class="toast ${shown.tone}">${shown.text}</p>`}
    </div>`;
}
