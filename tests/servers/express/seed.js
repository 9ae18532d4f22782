// Puts the contents of the SEED file into the store. What is there already
// (from DATA) is left as it is.
const { hashPassword } = require('./passwords');

module.exports = (store, data) => {
  const add = (collection, id, value) => {
    if (!id) throw new Error(`SEED: a ${collection} entry has no id`);
    if (!store[collection].get(id)) store[collection].set(id, value);
  };
  const now = new Date().toISOString();

  for (const { dashboard, ...p } of data.products || []) {
    add('products', p.productId, { manufacturerId: 'default', createdAt: now, updatedAt: now, ...p });
    if (dashboard) add('dashboards', p.productId, dashboard);
  }
  for (const d of data.devices || []) {
    add('devices', d.device_id, {
      device_name: d.device_id,
      device_identifier: d.device_id,
      user_id: null,
      status: 'offline',
      last_seen: null,
      registered_at: now,
      ...d,
    });
  }
  for (const { password, ...u } of data.users || []) {
    add('users', u.id, { role: 'user', ...u, password: password ? hashPassword(password) : null });
  }
  for (const c of data.clients || []) add('clients', c.client_id, c);
  for (const r of data.rules || []) add('rules', r.id, r);
};
