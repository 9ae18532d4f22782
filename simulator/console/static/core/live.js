// One stream of what changes, for the whole page. It reconnects by itself; what is shown goes on when it is back.
import { useEffect } from "preact/hooks";
import { get } from "./api.js";
import { sessionEnded } from "./session.js";
import { createStore } from "./store.js";

/** "connecting", "on", "off" or "ended". */
export const liveState = createStore("connecting");
/** The latest event: {device_ids, more, registered, rates, time, frozen}; null before the first. */
export const latest = createStore(null);

const listeners = new Set();
const WAIT_MS = [500, 1000, 2000, 4000];
let source = null;
let failures = 0;
let timer = 0;

/** Call `listener(event, isBack)` with each event; `isBack` after a time without: what is shown may be old. */
export function onChanges(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useChanges(listener, inputs) {
  useEffect(() => onChanges(listener), inputs);
}

export function connect() {
  clearTimeout(timer);
  source?.close();
  source = new EventSource("/_emulator/events");
  source.addEventListener("changes", (event) => {
    const isBack = liveState.get() === "off";
    failures = 0;
    liveState.set("on");
    const changes = JSON.parse(event.data);
    latest.set(changes);
    if (!document.hidden || isBack) for (const listener of [...listeners]) listener(changes, isBack);
  });
  source.addEventListener("error", again);
}

/** The stream broke: look why, and try it again. */
async function again() {
  source.close();
  liveState.set("off");
  timer = setTimeout(async () => {
    try {
      await get("/_emulator/health", {}, { account: "" });
      connect();
    } catch {
      if (!sessionEnded.get()) again();
    }
  }, WAIT_MS[Math.min(failures++, WAIT_MS.length - 1)]);
}

sessionEnded.listen((ended) => {
  if (ended) {
    source?.close();
    liveState.set("ended");
  }
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && latest.get()) for (const listener of [...listeners]) listener({ ...latest.get(), more: true }, false);
});
