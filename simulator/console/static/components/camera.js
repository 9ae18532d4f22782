// The live camera. Frames go to the service one after the other, at a low rate; the first one with a code ends it.
import { html, useEffect, useRef, useState } from "../core/html.js";

const PAUSE_MS = 200;
const EDGE_MAX = 1280;
const WORDS = {
  NotAllowedError: "The browser may not use the camera. Allow it for this page, in the address bar, and start again.",
  NotFoundError: "This machine has no camera. Take a photograph with a phone, or choose a file.",
  NotSupportedError: "This browser gives pages no camera. Take a photograph, or choose a file.",
  NotReadableError: "The camera is in use by another program. End that one, and start again.",
};

/** Whether this page may ask for a camera: browsers give it over https, and on this machine itself. */
export const mayUseCamera = () => window.isSecureContext && Boolean(navigator.mediaDevices?.getUserMedia);

/** `decode(blob, true)` reads one frame; `onFound(blob, found, url)` gets the first one with a code. */
export function Camera({ decode, onFound, onPicture }) {
  const [isOn, setOn] = useState(false);
  const [fault, setFault] = useState("");
  const video = useRef(null);

  useEffect(() => {
    if (!isOn) return undefined;
    const run = { isOver: false, stream: null };
    watch(run, video.current, decode).then(
      (seen) => {
        setOn(false);
        if (seen) onFound(seen.blob, seen.found, URL.createObjectURL(seen.blob));
      },
      (error) => {
        setOn(false);
        if (!run.isOver) setFault(WORDS[error.name] ?? error.message);
      },
    );
    return () => {
      run.isOver = true;
      stop(run);
    };
  }, [isOn]);

  if (!mayUseCamera()) {
    const choose = (event) => {
      const [file] = event.currentTarget.files;
      if (file) onPicture(file, file.name);
    };
    return html`<div class="stack"><p class="notice warn">Browsers give a page the live camera over https only, or on the machine of the service itself. Here a photograph does.</p>
      <div class="row"><label class="button main file">Take a photograph<input class="sr" type="file" accept="image/*" capture="environment" onChange=${choose} /></label></div>
      <p class="quiet small">For the live camera start the service with <code>--tls-certificate</code> and <code>--tls-key</code>.</p></div>`;
  }
  return html`<div class="stack">
    ${isOn && html`<div class="viewfinder"><video ref=${video} muted playsinline aria-label="What the camera sees"></video></div>
      <p class="quiet" role="status">Hold the label into the picture so that it fills half of it.</p>`}
    ${fault && html`<p class="notice bad" role="alert">${fault}</p>`}
    <div class="row">${isOn ? html`<button class="button" type="button" onClick=${() => setOn(false)}>Stop the camera</button>`
      : html`<button class="button main" type="button" onClick=${() => { setFault(""); setOn(true); }}>Start the camera</button>`}</div>
  </div>`;
}

/** Look at frames until one has a code, or `run` is over. */
async function watch(run, video, decode) {
  try {
    run.stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment", width: { ideal: 1920 } }, audio: false });
    if (run.isOver) return null;
    video.srcObject = run.stream;
    await video.play();
    while (!run.isOver) {
      const blob = await frameOf(video);
      const found = blob && (await read(decode, blob));
      if (run.isOver) return null;
      if (found?.codes.length) return { blob, found };
      await new Promise((done) => setTimeout(done, PAUSE_MS));
    }
    return null;
  } finally {
    stop(run);
  }
}

/** A service that is busy with other frames gets the next one later. */
async function read(decode, blob) {
  try {
    return await decode(blob, true);
  } catch (error) {
    if (error.status === 503) return null;
    throw error;
  }
}

const stop = (run) => run.stream?.getTracks().forEach((track) => track.stop());

function frameOf(video) {
  const scale = Math.min(1, EDGE_MAX / Math.max(video.videoWidth, video.videoHeight, 1));
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(video.videoWidth * scale);
  canvas.height = Math.round(video.videoHeight * scale);
  if (!canvas.width || !canvas.height) return Promise.resolve(null);
  canvas.getContext("2d").drawImage(video, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/jpeg", 0.85));
}
