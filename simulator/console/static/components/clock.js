// The service's clock: stopped, moved forward, sped up, or the machine's again.
import { ErrorBox, Loading } from "./states.js";
import { toast, toastError } from "./toast.js";
import { get, post, put } from "../core/api.js";
import { html, useState } from "../core/html.js";
import { useChanges } from "../core/live.js";
import { useLoaded } from "../core/load.js";
import { duration, time } from "../core/text.js";

const PATH = "/_emulator/clock";
const CONTROL = { account: "" };
const MODES = { real: "runs as this machine's clock", frozen: "stands still", offset: "runs, set to another time", scaled: "runs faster or slower" };
const STEPS = [["1 min", 60], ["1 h", 3600], ["1 day", 86400]];

export function Clock() {
  const clock = useLoaded(() => get(PATH, {}, CONTROL), []);
  const [seconds, setSeconds] = useState("300");
  const [busy, setBusy] = useState(false);
  useChanges(() => clock.reload(), [clock.reload]);
  const act = (change, done) => async () => {
    setBusy(true);
    try {
      await change();
      toast(done, "good");
    } catch (error) {
      toastError(error);
    }
    setBusy(false);
    clock.reload();
  };
  const advance = (by) => act(() => post(`${PATH}/advance`, { seconds: by }, CONTROL), `The clock went ${duration(by * 1000)} forward; what fell due on the way was carried out.`);
  const one = clock.value;
  const given = Number(seconds);
  const off = one ? Date.parse(one.time) - Date.parse(one.system_time) : 0;
  return html`<section class="card stack" aria-labelledby="clock-title"><h2 id="clock-title">Clock</h2>
    ${clock.error && html`<${ErrorBox} error=${clock.error} title="The clock could not be read" action=${clock.reload} />`}
    ${!one && !clock.error && html`<${Loading} />`}
    ${one && html`
      <p class="clock-time"><time datetime=${one.time}>${time(one.time)}</time></p>
      <p class="quiet">It ${MODES[one.mode]}${one.mode === "scaled" ? `: ${one.rate} s in each second` : ""}.${Math.abs(off) > 1500 ? ` ${duration(Math.abs(off))} ${off > 0 ? "ahead of" : "behind"} this machine.` : ""} Expiry, presence, quota and rules go by it.</p>
      <div class="row">
        ${one.mode === "frozen"
          ? html`<button class="button" type="button" disabled=${busy} onClick=${act(() => put(PATH, { mode: "offset", time: one.time }, CONTROL), "The clock runs on from where it stood.")}>Let it run on</button>`
          : html`<button class="button" type="button" disabled=${busy} onClick=${act(() => put(PATH, { mode: "frozen" }, CONTROL), "The clock stands still.")}>Freeze</button>`}
        <button class="button" type="button" disabled=${busy || one.mode === "real"} onClick=${act(() => put(PATH, { mode: "real" }, CONTROL), "The clock is this machine's again.")}>Back to real time</button></div>
      <div class="row" role="group" aria-label="Move forward">${STEPS.map(([label, by]) => html`<button class="button small" type="button" key=${label} disabled=${busy} onClick=${advance(by)}>+ ${label}</button>`)}</div>
      <form class="row" onSubmit=${(event) => { event.preventDefault(); if (given > 0) advance(given)(); }}>
        <label class="small" for="advance">Forward by, s</label><input class="input" id="advance" type="number" min="0.001" step="any" value=${seconds} onInput=${(event) => setSeconds(event.currentTarget.value)} />
        <button class="button small" type="submit" disabled=${busy || !(given > 0)}>Go</button></form>`}
  </section>`;
}
