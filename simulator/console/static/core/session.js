// What the server put into the page, and whether its session still lasts.
import { createStore } from "./store.js";

const meta = (name) => document.querySelector(`meta[name="${name}"]`)?.content ?? "";

export const csrf = meta("console-csrf");
export const staticBase = meta("console-static");
export const pages = JSON.parse(document.getElementById("pages").textContent);

/** true once the service has answered that the session is over: nothing works until a new link is opened. */
export const sessionEnded = createStore(false);
