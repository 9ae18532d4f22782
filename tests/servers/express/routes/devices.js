// Devices, commands, sensor data
const crypto = require('crypto');
const express = require('express');

module.exports = (store) => {
  const router = express.Router();

  router.get('/devices', (req, res) => {
    res.json(store.devices.all());
  });

  router.get('/devices/:deviceId/commands', (req, res) => {
    if (!store.devices.get(req.params.deviceId)) {
      return res.status(404).json({ error: 'Device not found' });
    }
    const commands = store.commands.filter((c) => c.device_id === req.params.deviceId).reverse();
    res.json({ commands });
  });

  router.post('/commands/send', (req, res) => {
    const { device_id, command_payload } = req.body || {};
    if (!device_id || !command_payload || typeof command_payload !== 'object') {
      return res.status(400).json({
        error: 'Bad request',
        message: 'device_id and command_payload (object) are required',
      });
    }
    if (!store.devices.get(device_id)) {
      return res.status(404).json({ error: 'Device not found', message: `No device ${device_id}` });
    }
    const _id = crypto.randomBytes(12).toString('hex');
    store.commands.set(_id, {
      _id,
      device_id,
      command_payload,
      status: 'queued',
      created_at: Date.now(),
    });
    res.status(202).json({ message: 'Command queued', command_id: _id });
  });

  router.post('/sensor-data', (req, res) => {
    const { device_id, sensor_data } = req.body || {};
    if (!device_id || !sensor_data) {
      return res.status(400).json({ error: 'device_id and sensor_data are required' });
    }
    const _id = crypto.randomBytes(12).toString('hex');
    store.readings.set(_id, { _id, device_id, sensor_data, timestamp: Date.now() });
    const device = store.devices.get(device_id);
    if (device) {
      store.devices.set(device_id, { ...device, status: 'online', last_seen: new Date().toISOString() });
    }
    res.sendStatus(201);
  });

  router.get('/sensor-data', (req, res) => {
    const { device_id } = req.query;
    res.json(store.readings.filter((r) => !device_id || r.device_id === device_id));
  });

  return router;
};
