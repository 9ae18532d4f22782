// uPlot, loaded when the first plot is shown: the same file that the reports have. It is a plain script, not a module.
import { staticBase } from "./session.js";

let loading = null;

/** The class uPlot. */
export function loadPlot() {
  loading ??= new Promise((resolve, reject) => {
    const sheet = Object.assign(document.createElement("link"), { rel: "stylesheet", href: `${staticBase}vendor/uPlot.min.css` });
    const script = Object.assign(document.createElement("script"), { src: `${staticBase}vendor/uPlot.iife.min.js` });
    script.addEventListener("load", () => resolve(window.uPlot));
    script.addEventListener("error", () => {
      loading = null;
      reject(new Error("The plots could not be loaded: load the page again."));
    });
    document.head.append(sheet, script);
  });
  return loading;
}

/** A colour of the style sheet, for a canvas; with forced colours the text's own. */
export function colour(name) {
  if (matchMedia("(forced-colors: active)").matches) return getComputedStyle(document.body).color;
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
