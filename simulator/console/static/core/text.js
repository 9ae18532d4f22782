// Numbers, times and sizes as people read them. Units always stand beside numbers.
const whole = new Intl.NumberFormat("en");

export const count = (value) => whole.format(value);
export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;
export const decimals = (value) => (value >= 10 || value === 0 ? whole.format(Math.round(value)) : value.toFixed(1));

/** 1234 -> "1.2 kB" */
export function bytes(value) {
  if (value < 1000) return `${value} B`;
  for (const unit of ["kB", "MB", "GB"]) {
    value /= 1000;
    if (value < 1000 || unit === "GB") return `${value.toFixed(value < 10 ? 1 : 0)} ${unit}`;
  }
}

/** Milliseconds -> "340 ms", "2.4 s", "3 min 20 s", "2 h 5 min", "3 d 4 h" */
export function duration(ms) {
  if (ms < 0) return `-${duration(-ms)}`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  const parts = s < 3600 ? [Math.floor(s / 60), "min", Math.floor(s % 60), "s"]
    : s < 86400 ? [Math.floor(s / 3600), "h", Math.floor((s % 3600) / 60), "min"]
    : [Math.floor(s / 86400), "d", Math.floor((s % 86400) / 3600), "h"];
  return parts[2] ? `${parts[0]} ${parts[1]} ${parts[2]} ${parts[3]}` : `${parts[0]} ${parts[1]}`;
}

/** How long before `now` (ms): "now", "40 s ago", "3 min ago" */
export function ago(time, now) {
  const ms = now - Date.parse(time);
  if (ms < 2000) return "now";
  const s = Math.floor(ms / 1000);
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ago`;
  return `${Math.floor(s / 86400)} d ago`;
}

const moment = new Intl.DateTimeFormat("en-GB", { year: "numeric", month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** A time in the reader's own zone, with the wire's own text for the tooltip. */
export const time = (text) => moment.format(new Date(text));

/** At most so many characters, with an ellipsis for what is left out. */
export const cut = (text, characters) => (text.length <= characters ? text : `${text.slice(0, characters - 1)}…`);

/** A value of a reading or payload on one line. */
export const value = (one) => (typeof one === "number" ? String(Number.isInteger(one) ? one : Number(one.toPrecision(6))) : typeof one === "string" ? one : JSON.stringify(one));
