"""``identify``: who is this device, and which of the boxes on the shelf is it?

With the setting ``led`` it blinks an LED of the kernel's LED class and puts it back as it was.
Source: Linux, Documentation/leds/leds-class.rst (``brightness``, ``max_brightness``, ``trigger``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import BaseModel, Field

from agent.core.values import Contract, JsonObject
from agent.handlers.base import CommandContext, Handler, HandlerFailed, HandlerPayload, HandlerSettings

_HALF_PERIOD_S: Final = 0.25


class Identify(Handler):
    """Answers with the device's identity; blinks when it can."""

    name = "identify"
    description = "Answers with the device's identity and blinks its LED when one is configured."
    contract = Contract.IDEMPOTENT
    timeout_s = 90.0
    in_safe_mode = True

    class Payload(HandlerPayload):
        """How long to blink."""

        blink_s: float = Field(default=5.0, ge=0, le=60, description="Seconds; 0 does not blink.")

    class Settings(HandlerSettings):
        """The settings: the LED to blink."""

        led: str | None = Field(
            default=None, pattern=r"^[^/\x00]+$", description="Name of an LED below led_root; none by default."
        )
        led_root: Path = Field(default=Path("/sys/class/leds"), description="Where the kernel lists LEDs.")

    def __init__(self, settings: BaseModel | None = None) -> None:
        super().__init__(settings)
        chosen = settings if isinstance(settings, Identify.Settings) else Identify.Settings()
        self._led = None if chosen.led is None else _LedDirectory(chosen.led_root / chosen.led)

    def check(self) -> None:
        """The configured LED exists and may be written.

        Raises:
            OSError: it does not, or may not.
        """
        if self._led is not None:
            self._led.check()

    def handle(self, payload: Payload, context: CommandContext) -> JsonObject:
        """The identity, and how long the LED blinked (0 without one).

        Raises:
            HandlerFailed: ``led_failed``.
        """
        blinked_s = 0.0
        if self._led is not None and payload.blink_s > 0:
            try:
                blinked_s = self._led.blink(payload.blink_s, context)
            except (OSError, ValueError) as error:
                raise HandlerFailed("led_failed", f"{self._led.directory} could not be blinked: {error}") from error
        return {**context.controls.identity(), "blinked_s": blinked_s}


class _LedDirectory:
    """One directory of the kernel's LED class."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def check(self) -> None:
        if not self.directory.is_dir():
            known = ", ".join(sorted(path.name for path in self.directory.parent.glob("*"))) or "none"
            raise FileNotFoundError(f"there is no LED {self.directory.name!r} (there is: {known})")
        with (self.directory / "brightness").open("r+"):
            pass

    def blink(self, duration_s: float, context: CommandContext) -> float:
        """Blink in whole periods, at least one; the seconds it took unless it was stopped before."""
        before = self._read("brightness")
        trigger = self._active_trigger()
        bright = self._read("max_brightness") or "1"
        steps = max(1, round(duration_s / (2 * _HALF_PERIOD_S)))
        done = 0
        try:
            if trigger is not None:
                self._write("trigger", "none")
            for _ in range(steps):
                self._write("brightness", bright)
                context.stopping.wait(_HALF_PERIOD_S)
                self._write("brightness", "0")
                if context.stopping.wait(_HALF_PERIOD_S):
                    break
                done += 1
        finally:
            self._write("brightness", before or "0")
            if trigger is not None:
                # Last, since writing the brightness 0 switches a trigger off.
                self._write("trigger", trigger)
        return done * 2 * _HALF_PERIOD_S

    def _active_trigger(self) -> str | None:
        """The trigger in brackets: ``none [heartbeat] timer``; None when the LED has no triggers."""
        try:
            listed = self._read("trigger")
        except FileNotFoundError:
            return None
        return next((word[1:-1] for word in listed.split() if word.startswith("[") and word.endswith("]")), None)

    def _read(self, name: str) -> str:
        return (self.directory / name).read_text(encoding="ascii").strip()

    def _write(self, name: str, value: str) -> None:
        (self.directory / name).write_text(value, encoding="ascii")
