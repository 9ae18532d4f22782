// Faults that are wanted most, each with the one number or choice that it needs.

/** `field` is {label, unit?, value, min?, max?, step?} or {label, options, value}; `effect` makes what is sent of it. */
export const PRESETS = [
  { id: "latency", label: "Answers come late", help: "The request is carried out at once; its answer is held.", field: { label: "By", unit: "s", value: 2, min: 0, max: 600, step: 0.1 }, effect: (value) => ({ latency: { fixed_s: value } }) },
  { id: "lost_answer", label: "The answer is lost", help: "Carried out, and the connection closes without an answer. Does your firmware send twice?", effect: () => ({ lose: "answer" }) },
  { id: "lost_request", label: "The request is lost", help: "The connection closes, and nothing is carried out.", effect: () => ({ lose: "request" }) },
  { id: "limited", label: "429, too many requests", help: "With Retry-After; nothing is carried out.", field: { label: "Retry after", unit: "s", value: 10, min: 0, max: 86400, step: 1 }, effect: (value) => ({ answer: { status: 429, retry_after_s: value } }) },
  { id: "failed", label: "The server fails", help: "An error in place of the answer; nothing is carried out.", field: { label: "Status", value: "500", options: ["500", "502", "503", "504"] }, effect: (value) => ({ answer: { status: Number(value) } }) },
  { id: "reset", label: "The connection is reset", help: "As a lost answer, with a TCP RST.", field: { label: "When", value: "answer", options: ["answer", "request"] }, effect: (value) => ({ reset: value }) },
  { id: "portal", label: "A captive portal", help: "A page of HTML in place of the answer, as in a hotel.", field: { label: "Status", value: "200", options: ["200", "302", "511"] }, effect: (value) => ({ captive_portal: { status: Number(value) } }) },
  { id: "truncated", label: "The body ends too early", help: "Half of the JSON comes, then the connection closes.", effect: () => ({ truncate: true }) },
  { id: "malformed", label: "Broken JSON", help: "The whole body comes, and it is no JSON.", effect: () => ({ malformed_json: true }) },
  { id: "drip", label: "A slow drip", help: "The answer comes byte by byte.", field: { label: "Speed", unit: "B/s", value: 50, min: 0.1, max: 1000000, step: 0.1 }, effect: (value) => ({ drip: { bytes_per_s: value } }) },
  { id: "date", label: "A wrong Date", help: "The header Date is off.", field: { label: "By", unit: "s", value: -86400, min: -3000000000, max: 3000000000, step: 1 }, effect: (value) => ({ date: { offset_s: value } }) },
  { id: "duplicate", label: "It arrives twice", help: "Carried out twice, as when a proxy sends it again.", effect: () => ({ duplicate: true }) },
];

/** A fault's effect in words. */
export function effectText(effect) {
  const [name, given] = Object.entries(effect)[0];
  const number = (value) => String(value);
  const words = {
    latency: () => (given.fixed_s !== undefined ? `answers ${number(given.fixed_s)} s late` : given.median_s !== undefined ? `answers late, log-normal around ${number(given.median_s)} s` : `answers ${number(given.min_s)} to ${number(given.max_s)} s late`),
    answer: () => `${given.status}${given.retry_after_s !== undefined ? `, retry after ${given.retry_after_s} s` : ""}`,
    lose: () => (given === "answer" ? "carried out, the answer is lost" : "lost before it is carried out"),
    reset: () => (given === "answer" ? "carried out, then the connection is reset" : "the connection is reset"),
    duplicate: () => "carried out twice",
    truncate: () => "the body ends too early",
    malformed_json: () => "broken JSON",
    content_type: () => `Content-Type ${given}`,
    captive_portal: () => `a captive portal, ${given.status ?? 200}`,
    drip: () => `a drip of ${number(given.bytes_per_s)} B/s`,
    date: () => (given.offset_s !== undefined ? `Date ${given.offset_s} s off` : `Date ${given.value}`),
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
  if (times.from) words.push(`from ${times.from}`);
  if (times.until) words.push(`until ${times.until}`);
  return words.join(", ");
}
