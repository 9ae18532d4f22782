// The service's clock, which may be set, stopped or sped up: "3 s ago" goes by it, not by this machine's.
import { latest } from "./live.js";

let at = null;
latest.listen((event) => {
  at = { service: Date.parse(event.time), here: performance.now(), frozen: event.frozen };
});

/** Milliseconds since the epoch, by the service's clock as far as it is known. */
export const now = () => (at === null ? Date.now() : at.service + (at.frozen ? 0 : performance.now() - at.here));
