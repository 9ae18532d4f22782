// States as a word with a colour. The word alone says it; the colour helps those who see it.
import { html } from "../core/html.js";

const KINDS = {
  online: "good", succeeded: "good", passed: "good", valid: "good",
  failed: "bad", expired: "bad", timed_out: "bad", rejected: "violet",
  delivered: "accent", in_progress: "accent", queued: "warn", running: "accent",
};

export const Badge = ({ state, text }) => html`<span class="badge ${KINDS[state] ?? ""}">${text ?? state.replaceAll("_", " ")}</span>`;
