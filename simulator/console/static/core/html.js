// What every component is written with: `html` makes elements of templates, text in them is text and never markup.
import { h, Fragment } from "preact";
import htm from "htm";

export const html = htm.bind(h);
export { Fragment };
export { render } from "preact";
export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
