// What the screen is like, where a style sheet alone cannot say it.
import { useEffect, useState } from "./html.js";

export function useMedia(query) {
  const [fits, setFits] = useState(matchMedia(query).matches);
  useEffect(() => {
    const list = matchMedia(query);
    const look = () => setFits(list.matches);
    look();
    list.addEventListener("change", look);
    return () => list.removeEventListener("change", look);
  }, [query]);
  return fits;
}

/** A value that follows another one after a pause, such as a text that somebody still types. */
export function useSettled(value, ms) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}
