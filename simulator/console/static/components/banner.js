// Across the page: the service is away, or the session is over.
import { html } from "../core/html.js";
import { liveState } from "../core/live.js";
import { useStore } from "../core/store.js";

export function Banner() {
  const state = useStore(liveState);
  if (state === "off") {
    return html`<div class="banner warn" role="alert"><strong>The service is away.</strong>
      <span>What you see is as it was. The page goes on by itself when the service is back.</span></div>`;
  }
  if (state === "ended") {
    return html`<div class="banner bad" role="alert"><strong>This session has ended.</strong>
      <span>Sessions last 12 hours, and end with a service that keeps no data. Open a new link: <code>fleet-simulator console</code> prints one.</span>
      <button class="button small" type="button" onClick=${() => location.reload()}>I have opened one</button></div>`;
  }
  return null;
}
