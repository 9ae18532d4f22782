from __future__ import annotations

import os

import pytest

from agent.sensors.base import SensorFailed
from agent.sensors.basic import FileSensor, ProgramSensor, SimulatedSensor
from agent.sensors.hwmon import HwmonSensor
from agent.sensors.one_wire import OneWireSensor
from agent.sensors.system import SystemSensor


def write(root, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


MACHINE = {
    "proc/loadavg": "0.52 0.58 0.59 1/389 12345\n",
    "proc/uptime": "35042.13 120000.00\n",
    "proc/meminfo": "MemTotal:  1000000 kB\nMemFree:  100000 kB\nMemAvailable:  250000 kB\nHugePages_Total: 0\n",
    "proc/stat": "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3\n",
    "sys/class/thermal/thermal_zone0/type": "acpitz\n",
    "sys/class/thermal/thermal_zone0/temp": "27800\n",
    "sys/class/thermal/thermal_zone1/type": "cpu-thermal\n",
    "sys/class/thermal/thermal_zone1/temp": "48312\n",
}


def system(root) -> SystemSensor:
    settings = {"proc_root": root / "proc", "sys_root": root / "sys", "disk_path": root}
    return SystemSensor(SystemSensor.Settings(**settings))


def test_system_reads_what_the_machine_tells_and_the_use_of_the_cpu_since_the_read_before(tmp_path):
    write(tmp_path, MACHINE)
    sensor = system(tmp_path)
    readings = sensor.read()
    space = os.statvfs(tmp_path)
    assert readings["disk_total_bytes"] == space.f_blocks * space.f_frsize
    assert 0 <= readings["disk_used_percent"] <= 100
    expected = {
        "cpu_temperature_c": 48.312,
        "load_1m": 0.52,
        "load_5m": 0.58,
        "load_15m": 0.59,
        "memory_total_bytes": 1_024_000_000,
        "memory_available_bytes": 256_000_000,
        "memory_used_percent": 75.0,
        "uptime_s": 35042.13,
    }
    assert {name: value for name, value in readings.items() if not name.startswith("disk_")} == expected
    write(tmp_path, {"proc/stat": "cpu  130 0 120 730 120 0 0 0 50 50\n"})
    assert sensor.read()["cpu_used_percent"] == 50.0


def test_system_leaves_out_what_is_damaged_or_not_there(tmp_path):
    damaged = {"proc/loadavg": "", "proc/meminfo": "MemTotal: none\n", "sys/class/thermal/thermal_zone1/temp": "hot\n"}
    write(tmp_path, {**MACHINE, **damaged})
    (tmp_path / "proc/uptime").unlink()
    assert set(system(tmp_path).read()) == {"disk_total_bytes", "disk_free_bytes", "disk_used_percent"}
    write(tmp_path, {"sys/class/hwmon/hwmon1/name": "k10temp\n", "sys/class/hwmon/hwmon1/temp1_input": "61000\n"})
    (tmp_path / "sys/class/thermal/thermal_zone1/type").write_text("other")
    assert system(tmp_path).read()["cpu_temperature_c"] == 61.0


def w1(milli_c: int, verdict: str = "YES") -> str:
    head = "72 01 4b 46 7f ff 0e 10 57"
    return f"{head} : crc=57 {verdict}\n{head} t={milli_c}\n"


def one_wire(root, **settings) -> OneWireSensor:
    return OneWireSensor(OneWireSensor.Settings(root=root, **settings))


def test_one_wire_reads_all_thermometers_of_the_bus(tmp_path):
    write(
        tmp_path,
        {"28-0316a2795dff/w1_slave": w1(23125), "28-aa/w1_slave": w1(-500), "w1_bus_master1/w1_master_slaves": "x"},
    )
    assert one_wire(tmp_path, names={"28-aa": "freezer_c"}).read() == {
        "temperature_28_0316a2795dff_c": 23.125,
        "freezer_c": -0.5,
    }
    gone = one_wire(tmp_path, names={"28-zz": "roof_c"}).read()["roof_c"]
    assert "28-zz could not be read" in str(gone)
    with pytest.raises(SensorFailed, match="enable the bus"):
        one_wire(tmp_path / "none").read()


@pytest.mark.parametrize(
    ("device", "text", "why"),
    [
        ("28-bb", w1(23125, "NO"), "28-bb answered with a wrong CRC"),
        ("28-bb", "", "wrong CRC"),
        ("28-bb", "crc=57 YES\nnothing\n", "answered no temperature"),
        ("28-bb", w1(127937), "answers 127.937 °C, which it cannot measure"),
        ("28-bb", w1(85000), "answers its power-on value 85 °C"),
        ("28-bb", f"{'00 ' * 9}: crc=00 YES\n{'00 ' * 9}t=0\n", "zeros alone: its data line is shorted"),
        ("3b-bb", w1(2047750), "which it cannot measure"),  # a MAX31850 without a thermocouple
    ],
)
def test_one_wire_says_why_one_thermometer_has_no_value_beside_the_others(tmp_path, device, text, why):
    write(tmp_path, {f"{device}/w1_slave": text, "28-cc/w1_slave": w1(0), "3b-cc/w1_slave": w1(517250)})
    readings = one_wire(tmp_path, names={device: "bad"}).read()
    assert why in str(readings.pop("bad"))
    assert readings == {"temperature_28_cc_c": 0.0, "temperature_3b_cc_c": 517.25}


def test_one_wire_takes_85_degrees_when_it_was_about_that_hot_before(tmp_path):
    sensor = one_wire(tmp_path, names={"28-aa": "temperature_c"})
    write(tmp_path, {"28-aa/w1_slave": w1(84500)})
    sensor.read()
    write(tmp_path, {"28-aa/w1_slave": w1(85000)})
    assert sensor.read() == {"temperature_c": 85.0}


def hwmon(root, **settings) -> HwmonSensor:
    return HwmonSensor(HwmonSensor.Settings(root=root, **settings))


def test_hwmon_reads_every_input_in_its_unit_under_a_name_of_its_own(tmp_path):
    write(
        tmp_path,
        {
            "hwmon0/name": "coretemp\n",
            "hwmon0/temp1_input": "45000\n",
            "hwmon0/temp1_label": "Package id 0\n",
            "hwmon0/temp1_max": "80000\n",
            "hwmon1/name": "board\n",
            "hwmon1/fan1_input": "1200\n",
            "hwmon1/in0_input": "3312\n",
            "hwmon1/curr1_input": "250\n",
            "hwmon1/power1_input": "12500000\n",
            "hwmon1/power1_average": "4000000\n",
            "hwmon1/humidity1_input": "45500\n",
            **{f"hwmon1/temp{number}_input": f"{number}000\n" for number in (1, 2)},
            **{f"hwmon1/temp{number}_label": "Temp\n" for number in (1, 2)},
        },
    )
    board = {
        "board_fan1_rpm": 1200.0,
        "board_in0_v": 3.312,
        "board_curr1_a": 0.25,
        "board_power1_w": 12.5,
        "board_humidity1_percent": 45.5,
        "board_temp_temp1_c": 1.0,
        "board_temp_temp2_c": 2.0,
    }
    assert hwmon(tmp_path).read() == {"coretemp_package_id_0_c": 45.0, **board}
    assert hwmon(tmp_path, chips=["board"]).read() == board
    with pytest.raises(SensorFailed, match="no input of a hardware-monitoring chip of c below"):
        hwmon(tmp_path, chips=["c"]).read()


def test_hwmon_tells_two_chips_of_one_name_apart_by_their_device(tmp_path):
    for number in (0, 1):
        write(tmp_path, {f"class/hwmon{number}/name": "nvme\n", f"class/hwmon{number}/temp1_input": f"{number}000\n"})
        (tmp_path / f"nvme{number}").mkdir()
        (tmp_path / f"class/hwmon{number}/device").symlink_to(tmp_path / f"nvme{number}")
    assert hwmon(tmp_path / "class").read() == {"nvme_nvme0_temp1_c": 0.0, "nvme_nvme1_temp1_c": 1.0}


@pytest.mark.parametrize(
    ("raw", "why"), [("-128000", "no chip measures"), ("3900000000", "no chip measures"), ("", "does not answer")]
)
def test_what_no_chip_measures_is_no_reading(tmp_path, raw, why):
    write(tmp_path, {"hwmon0/name": "b\n", "hwmon0/temp1_input": raw, "hwmon0/temp2_input": "517000"})
    write(tmp_path, {"hwmon0/temp3_input": "1", "hwmon0/temp3_fault": "1"})
    readings = hwmon(tmp_path).read()
    assert readings["b_temp2_c"] == 517.0
    assert why in str(readings["b_temp1_c"])
    assert "faulty" in str(readings["b_temp3_c"])
    write(tmp_path, {"sys/class/thermal/thermal_zone0/type": "cpu", "sys/class/thermal/thermal_zone0/temp": raw})
    assert "cpu_temperature_c" not in system(tmp_path).read()


def file_sensor(path, **settings) -> FileSensor:
    return FileSensor(FileSensor.Settings(path=path, reading="boiler_c", **settings))


@pytest.mark.parametrize(
    ("text", "value"),
    [("23.5\n", 23.5), ("+.5", 0.5), ("1e3", 1000.0), ("-4 °C\n", -4.0), ("42%", 42.0), ("7.\n", 7.0)],
)
def test_file_takes_a_number_with_or_without_its_unit(tmp_path, text, value):
    write(tmp_path, {"value": text})
    assert file_sensor(tmp_path / "value", scale=2, offset=1).read() == {"boiler_c": 2 * value + 1}
    with pytest.raises(SensorFailed, match="which is not from 2000 to 3000"):
        file_sensor(tmp_path / "value", least=2000, most=3000).read()


@pytest.mark.parametrize("text", ["", "hot", "nan", "inf", "1 2", "1,5", "12.5.1", "1 C 2 C", "\x00"])
def test_file_refuses_what_is_not_one_number(tmp_path, text):
    write(tmp_path, {"value": text})
    with pytest.raises(SensorFailed, match=r"holds .*, not one number"):
        file_sensor(tmp_path / "value").read()


def test_file_does_not_read_a_large_file_into_memory(tmp_path):
    with (tmp_path / "big").open("wb") as file:
        file.truncate(10**10)
    with pytest.raises(SensorFailed, match="not one number"):
        file_sensor(tmp_path / "big").read()
    (tmp_path / "big").unlink()  # every file that a test leaves behind is searched for secrets, hole by hole


def program(script: str) -> ProgramSensor:
    return ProgramSensor(ProgramSensor.Settings(argv=("/bin/sh", "-c", script)))


def test_program_reads_a_json_object_of_numbers_and_leaves_out_null():
    assert program('echo \'{"a": 1.5, "b": null}\'; echo noise >&2').read() == {"a": 1.5}


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo bad bus >&2; exit 2", "failed, exit code 2; stderr ended with: bad bus"),
        ("echo '[1]'", "did not print one JSON object"),
        ("true", "did not print one JSON object"),
        ("head -c 100000000 /dev/zero", "printed more than 65536 bytes"),
    ],
)
def test_program_says_why_there_are_no_readings(script, why):
    with pytest.raises(SensorFailed, match=why):
        program(script).read()


def test_program_that_is_missing_is_found_at_the_start_and_one_that_runs_ends_with_the_agent():
    with pytest.raises(Exception, match="/no/such is not there.*: install it"):
        ProgramSensor(ProgramSensor.Settings(argv=("/no/such",))).check()
    sensor = program("sleep 60")
    sensor.interrupt()
    with pytest.raises(SensorFailed, match="it had to stop"):
        sensor.read()


def test_a_random_walk_stays_within_its_bounds_and_never_stands_still():
    settings = SimulatedSensor.Settings(shape="random_walk", mean=20.0, amplitude=0.5)
    sensor = SimulatedSensor(settings)
    values = [sensor.read()["simulated"] for _ in range(5_000)]
    assert 19.5 <= min(values) < max(values) <= 20.5
    assert len(set(values)) == len(values)
