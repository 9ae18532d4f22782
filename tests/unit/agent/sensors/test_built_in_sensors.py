from __future__ import annotations

import os
import threading

import pytest

from agent.sensors.base import SensorFailed
from agent.sensors.file import FileSensor
from agent.sensors.hwmon import HwmonSensor
from agent.sensors.one_wire import OneWireSensor
from agent.sensors.program import ProgramSensor
from agent.sensors.simulated import SimulatedSensor
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


def system(root, **settings) -> SystemSensor:
    return SystemSensor(
        SystemSensor.Settings(proc_root=root / "proc", sys_root=root / "sys", disk_path=root, **settings)
    )


def test_system_reads_what_the_machine_tells(tmp_path):
    write(tmp_path, MACHINE)
    readings = system(tmp_path).read()
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


def test_system_tells_the_use_of_the_cpu_since_the_read_before(tmp_path):
    write(tmp_path, MACHINE)
    sensor = system(tmp_path)
    assert "cpu_used_percent" not in sensor.read()
    write(tmp_path, {"proc/stat": "cpu  130 0 120 730 120 0 0 0 50 50\n"})
    assert sensor.read()["cpu_used_percent"] == 50.0


def test_system_leaves_out_what_is_damaged(tmp_path):
    write(
        tmp_path,
        MACHINE
        | {"proc/loadavg": "", "proc/meminfo": "MemTotal: none\n", "sys/class/thermal/thermal_zone1/temp": "hot\n"},
    )
    readings = system(tmp_path).read()
    assert not {"load_1m", "memory_total_bytes", "cpu_temperature_c"} & set(readings)
    assert readings["uptime_s"] == 35042.13


def test_system_takes_the_cpus_chip_where_there_is_no_thermal_zone(tmp_path):
    write(
        tmp_path,
        {
            "proc/uptime": "1 1",
            "sys/class/hwmon/hwmon0/name": "nvme\n",
            "sys/class/hwmon/hwmon0/temp1_input": "30000\n",
            "sys/class/hwmon/hwmon1/name": "k10temp\n",
            "sys/class/hwmon/hwmon1/temp1_input": "61000\n",
        },
    )
    assert system(tmp_path).read()["cpu_temperature_c"] == 61.0


def test_system_fails_when_there_is_nothing_at_all(tmp_path):
    sensor = SystemSensor(
        SystemSensor.Settings(proc_root=tmp_path / "p", sys_root=tmp_path / "s", disk_path=tmp_path / "d")
    )
    with pytest.raises(SensorFailed, match="nothing could be read below"):
        sensor.read()


def w1(milli_c: int, verdict: str = "YES") -> str:
    head = "72 01 4b 46 7f ff 0e 10 57"
    return f"{head} : crc=57 {verdict}\n{head} t={milli_c}\n"


def one_wire(root, **settings) -> OneWireSensor:
    return OneWireSensor(OneWireSensor.Settings(root=root, **settings))


def test_one_wire_reads_all_thermometers_of_the_bus(tmp_path):
    write(
        tmp_path,
        {"28-0316a2795dff/w1_slave": w1(23125), "28-aa/temperature": "-500\n", "w1_bus_master1/w1_master_slaves": "x"},
    )
    assert one_wire(tmp_path, names={"28-aa": "freezer_c"}).read() == {
        "temperature_28_0316a2795dff_c": 23.125,
        "freezer_c": -0.5,
    }


def test_one_wire_calls_the_one_thermometer_that_is_named_just_temperature(tmp_path):
    write(tmp_path, {"28-aa/w1_slave": w1(23125), "28-bb/w1_slave": w1(9000)})
    assert one_wire(tmp_path, device="28-aa").read() == {"temperature_c": 23.125}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (w1(23125, "NO"), "28-aa answered with a wrong CRC"),
        ("", "wrong CRC"),
        ("crc=57 YES\nnothing\n", "answered no temperature"),
        (w1(127937), "answers 127.937 °C, which it cannot measure"),
        (w1(85000), "answers its power-on value 85 °C"),
        (f"{'00 ' * 9}: crc=00 YES\n{'00 ' * 9}t=0\n", "zeros alone: its data line is shorted"),
    ],
)
def test_one_wire_refuses_what_is_no_measurement(tmp_path, text, why):
    write(tmp_path, {"28-aa/w1_slave": text})
    assert why in str(one_wire(tmp_path, names={"28-aa": "x"}).read()["x"])


