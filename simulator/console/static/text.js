// Numbers, times and sizes as people read them. Units always stand beside numbers.
const whole = new Intl.NumberFormat("en");
const moment = new Intl.DateTimeFormat("en-GB", {
  year: "numeric", month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
});

export const count = (value) => whole.format(value);

/** 1234 -> "1.2 kB" */
export function bytes(value) {
  if (value < 1000) return `${value} B`;
  for (const unit of ["kB", "MB", "GB"]) {
    value /= 1000;
    if (value < 1000 || unit === "GB") return `${value.toFixed(value < 10 ? 1 : 0)} ${unit}`;
  }
}

/** Seconds -> "1.4 ms", "340 ms", "2.4 s", "3 min 20 s", "2 h 5 min", "3 d 4 h"; a dash for null */
export function duration(s) {
  if (s === null || s === undefined) return "–";
  if (s < 1) return `${s > 0 && s < 0.01 ? (s * 1000).toFixed(1) : Math.round(s * 1000)} ms`;
  if (s < 60) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  const [large, unit, small, smaller] = s < 3600 ? [s / 60, "min", s % 60, "s"]
    : s < 86400 ? [s / 3600, "h", (s % 3600) / 60, "min"]
    : [s / 86400, "d", (s % 86400) / 3600, "h"];
  return `${Math.floor(large)} ${unit}${Math.floor(small) ? ` ${Math.floor(small)} ${smaller}` : ""}`;
}

/** How long before `nowMs`: "now", "40 s ago", "3 min ago" */
export function ago(text, nowMs) {
  const s = Math.floor((nowMs - Date.parse(text)) / 1000);
  if (s < 2) return "now";
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ago`;
  return `${Math.floor(s / 86400)} d ago`;
}

/** A time in the reader's own zone. */
export const time = (text) => moment.format(new Date(text));

/** At most so many characters, with an ellipsis for what is left out. */
export const cut = (text, characters) => (text.length <= characters ? text : `${text.slice(0, characters - 1)}…`);

/** A value of a reading or payload on one line. */
export function value(one) {
  if (typeof one === "number") return String(Number.isInteger(one) ? one : Number(one.toPrecision(6)));
  return typeof one === "string" ? one : JSON.stringify(one);
}

const UNITS = {
  celsius: "°C", fahrenheit: "°F", kelvin: "K", percent: "%", dbm: "dBm", volts: "V", v: "V", mv: "mV", amperes: "A",
  a: "A", ma: "mA", watts: "W", w: "W", kw: "kW", wh: "Wh", kwh: "kWh", hz: "Hz", rpm: "rpm", pa: "Pa", hpa: "hPa",
  kpa: "kPa", bar: "bar", lux: "lx", ppm: "ppm", ppb: "ppb", db: "dB", m: "m", mm: "mm", cm: "cm", km: "km", s: "s",
  ms: "ms", min: "min", h: "h", kg: "kg", g: "g", l: "l", degrees: "°", bytes: "B",
};

/** "temperature_celsius" -> {label: "temperature", unit: "°C"}; a name without a known unit stays whole. */
export function describe(name) {
  const [, head, tail] = /^(.+)_([A-Za-z]+)$/.exec(name) ?? [];
  const unit = tail && UNITS[tail.toLowerCase()];
  return unit ? { label: head.replaceAll("_", " "), unit } : { label: name.replaceAll("_", " "), unit: "" };
}
