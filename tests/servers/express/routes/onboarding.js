const crypto = require('crypto');
const express = require('express');

// {"product_id": "...", "device_identifier": "..."} or https://.../?p=...&d=...
function parseQr(text) {
  try {
    const { product_id, device_identifier } = JSON.parse(text);
    return { product_id, device_identifier };
  } catch (e) {
    // not JSON, go on
  }
  try {
    const { searchParams } = new URL(text);
    return { product_id: searchParams.get('p'), device_identifier: searchParams.get('d') };
  } catch (e) {
    return {};
  }
}

module.exports = (store) => {
  const router = express.Router();

  router.post('/scan-qr', (req, res) => {
    const { qr_data } = req.body || {};
    if (typeof qr_data !== 'string' || !qr_data) {
      return res.status(400).json({ error: 'qr_data is required' });
    }
    const { product_id, device_identifier } = parseQr(qr_data);
    if (!product_id || !device_identifier) {
      return res.status(400).json({ error: 'Invalid QR code', message: 'No product or device in the QR code' });
    }
    const product = store.products.get(product_id);
    if (!product) return res.status(404).json({ error: 'Product not found' });
    res.json({
      success: true,
      product: {
        product_id,
        name: product.name,
        category: product.category,
        model: product.model,
        description: product.description,
      },
      device_identifier,
    });
  });

  router.post('/device', (req, res) => {
    const { user_id, product_id, device_name, device_identifier, qr_info } = req.body || {};
    const missing = Object.entries({ user_id, product_id, device_name, device_identifier })
      .filter(([, v]) => !v)
      .map(([k]) => k);
    if (missing.length) {
      return res.status(400).json({ error: 'Missing required fields', message: missing.join(', ') });
    }
    const product = store.products.get(product_id);
    if (!product) return res.status(404).json({ error: 'Product not found' });

    let device = store.devices.find((d) => d.product_id === product_id && d.device_identifier === device_identifier);
    if (device && device.user_id) {
      return res.status(409).json({ error: 'Device already registered' });
    }
    // users sign up elsewhere, so an id we have not seen yet is taken as it comes
    if (!store.users.get(user_id)) store.users.set(user_id, { id: user_id, role: 'user' });

    const device_id = device ? device.device_id : 'dev_' + crypto.randomBytes(6).toString('hex');
    device = store.devices.set(device_id, {
      status: 'offline',
      last_seen: null,
      ...device,
      device_id,
      product_id,
      user_id,
      device_name,
      device_identifier,
      qr_info: qr_info || {},
      registered_at: new Date().toISOString(),
    });
    res.status(201).json({ success: true, message: 'Device registered successfully', device });
  });

  router.get('/user/:userId/devices', (req, res) => {
    if (!store.users.get(req.params.userId)) return res.status(404).json({ error: 'User not found' });
    const devices = store.devices.filter((d) => d.user_id === req.params.userId);
    res.json({ devices, total: devices.length });
  });

  router.delete('/device/:deviceId', (req, res) => {
    if (!store.devices.delete(req.params.deviceId)) {
      return res.status(404).json({ error: 'Device not found' });
    }
    res.sendStatus(200);
  });

  return router;
};
