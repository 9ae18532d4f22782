// Tables and runtime data (the schemas are under /products)
const crypto = require('crypto');
const express = require('express');

module.exports = (store) => {
  const router = express.Router();

  router.post('/database/tables', (req, res) => {
    const { schema_id, table_name, columns } = req.body || {};
    if (!schema_id || !table_name) {
      return res.status(422).json({ error: 'schema_id and table_name are required' });
    }
    const schema = store.schemas.get(schema_id);
    if (!schema) return res.status(404).json({ error: 'Schema not found' });
    const product_id = schema.product_id;
    if (store.tables.find((t) => t.product_id === product_id && t.table_name === table_name)) {
      return res.status(409).json({ error: 'Table already exists' });
    }
    const id = store.tables.nextId();
    const table = store.tables.set(id, { id, schema_id: schema.id, product_id, table_name, columns: columns || [] });
    res.status(201).json({ message: 'Table created', table });
  });

  router.post('/database/runtime-data', (req, res) => {
    const { product_id, device_id, table_name, data_payload } = req.body || {};
    if (!product_id || !device_id || !table_name || !data_payload) {
      return res.status(422).json({
        error: 'Missing fields',
        message: 'product_id, device_id, table_name and data_payload are required',
      });
    }
    if (!store.tables.find((t) => t.product_id === product_id && t.table_name === table_name)) {
      return res.status(404).json({ error: 'Table not found' });
    }
    const id = crypto.randomUUID();
    const now = new Date().toISOString();
    const record = { id, product_id, device_id, table_name, data_payload, created_at: now, updated_at: now };
    res.status(201).json(store.records.set(id, record));
  });

  router.get('/database/runtime-data', (req, res) => {
    const limit = Math.min(Math.max(parseInt(req.query.limit) || 20, 1), 100);
    const page = Math.max(parseInt(req.query.page) || 1, 1);
    const matching = store.records
      .filter((r) => ['product_id', 'device_id', 'table_name'].every((f) => !req.query[f] || req.query[f] === r[f]))
      .reverse(); // newest first
    res.json({
      data: matching.slice((page - 1) * limit, page * limit),
      pagination: { page, limit, total: matching.length, pages: Math.ceil(matching.length / limit) },
    });
  });

  router.put('/database/runtime-data/:id', (req, res) => {
    const record = store.records.get(req.params.id);
    if (!record) return res.status(404).json({ error: 'Record not found' });
    const { data_payload } = req.body || {};
    if (!data_payload) return res.status(422).json({ error: 'data_payload is required' });
    res.json(store.records.set(record.id, { ...record, data_payload, updated_at: new Date().toISOString() }));
  });

  router.delete('/database/runtime-data/:id', (req, res) => {
    if (!store.records.delete(req.params.id)) return res.status(404).json({ error: 'Record not found' });
    res.status(204).end();
  });

  return router;
};
