// A run as it goes on: its stream of progress, put together to what is known now. It reconnects by itself.
import { get, segment } from "./api.js";
import { useEffect, useReducer, useRef } from "preact/hooks";

const SECONDS = 240;
const NOTES = 200;
const AGAIN_MS = 2000;
const FLUSH_MS = 50; // the events of a stream's begin come at once: one picture

const nothing = (run) => ({ run, head: null, stage: null, second: null, notes: [], seconds: [], ok: [], errors: [], limited: [], p99: [], age: [], fault: null, isLost: false, at: null });

/** The state after an event of the stream. */
function next(state, { event, data }) {
  switch (event) {
    case "anew": return nothing(state.run);
    case "state": return { ...state, run: data, isLost: false };
    case "lost": return { ...state, isLost: true };
    case "fault": return { ...state, fault: data.text };
    case "run": return { ...nothing(state.run), head: data };
    case "stage": return { ...state, stage: data.text ? data : null };
    case "note": return { ...state, notes: [...state.notes.slice(1 - NOTES), data] };
    case "end": return { ...state, stage: null };
    case "second": return withSecond(state, data);
    default: return state;
  }
}

const put = (list, value) => [...list.slice(1 - SECONDS), value ?? null];

function withSecond(state, data) {
  return {
    ...state, second: data, stage: null, isLost: false, at: performance.now(),
    seconds: put(state.seconds, data.second), ok: put(state.ok, data.alone.ok_per_s), errors: put(state.errors, data.alone.errors_per_s),
    limited: put(state.limited, data.alone.limited_per_s), p99: put(state.p99, data.all.response_s.p99), age: put(state.age, data.ages["readings.age"]?.p99),
  };
}

const reduce = (state, events) => events.reduce(next, state);

/**
 * Follow a run.
 * @param {object} run as `/_emulator/runs/{id}` shows it
 * @param {(run: object) => void} onState called with the run when its state changes, and when it is over
 */
export function useRunLive(run, onState) {
  const [state, dispatch] = useReducer(reduce, nothing(run));
  const told = useRef(onState);
  told.current = onState;
  useEffect(() => {
    const path = `/_emulator/runs/${segment(run.id)}`;
    let source = null;
    let again = 0;
    let flushing = 0;
    let waiting = [];
    const flush = () => {
      flushing = 0;
      const events = waiting;
      waiting = [];
      if (events.length) dispatch(events);
    };
    const take = (event, data) => {
      waiting.push({ event, data });
      flushing ||= setTimeout(flush, FLUSH_MS);
    };
    const connect = () => {
      take("anew");
      source = new EventSource(`${path}/events`);
      for (const name of ["run", "stage", "note", "second", "end", "state", "fault"]) {
        source.addEventListener(name, (event) => take(name, JSON.parse(event.data)));
      }
      source.addEventListener("state", (event) => told.current(JSON.parse(event.data)));
      source.addEventListener("over", (event) => {
        source.close();
        told.current(JSON.parse(event.data));
      });
      source.addEventListener("error", tryAgain);
    };
    const tryAgain = () => {
      source.close();
      take("lost");
      again = setTimeout(async () => {
        try {
          await get(path);
          connect();
        } catch (error) {
          if (error.status === 404) take("fault", { text: error.message });
          else tryAgain();
        }
      }, AGAIN_MS);
    };
    connect();
    return () => {
      clearTimeout(again);
      clearTimeout(flushing);
      source?.close();
    };
  }, [run.id]);
  return state;
}
