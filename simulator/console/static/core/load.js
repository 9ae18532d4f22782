// Something that is read from the service, again when asked: {value, error, isLoading, reload}.
import { useCallback, useEffect, useRef, useState } from "./html.js";

export function useLoaded(read, inputs) {
  const [state, setState] = useState({ value: null, error: null, isLoading: true });
  const turn = useRef(0);
  const reload = useCallback(async () => {
    const mine = ++turn.current;
    try {
      const value = await read();
      if (mine === turn.current) setState({ value, error: null, isLoading: false });
    } catch (error) {
      if (mine === turn.current) setState((before) => ({ value: before.value, error, isLoading: false }));
    }
  }, inputs);
  useEffect(() => {
    setState((before) => ({ ...before, isLoading: true }));
    reload();
    return () => turn.current++;
  }, [reload]);
  return { ...state, reload };
}
