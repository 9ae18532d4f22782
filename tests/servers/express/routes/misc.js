// Rules, analytics, authentication: the little that is known of them
const crypto = require('crypto');
const express = require('express');
const { checkPassword } = require('../passwords');

module.exports = (store) => {
  const router = express.Router();

  router.get('/rules', (req, res) => {
    res.json({ rules: store.rules.all() });
  });

  router.get('/analytics/devices', (req, res) => {
    const devices = store.devices.all();
    const online = devices.filter((d) => d.status === 'online').length;
    res.json({
      totalDevices: devices.length,
      onlineDevices: online,
      offlineDevices: devices.length - online,
      totalReadings: store.readings.all().length,
      generatedAt: new Date().toISOString(),
    });
  });

  router.post('/auth/signin', (req, res) => {
    const { email, password } = req.body || {};
    if (!email || !password) return res.status(400).json({ error: 'email and password are required' });
    const user = store.users.find((u) => u.email === email);
    if (!user || !checkPassword(password, user.password)) {
      return res.status(401).json({ error: 'Invalid email or password' });
    }
    // TODO: nothing takes this token yet
    res.json({
      token: crypto.randomBytes(24).toString('hex'),
      user: { id: user.id, email: user.email, role: user.role },
    });
  });

  return router;
};
