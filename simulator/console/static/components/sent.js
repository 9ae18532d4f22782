// What became of a command that was just sent: the answer appears as it comes.
import { isOpen, readCommand } from "../core/commands.js";
import { html, useEffect, useRef, useState } from "../core/html.js";
import { useChanges } from "../core/live.js";
import { count, cut, plural } from "../core/text.js";
import { Badge } from "./badge.js";
import { Command } from "./command.js";

const AT_ONCE = 20; // commands that are read again in a second
const SOON_MS = 250; // most devices answer within it, so a single command is read again at once

export function SentCommands({ sent, onBack }) {
  const [commands, setCommands] = useState(sent.commands);
  const current = useRef(commands);
  current.current = commands;
  const busy = useRef(false);
  const readAgain = async (wanted) => {
    const open = current.current.filter((one) => isOpen(one) && wanted(one)).slice(0, AT_ONCE);
    if (!open.length || busy.current) return;
    busy.current = true;
    const read = await Promise.all(open.map((one) => readCommand(one.device_id, one.id).catch(() => null)));
    busy.current = false;
    const found = new Map(read.filter(Boolean).map((one) => [one.id, one]));
    setCommands((before) => before.map((one) => (found.has(one.id) ? { ...found.get(one.id), device_name: one.device_name } : one)));
  };
  useChanges((changes, isBack) => {
    const changed = new Set(changes.device_ids);
    readAgain((one) => isBack || changes.more || changed.has(one.device_id));
  }, []);
  useEffect(() => {
    const timers = sent.commands.length === 1 ? [1, 2, 4].map((times) => setTimeout(() => readAgain(() => true), times * SOON_MS)) : [];
    return () => timers.forEach(clearTimeout);
  }, []);

  const states = Object.entries(Object.groupBy ? Object.groupBy(commands, (one) => one.status) : group(commands));
  const isMany = sent.total > 1;
  return html`<div class="stack">
    ${isMany && html`<p role="status"><strong>${cut(sent.name, 60)}</strong> sent to ${count(commands.length)} of ${plural(sent.total, "device")}${sent.isStopped ? ", then stopped" : ""}.</p>
      <div class="row">${states.map(([state, all]) => html`<${Badge} key=${state} state=${state} text="${count(all.length)} ${state.replaceAll("_", " ")}" />`)}</div>`}
    ${sent.refused.length > 0 && html`<div class="notice bad"><strong>${plural(sent.refused.length, "device")} did not get it:</strong>
      <ul>${sent.refused.slice(0, 10).map(({ device, error }) => html`<li>${cut(device.device_name || device.device_id, 60)}: ${error.message}</li>`)}</ul>
      ${sent.refused.length > 10 && html`<p>and ${count(sent.refused.length - 10)} more.</p>`}</div>`}
    <ol class="commands">${commands.slice(0, sent.shown).map((one) => html`<${Command} key=${one.id} command=${one} device=${isMany ? cut(one.device_name || one.device_id, 60) : null} />`)}</ol>
    ${commands.length > sent.shown && html`<p class="quiet">The first ${sent.shown} are shown; all stand on their devices' pages.</p>`}
    <div><button class="button" type="button" onClick=${onBack}>Send another one</button></div>
  </div>`;
}

function group(commands) {
  const found = {};
  for (const one of commands) (found[one.status] ??= []).push(one);
  return found;
}