def test_each_one_wire_family_has_its_own_range(tmp_path):
    write(tmp_path, {"3b-aa/w1_slave": w1(517250), "28-bb/w1_slave": w1(0)})
    assert one_wire(tmp_path).read() == {"temperature_3b_aa_c": 517.25, "temperature_28_bb_c": 0.0}
    write(tmp_path, {"3b-aa/w1_slave": w1(2047750)})  # what a MAX31850 answers without a thermocouple
    assert "which it cannot measure" in str(one_wire(tmp_path, device="3b-aa").read()["temperature_c"])
    with pytest.raises(ValueError, match="one name"):
        one_wire(tmp_path, names={"3b-aa": "oven_c", "28-bb": "oven_c"})


def test_one_wire_takes_85_degrees_when_it_was_about_that_hot_before(tmp_path):
    sensor = one_wire(tmp_path, device="28-aa")
    write(tmp_path, {"28-aa/w1_slave": w1(84500)})
    sensor.read()
    write(tmp_path, {"28-aa/w1_slave": w1(85000)})
    assert sensor.read() == {"temperature_c": 85.0}


def test_one_wire_says_which_thermometer_is_broken_beside_the_others(tmp_path):
    write(tmp_path, {"28-aa/w1_slave": w1(23125), "28-bb/w1_slave": w1(9000, "NO")})
    readings = one_wire(tmp_path).read()
    assert readings["temperature_28_aa_c"] == 23.125
    assert "28-bb answered with a wrong CRC" in str(readings["temperature_28_bb_c"])


def test_one_wire_without_a_bus_or_device_names_the_fix(tmp_path):
    with pytest.raises(SensorFailed, match="enable the bus"):
        one_wire(tmp_path / "none").read()
    with pytest.raises(SensorFailed, match="no device 28-zz"):
        one_wire(tmp_path, device="28-zz").read()


def test_a_device_id_cannot_leave_the_bus():
    with pytest.raises(ValueError, match="device"):
        OneWireSensor.Settings(device="../../../etc")


def hwmon(root, **settings) -> HwmonSensor:
    return HwmonSensor(HwmonSensor.Settings(root=root, **settings))


def test_hwmon_reads_every_input_in_its_unit(tmp_path):
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
            "hwmon1/power1_average": "12500000\n",
            "hwmon1/humidity1_input": "45500\n",
        },
    )
    assert hwmon(tmp_path).read() == {
        "coretemp_package_id_0_c": 45.0,
        "board_fan1_rpm": 1200.0,
        "board_in0_v": 3.312,
        "board_curr1_a": 0.25,
        "board_power1_w": 12.5,
        "board_humidity1_percent": 45.5,
    }


def test_hwmon_tells_two_chips_of_one_name_apart_by_their_device(tmp_path):
    for number in (0, 1):
        write(tmp_path, {f"class/hwmon{number}/name": "nvme\n", f"class/hwmon{number}/temp1_input": f"{number}000\n"})
        (tmp_path / f"nvme{number}").mkdir()
        (tmp_path / f"class/hwmon{number}/device").symlink_to(tmp_path / f"nvme{number}")
    assert hwmon(tmp_path / "class").read() == {"nvme_nvme0_temp1_c": 0.0, "nvme_nvme1_temp1_c": 1.0}


def test_hwmon_reads_only_the_chips_that_are_named(tmp_path):
    write(
        tmp_path, {"hwmon0/name": "a", "hwmon0/temp1_input": "1000", "hwmon1/name": "b", "hwmon1/temp1_input": "2000"}
    )
    assert hwmon(tmp_path, chips=["b"]).read() == {"b_temp1_c": 2.0}
    with pytest.raises(SensorFailed, match="no input of a hardware-monitoring chip of c below"):
        hwmon(tmp_path, chips=["c"]).read()


def file_sensor(path, **settings) -> FileSensor:
    return FileSensor(FileSensor.Settings(path=path, reading="boiler_c", **settings))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("23.5\n", 23.5),
        ("-4", -4.0),
        ("+.5", 0.5),
        ("1e3", 1000.0),
        ("23.5 °C\n", 23.5),
        ("42%", 42.0),
        ("1024 kB", 1024.0),
        ("7.\n", 7.0),
        ("3m/s", 3.0),
    ],
)
def test_file_takes_a_number_with_or_without_its_unit(tmp_path, text, value):
    write(tmp_path, {"value": text})
    assert file_sensor(tmp_path / "value").read() == {"boiler_c": value}


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


