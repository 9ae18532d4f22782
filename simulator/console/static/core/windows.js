// Rows of a long list, fetched in windows as they come into sight, kept, and read again when they change.
import { get } from "./api.js";
import { useCallback, useEffect, useRef, useState } from "./html.js";

const SIZE = 50;
const KEPT = 40; // windows; beyond that the farthest ones go
const SETTLE_MS = 60; // while somebody scrolls quickly, nothing is fetched on the way

/**
 * @param {string} path answers {total, data} for `offset` and `limit`
 * @param {object} query further parameters; others make everything anew
 * @returns {{total: number|null, rowAt: Function, onWindow: Function, reload: Function, visible: Function, error: Error|null}}
 */
export function useWindows(path, query) {
  const key = JSON.stringify(query);
  const state = useRef(null);
  const [, setTick] = useState(0);
  if (state.current?.key !== key) {
    state.current?.stop.abort();
    // The old total stays until the new one is there, so that the table does not jump.
    state.current = { key, query, windows: new Map(), total: state.current?.total ?? null, first: 0, last: 30, loading: new Set(), stop: new AbortController(), error: null };
  }
  const here = state.current;
  const show = useCallback(() => setTick((tick) => tick + 1), []);

  const load = useCallback(async (at, number) => {
    if (at.loading.has(number)) return;
    at.loading.add(number);
    try {
      const found = await get(path, { ...at.query, offset: number * SIZE, limit: SIZE }, { signal: at.stop.signal });
      at.windows.set(number, found.data);
      at.total = found.total;
      at.error = null;
      if (at.windows.size > KEPT) forgetFarthest(at, number);
    } catch (error) {
      if (error.name !== "AbortError") at.error = error;
    } finally {
      at.loading.delete(number);
      if (state.current === at) show();
    }
  }, [path]);

  useEffect(() => {
    load(here, Math.floor(here.first / SIZE));
    return () => here.stop.abort();
  }, [key]);

  const timer = useRef(0);
  const onWindow = useCallback((first, last) => {
    const at = state.current;
    Object.assign(at, { first, last });
    clearTimeout(timer.current);
    const fetchMissing = () => numbers(at).filter((number) => !at.windows.has(number)).forEach((number) => load(at, number));
    timer.current = setTimeout(fetchMissing, SETTLE_MS);
  }, []);
  const reload = useCallback(() => {
    const at = state.current;
    const wanted = numbers(at);
    for (const number of at.windows.keys()) if (!wanted.includes(number)) at.windows.delete(number);
    return Promise.all(wanted.map((number) => load(at, number)));
  }, []);

  return {
    total: here.total,
    error: here.error,
    isFresh: here.windows.size > 0,
    rowAt: (index) => here.windows.get(Math.floor(index / SIZE))?.[index % SIZE],
    visible: () => numbers(here).flatMap((number) => here.windows.get(number) ?? []),
    onWindow,
    reload,
  };
}

function numbers(at) {
  const found = [];
  const end = Math.min(at.last, at.total ?? at.last);
  for (let number = Math.floor(at.first / SIZE); number * SIZE < Math.max(end, 1); number++) found.push(number);
  return found;
}

function forgetFarthest(at, number) {
  const farthest = [...at.windows.keys()].sort((one, other) => Math.abs(other - number) - Math.abs(one - number));
  at.windows.delete(farthest[0]);
}
