// One command: its states as steps with the time between them, its payload and result, and what can be done about it.
import { cancelCommand, isOpen, nameOf, stepsOf } from "../core/commands.js";
import { html, useState } from "../core/html.js";
import { now } from "../core/clock.js";
import { latest } from "../core/live.js";
import { useStore } from "../core/store.js";
import { cut, duration, time } from "../core/text.js";
import { Badge } from "./badge.js";
import { Json } from "./json.js";
import { toast, toastError } from "./toast.js";

/** Payload members beside the command's name, on one line. */
export function argumentsOf(payload) {
  const { command, ...rest } = payload;
  return Object.keys(rest).length ? cut(JSON.stringify(rest), 120) : "";
}

function Steps({ command }) {
  useStore(latest); // a waiting time goes on with each second
  return html`<ol class="steps">${stepsOf(command, now()).map((step) => html`<li key=${step.label} class=${step.isWaiting ? "waiting" : step.state}>
    <span>${step.label}</span>${step.at && html`<time datetime=${new Date(step.at).toISOString()} title=${time(step.at)}>${new Date(step.at).toLocaleTimeString("en-GB")}</time>`}
    ${step.after !== null && html`<span class="quiet">${step.isWaiting ? `for ${duration(step.after)}` : `after ${duration(step.after)}`}</span>`}</li>`)}</ol>`;
}

export function CancelButton({ command }) {
  const [isAsked, setAsked] = useState(false);
  if (!isOpen(command) || command.command_payload.command === "cancel") return null;
  const act = async () => {
    setAsked(true);
    try {
      await cancelCommand(command);
      toast("The device has been sent a cancel. It says itself how far the command had come.");
    } catch (error) {
      setAsked(false);
      toastError(error);
    }
  };
  return html`<button class="button small" type="button" disabled=${isAsked} onClick=${act}>${isAsked ? "Cancel sent" : "Cancel"}</button>`;
}

export function Command({ command, onAgain, device }) {
  const [isOpened, setOpened] = useState(false);
  const more = argumentsOf(command.command_payload);
  return html`<li class="command">
    <div class="command-head"><${Badge} state=${command.status} />
      <div class="command-name">${device && html`<strong>${device}</strong> `}<strong>${cut(nameOf(command.command_payload), 80)}</strong>${more && html` <code class="quiet">${more}</code>`}</div>
      <div class="row"><${CancelButton} command=${command} />${onAgain && html`<button class="button small" type="button" onClick=${() => onAgain(command)}>Again</button>`}</div></div>
    <${Steps} command=${command} />
    ${command.status_reason && html`<p class="small">${command.status_reason}</p>`}
    <details onToggle=${(event) => setOpened(event.currentTarget.open)}><summary>Payload and result</summary>
      ${isOpened && html`<div class="columns"><div><h3>Payload</h3><${Json} value=${command.command_payload} label="Payload" /></div>
        <div><h3>Result</h3>${command.result ? html`<${Json} value=${command.result} label="Result" />` : html`<p class="quiet">${isOpen(command) ? "None yet." : "None."}</p>`}</div></div>
        <p class="quiet small">Id <code>${command.id}</code> · ${isOpen(command) ? "ends" : "would have ended"} ${time(command.expires_at)}</p>`}
    </details>
  </li>`;
}
