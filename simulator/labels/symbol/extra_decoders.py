"""Decoders that only check that a picture which must not scan is read by no other program.

They prove no label, since a good label need not be read by each decoder in the world, and a label that must fail should
be read by none. WeChat's detector reads a quarter of what zxing-cpp, zbar and OpenCV do not.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import shutil
import struct
import subprocess
import threading
import weakref
from pathlib import Path
from typing import IO, Any, Final, cast

from simulator.labels.errors import LabelError
from simulator.labels.symbol.decoders import ANSWER_S, Decoder, GrayImage, NoAnswer

WECHAT_FIX: Final = (
    "WeChat's detector: pip uninstall opencv-python-headless opencv-contrib-python-headless, both of which are cv2; "
    "then pip install '.[opencv]' in a clone of device-agent"
)
JSQR_FIX: Final = "jsQR: npm install jsqr, and --jsqr with the folder of its node_modules"
_SCRIPT: Final = r"""
const jsqr = require(process.argv[1]);
const read = jsqr.default || jsqr;
let waiting = Buffer.alloc(0);
process.stdin.on('data', (chunk) => {
  waiting = Buffer.concat([waiting, chunk]);
  while (waiting.length >= 8) {
    const width = waiting.readUInt32LE(0), height = waiting.readUInt32LE(4), size = width * height;
    if (waiting.length < 8 + size) return;
    const rgba = new Uint8ClampedArray(4 * size).fill(255);
    for (let i = 0; i < size; i++) rgba[4 * i] = rgba[4 * i + 1] = rgba[4 * i + 2] = waiting[8 + i];
    waiting = waiting.subarray(8 + size);
    let found = null, error = null;
    try {
      found = read(rgba, width, height, {inversionAttempts: 'attemptBoth'});
    } catch (thrown) { error = `${thrown}`; }
    process.stdout.write(JSON.stringify({bytes: found && Array.from(found.binaryData), error}) + '\n');
  }
});
"""


class WeChat:
    """The detector of WeChat's app, as OpenCV's contributed modules have it; without its models for small codes."""

    name = "wechat"

    def __init__(self) -> None:
        import numpy as np

        self._cv2: Any = importlib.import_module("cv2")  # two seconds; its types know nothing of contributed modules
        self._cv2.setNumThreads(1)
        self._np = np
        self._detector = self._cv2.wechat_qrcode.WeChatQRCode()
        self.title = f"WeChat's detector in OpenCV {self._cv2.__version__}"

    def read(self, image: GrayImage) -> tuple[bytes, ...]:
        """The bytes of each QR code found in the image, in no particular order.

        Raises:
            NoAnswer: it failed at this picture.
        """
        pixels = self._np.frombuffer(image.pixels, self._np.uint8).reshape(image.height, image.width)
        try:
            texts, _ = self._detector.detectAndDecode(pixels)
        except self._cv2.error as error:  # an assertion of its own on pictures that it did not foresee
            raise NoAnswer(f"{self.title} failed at a picture: {error}") from None
        return tuple(str(text).encode(errors="surrogateescape") for text in texts)


class JsQr:
    """JsQR, which many web pages scan with, in a Node process of its own that ends with this object.

    Args:
        folder: has ``node_modules/jsqr`` in it.
        answer_s: how long it may take over one picture; its process is then ended, and another one started.

    Raises:
        LabelError: Node or jsQR is not there, or they do not work together.
    """

    name = "jsqr"
    has_own_limit = True

    def __init__(self, folder: Path, *, answer_s: float = ANSWER_S) -> None:
        node, package = shutil.which("node"), folder.resolve() / "node_modules" / "jsqr"
        try:
            self.title = f"jsQR {json.loads((package / 'package.json').read_text())['version']}"
        except (OSError, ValueError, KeyError, TypeError):
            raise LabelError(f"{package} is no jsQR: run 'npm install jsqr' in {folder}, or leave out --jsqr") from None
        if node is None:
            raise LabelError("jsQR needs node: install it (Debian: apt-get install nodejs), or leave out --jsqr")
        self._command = [node, "-e", _SCRIPT, str(package)]
        self._answer_s = answer_s
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", "")},  # code of others: no key out of this environment is its business
        )
        self.close = weakref.finalize(self, _end, self._process)

    def read(self, image: GrayImage) -> tuple[bytes, ...]:
        """The bytes of each QR code found in the image, in no particular order.

        Raises:
            LabelError: its process has ended.
            NoAnswer: it failed at this picture, or took too long.
        """
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        limit = threading.Timer(self._answer_s, end)
        limit.start()
        try:
            answer = self._exchange(struct.pack("<II", image.width, image.height) + image.pixels)
        except (OSError, ValueError):
            if not late.is_set():
                raise LabelError(f"{self.title} ended without an answer; leave out --jsqr, or mend Node") from None
            self.close()
            self._start()
            raise NoAnswer(f"{self.title} gave no answer within {self._answer_s:g} s") from None
        finally:
            limit.cancel()
            limit.join()
        if answer["error"] is not None:
            raise NoAnswer(f"{self.title} failed at a picture: {answer['error']}")
        return () if answer["bytes"] is None else (bytes(answer["bytes"]),)

    def _exchange(self, request: bytes) -> dict[str, Any]:
        to_node, from_node = cast("IO[bytes]", self._process.stdin), cast("IO[bytes]", self._process.stdout)
        to_node.write(request)
        to_node.flush()
        answer: dict[str, Any] = json.loads(from_node.readline())
        return answer


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with contextlib.suppress(OSError):  # a picture that it has not taken cannot be flushed any more
        process.communicate()


def find_wechat() -> WeChat | None:
    """WeChat's detector, when OpenCV is installed with its contributed modules."""
    if importlib.util.find_spec("cv2") is None:
        return None
    try:
        return WeChat()
    except (ImportError, AttributeError):  # a system library is missing, or the modules are
        return None


def make_extra(jsqr: Path | None, answer_s: float = ANSWER_S) -> tuple[Decoder, ...]:
    """The extra decoders of this machine.

    Args:
        jsqr: the folder of jsQR's ``node_modules``; None leaves jsQR out.
        answer_s: how long jsQR may take over one picture.

    Raises:
        LabelError: jsQR was asked for and cannot be had.
    """
    wechat = find_wechat()
    return (*((wechat,) if wechat else ()), *((JsQr(jsqr, answer_s=answer_s),) if jsqr else ()))


def missing_extra(extra: tuple[Decoder, ...]) -> tuple[str, ...]:
    """How to get each extra decoder that is not among these."""
    names = {decoder.name for decoder in extra}
    return tuple(fix for name, fix in (("wechat", WECHAT_FIX), ("jsqr", JSQR_FIX)) if name not in names)
