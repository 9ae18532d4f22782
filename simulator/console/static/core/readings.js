// A device's readings over a time: as they were sent where that is little, put together by the service where it is much.
import { get } from "./api.js";

const RAW_MAX = 1000;
const POINTS = 500;

const UNITS = {
  celsius: "°C", fahrenheit: "°F", kelvin: "K", percent: "%", dbm: "dBm", volt: "V", volts: "V", v: "V", mv: "mV", ampere: "A", amperes: "A", a: "A", ma: "mA",
  watt: "W", watts: "W", w: "W", kw: "kW", wh: "Wh", kwh: "kWh", hz: "Hz", khz: "kHz", rpm: "rpm", pa: "Pa", hpa: "hPa", kpa: "kPa", bar: "bar", lux: "lx", lx: "lx",
  ppm: "ppm", ppb: "ppb", db: "dB", m: "m", mm: "mm", cm: "cm", km: "km", s: "s", ms: "ms", us: "µs", min: "min", h: "h", kg: "kg", g: "g", l: "l", deg: "°", degrees: "°",
  bytes: "B", kb: "kB", mb: "MB", kmh: "km/h", mps: "m/s", seconds: "s",
};

/** "temperature_celsius" -> {label: "temperature", unit: "°C"}; a name without a known unit stays whole. */
export function describe(name) {
  const [, head, tail] = /^(.+)_([A-Za-z]+)$/.exec(name) ?? [];
  const unit = tail && UNITS[tail.toLowerCase()];
  return unit ? { label: head.replaceAll("_", " "), unit } : { label: name.replaceAll("_", " "), unit: "" };
}

/**
 * @returns {Promise<{points: {at: number, values: object}[], interval: number|null}>} in order of time, `at` in ms;
 *   `interval` in seconds where each point is the mean of so long
 */
export async function loadReadings(deviceId, from, to, signal) {
  const range = { device_id: deviceId, from: Math.floor(from), to: Math.ceil(to) };
  const raw = await get("/sensor-data", { ...range, order: "desc", limit: RAW_MAX }, { signal });
  if (!raw.has_more) return { points: raw.data.map(point).reverse(), interval: null };
  const interval = Math.max(1, Math.ceil((to - from) / 1000 / POINTS));
  const points = [];
  let cursor = null;
  do {
    const page = await get("/sensor-data", { ...range, agg: "avg", interval, order: "asc", limit: RAW_MAX, cursor }, { signal });
    points.push(...page.data.map((one) => ({ at: (Date.parse(one.from) + Date.parse(one.to)) / 2, values: one.sensor_data })));
    cursor = page.next_cursor;
  } while (cursor && points.length < 4 * POINTS);
  return { points, interval };
}

/** What came after `after` (ms), as it was sent. */
export async function loadNewer(deviceId, after, to, signal) {
  const found = await get("/sensor-data", { device_id: deviceId, from: Math.floor(after) + 1, to: Math.ceil(to), order: "asc", limit: RAW_MAX }, { signal });
  return found.data.map(point);
}

const point = (one) => ({ at: Date.parse(one.recorded_at), values: one.sensor_data });

/** The newest reading of all; null when there is none. */
export async function loadLast(deviceId) {
  const found = await get("/sensor-data", { device_id: deviceId, order: "desc", limit: 1 });
  return found.data.length ? point(found.data[0]) : null;
}

/** Names of the points' values, as the device orders them. */
export function namesOf(points) {
  const names = new Set();
  for (const one of points) for (const name of Object.keys(one.values)) names.add(name);
  return [...names];
}

/** [seconds, values] of one name, as uPlot takes them. */
export function column(points, name) {
  const xs = [];
  const ys = [];
  for (const one of points) {
    const value = one.values[name];
    if (typeof value !== "number") continue;
    xs.push(one.at / 1000);
    ys.push(value);
  }
  return [xs, ys];
}
