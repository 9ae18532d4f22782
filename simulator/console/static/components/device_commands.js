// A device's commands, newest first; those under way change as the device answers.
import { get, segment } from "../core/api.js";
import { html, useCallback, useEffect, useState } from "../core/html.js";
import { useChanges } from "../core/live.js";
import { Command } from "./command.js";
import { ErrorBox, Loading } from "./states.js";

const PAGE = 20;

export function DeviceCommands({ deviceId, onAgain }) {
  const [state, setState] = useState({ commands: null, cursor: null, error: null });
  const read = useCallback(async (cursor) => {
    try {
      const page = await get(`/devices/${segment(deviceId)}/commands`, { limit: PAGE, cursor });
      setState((before) => merge(before, page, cursor));
    } catch (error) {
      setState((before) => ({ ...before, error }));
    }
  }, [deviceId]);
  useEffect(() => { read(null); }, [read]);
  useChanges((changes, isBack) => {
    if (isBack || changes.more || changes.device_ids.includes(deviceId)) read(null);
  }, [read]);

  const { commands, cursor, error } = state;
  return html`<section class="card" aria-labelledby="commands-title">
    <h2 id="commands-title">Commands</h2>
    ${error && html`<${ErrorBox} error=${error} title="The commands could not be read" action=${() => read(null)} />`}
    ${!commands && !error && html`<${Loading} />`}
    ${commands?.length === 0 && html`<p class="quiet">No commands yet.</p>`}
    ${commands?.length > 0 && html`<ol class="commands">${commands.map((one) => html`<${Command} key=${one.id} command=${one} onAgain=${onAgain} />`)}</ol>`}
    ${cursor && html`<button class="button small" type="button" onClick=${() => read(cursor)}>Show older ones</button>`}
  </section>`;
}

/** The first page brings what is new or changed; a later one is added at the end. */
function merge(before, page, cursor) {
  const known = before.commands ?? [];
  if (cursor) return { commands: [...known, ...page.data], cursor: page.next_cursor, error: null };
  const ids = new Set(page.data.map((one) => one.id));
  const older = page.data.length ? known.filter((one) => !ids.has(one.id) && one.created_at <= page.data.at(-1).created_at) : [];
  return { commands: [...page.data, ...older], cursor: older.length ? before.cursor : page.next_cursor, error: null };
}