def program(script: str, **settings) -> ProgramSensor:
    return ProgramSensor(ProgramSensor.Settings(argv=("/bin/sh", "-c", script), **settings))


def test_program_reads_a_json_object_of_numbers_and_leaves_out_null():
    assert program('echo \'{"a": 1.5, "b": null}\'; echo noise >&2').read() == {"a": 1.5}


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo bad bus >&2; exit 2", "failed, exit code 2; stderr ended with: bad bus"),
        ("echo hello", "did not print one JSON object"),
        ("echo '[1]'", "did not print one JSON object"),
        ("printf '\\377'", "did not print one JSON object"),
        ("true", "did not print one JSON object"),
        ("head -c 100000000 /dev/zero", "printed more than 65536 bytes"),
    ],
)
def test_program_says_why_there_are_no_readings(script, why):
    with pytest.raises(SensorFailed, match=why):
        program(script).read()


def test_program_is_ended_when_the_agent_stops():
    sensor = program("sleep 60")
    threading.Timer(0.1, sensor.interrupt).start()
    with pytest.raises(SensorFailed, match="it had to stop"):
        sensor.read()


def test_program_that_is_missing_is_found_at_the_start_and_at_the_read():
    sensor = ProgramSensor(ProgramSensor.Settings(argv=("/no/such",)))
    with pytest.raises(Exception, match="/no/such is not there.*: install it"):
        sensor.check()
    with pytest.raises(SensorFailed, match="/no/such is not there.*: install it"):
        sensor.read()


def test_simulated_stays_within_its_bounds_and_moves():
    for shape in ("sine", "random_walk"):
        settings = SimulatedSensor.Settings(shape=shape, mean=10, amplitude=1, period_s=0.001, reading="x")
        sensor = SimulatedSensor(settings)
        values = {sensor.read()["x"] for _ in range(200)}
        assert all(9 <= value <= 11 for value in values)
        assert len(values) > 50


def test_hwmon_gives_inputs_of_one_label_names_of_their_own(tmp_path):
    files = {
        "hwmon0/name": "board\n",
        **{f"hwmon0/temp{number}_input": f"{number}000\n" for number in (1, 2, 10)},
        **{f"hwmon0/temp{number}_label": "Temp\n" for number in (1, 2)},
        "hwmon0/temp10_label": "temp!\n",
        "hwmon0/power1_input": "5000000\n",
        "hwmon0/power1_average": "4000000\n",
    }
    write(tmp_path, files)
    assert hwmon(tmp_path).read() == {
        "board_temp_temp1_c": 1.0,
        "board_temp_temp2_c": 2.0,
        "board_temp_temp10_c": 10.0,
        "board_power1_w": 5.0,
    }
    write(tmp_path, {"hwmon0/temp1_input": "", "hwmon0/temp2_fault": "1"})
    readings = hwmon(tmp_path).read()
    assert str(readings["board_temp_temp1_c"]) == "it does not answer"
    assert str(readings["board_temp_temp2_c"]) == "its chip marks it as faulty"


@pytest.mark.parametrize("raw", ["-128000", "3900000000", "-650789000"])
def test_what_no_chip_measures_is_no_reading(tmp_path, raw):
    write(tmp_path, {"hwmon0/name": "b\n", "hwmon0/temp1_input": raw, "hwmon0/temp2_input": "517000"})
    readings = hwmon(tmp_path).read()
    assert readings["b_temp2_c"] == 517.0
    assert "which no chip measures" in str(readings["b_temp1_c"])
    write(tmp_path, {"sys/class/thermal/thermal_zone0/type": "cpu", "sys/class/thermal/thermal_zone0/temp": raw})
    machine = SystemSensor(SystemSensor.Settings(proc_root=tmp_path, sys_root=tmp_path / "sys"))
    assert "cpu_temperature_c" not in machine.read()
    path = tmp_path / "hwmon0/temp1_input"
    with pytest.raises(SensorFailed, match="which is not from -40 to 85"):
        FileSensor(FileSensor.Settings(path=path, reading="x_c", scale=0.001, least=-40, most=85)).read()
