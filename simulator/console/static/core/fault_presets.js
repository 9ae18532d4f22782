// Faults that are wanted most, each with the one number or choice that it needs.

/** `field` is {label, unit?, value, min?, max?, step?} or {label, options, value}; `effect` makes what is sent of it. */
export const PRESETS = [
  { id: "latency", label: "Answers come late", help: "The request is carried out at once; its answer is held.", field: { label: "By", unit: "s", value: 2, min: 0, max: 600, step: 0.1 }, effect: (value) => ({ latency: { fixed_s: value } }) },
  { id: "lost_answer", label: "The answer is lost", help: "Carried out, and the connection closes without an answer. Does your firmware send twice?", effect: () => ({ lose: "answer" }) },
  { id: "lost_request", label: "The request is lost", help: "The connection closes, and nothing is carried out.", effect: () => ({ lose: "request" }) },
  { id: "limited", label: "429, too many requests", help: "With Retry-After; nothing is carried out.", field: { label: "Retry after", unit: "s", value: 10, min: 0, max: 86400, step: 1 }, effect: (value) => ({ answer: { status: 429, retry_after_s: value } }) },
  { id: "failed", label: "The server fails", help: "An error in place of the answer; nothing is carried out.", field: { label: "Status", value: "500", options: ["500", "502", "503", "504"] }, effect: (value) => ({ answer: { status: Number(value) } }) },
  { id: "reset", label: "The connection is reset", help: "As a lost answer, with a TCP RST.", field: { label: "When", value: "answer", options: ["answer", "request"] }, effect: (value) => ({ reset: value }) },
  { id: "truncated", label: "The body ends too early", help: "Half of the JSON comes, then the connection closes.", effect: () => ({ truncate: true }) },
];

/** A fault's effect in words. */
export function effectText(effect) {
  const [name, given] = Object.entries(effect)[0];
  const number = (value) => String(value);
  const words = {
    latency: () => (given.fixed_s !== undefined ? `answers ${number(given.fixed_s)} s late` : `answers ${number(given.min_s)} to ${number(given.max_s)} s late`),
    answer: () => `${given.status}${given.retry_after_s !== undefined ? `, retry after ${given.retry_after_s} s` : ""}`,
    lose: () => (given === "answer" ? "carried out, the answer is lost" : "lost before it is carried out"),
    reset: () => (given === "answer" ? "carried out, then the connection is reset" : "the connection is reset"),
    truncate: () => "the body ends too early",
  };
  return words[name]?.() ?? JSON.stringify(effect);
}

/** Which requests meet it, in words. */
export function matchText(match) {
  const { method, path, ...others } = match;
  const first = [method, path].filter(Boolean).join(" ");
  const rest = Object.entries(others).map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`);
  return [first || "every request", ...rest].join(", ");
}

/** When, in words; empty for always. */
export function timesText(times) {
  const words = [];
  if (times.after) words.push(`not the first ${times.after}`);
  if (times.next) words.push(`${times.next} ${times.next === 1 ? "time" : "times"}`);
  if (times.probability) words.push(`${Math.round(times.probability * 1000) / 10} % of them`);
  return words.join(", ");
}
