"""``system``: how this machine is: CPU temperature and use, load, memory, disk, uptime.

What a machine does not say is left out; it is never reported as zero.
Source: Linux, proc(5) and Documentation/ABI/testing/sysfs-class-thermal; POSIX, ``statvfs``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic import Field

from agent.sensors.base import Sensor, SensorFailed, SensorSettings

_CPU_ZONES: Final = ("cpu", "soc", "x86_pkg", "pkg_temp")
_CPU_RANGE_C: Final = (-60.0, 150.0)
_CPU_CHIPS: Final = frozenset({"coretemp", "cpu_thermal", "k10temp", "zenpower"})


class SystemSensor(Sensor):
    """Reads /proc, /sys and one file system."""

    type = "system"
    description = "CPU temperature and use, load, memory, disk and uptime of this machine."

    class Settings(SensorSettings):
        """The settings: the folders that the system's figures are read from."""

        proc_root: Path = Field(default=Path("/proc"), description="Where proc is mounted.")
        sys_root: Path = Field(default=Path("/sys"), description="Where sysfs is mounted.")
        disk_path: Path = Field(default=Path("/"), description="A path on the file system whose space is read.")

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._cpu_before: tuple[int, int] | None = None

    def read(self) -> dict[str, float]:
        """Every reading that this machine has.

        Names: ``cpu_temperature_c``, ``cpu_used_percent`` (since the read before), ``load_1m``, ``load_5m``,
        ``load_15m``, ``memory_total_bytes``, ``memory_available_bytes``, ``memory_used_percent``,
        ``disk_total_bytes``, ``disk_free_bytes``, ``disk_used_percent``, ``uptime_s``.

        Raises:
            SensorFailed: it has none of them.
        """
        readings: dict[str, float] = {}
        for part in (self._temperature, self._cpu, self._load, self._memory, self._disk_space, self._uptime):
            try:
                readings.update(part())
            except (OSError, ValueError, LookupError):
                continue  # this machine, container or kernel does not say it
        if not readings:
            raise SensorFailed(f"nothing could be read below {self.settings.proc_root} and {self.settings.sys_root}")
        return readings

    def _temperature(self) -> Iterator[tuple[str, float]]:
        for zone in sorted((self.settings.sys_root / "class/thermal").glob("thermal_zone*")):
            if any(word in _text(zone / "type").lower() for word in _CPU_ZONES):
                yield "cpu_temperature_c", _cpu_temperature(zone / "temp")
                return
        for chip in sorted((self.settings.sys_root / "class/hwmon").glob("hwmon*")):
            if _text(chip / "name") in _CPU_CHIPS:
                yield "cpu_temperature_c", _cpu_temperature(chip / "temp1_input")
                return

    def _cpu(self) -> Iterator[tuple[str, float]]:
        # user nice system idle iowait irq softirq steal; guest time is part of user and must not count twice.
        ticks = [int(word) for word in _text(self.settings.proc_root / "stat").split("\n", 1)[0].split()[1:9]]
        total, idle = sum(ticks), ticks[3] + ticks[4]
        before, self._cpu_before = self._cpu_before, (total, idle)
        if before is not None and total > before[0]:
            share = 1 - (idle - before[1]) / (total - before[0])
            yield "cpu_used_percent", round(min(1.0, max(0.0, share)) * 100, 2)

    def _load(self) -> Iterator[tuple[str, float]]:
        words = _text(self.settings.proc_root / "loadavg").split()
        yield from zip(("load_1m", "load_5m", "load_15m"), map(float, words[:3]), strict=True)

    def _memory(self) -> Iterator[tuple[str, float]]:
        sizes = {}
        for line in _text(self.settings.proc_root / "meminfo").splitlines():
            name, _, rest = line.partition(":")
            sizes[name] = int(rest.split()[0]) * 1024
        total = sizes["MemTotal"]
        # Kernels before 3.14 have no MemAvailable; this is what it replaced.
        available = sizes.get("MemAvailable", sizes["MemFree"] + sizes.get("Buffers", 0) + sizes.get("Cached", 0))
        yield "memory_total_bytes", total
        yield "memory_available_bytes", available
        yield "memory_used_percent", round((1 - available / total) * 100, 2)

    def _disk_space(self) -> Iterator[tuple[str, float]]:
        space = os.statvfs(self.settings.disk_path)
        total, free = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
        used = (space.f_blocks - space.f_bfree) * space.f_frsize
        yield "disk_total_bytes", total
        yield "disk_free_bytes", free
        if used + free > 0:
            # As df counts: what is reserved for root is neither used nor free.
            yield "disk_used_percent", round(used / (used + free) * 100, 2)

    def _uptime(self) -> Iterator[tuple[str, float]]:
        yield "uptime_s", float(_text(self.settings.proc_root / "uptime").split()[0])


def _cpu_temperature(path: Path) -> float:
    """Degrees Celsius.

    Raises:
        ValueError: no processor is as cold or as hot: a zone that is off gives -274, some drivers -128.
    """
    value = int(_text(path)) / 1000
    if not _CPU_RANGE_C[0] <= value <= _CPU_RANGE_C[1]:
        raise ValueError(f"{path} gives {value:g} °C")
    return value


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip()
