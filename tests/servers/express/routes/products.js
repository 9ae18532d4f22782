const crypto = require('crypto');
const express = require('express');

module.exports = (store) => {
  const router = express.Router();

  // every /products/{productId}... needs a product of the caller
  router.param('productId', (req, res, next, id) => {
    const product = store.products.get(id);
    if (!product || product.manufacturerId !== req.account) {
      return res.status(404).json({ error: 'Product not found' });
    }
    req.product = product;
    next();
  });

  router.get('/', (req, res) => {
    const products = store.products.filter((p) => p.manufacturerId === req.account);
    res.json({ success: true, count: products.length, data: products });
  });

  router.post('/', (req, res) => {
    const body = req.body || {};
    if (!body.name) {
      return res.status(400).json({ error: 'Validation failed', message: 'name is required' });
    }
    const productId = 'prod_' + crypto.randomBytes(6).toString('hex');
    const now = new Date().toISOString();
    const product = store.products.set(productId, {
      ...body,
      productId,
      manufacturerId: req.account,
      createdAt: now,
      updatedAt: now,
    });
    res.status(201).json({ success: true, data: product });
  });

  router.put('/:productId', (req, res) => {
    const { productId, manufacturerId, createdAt } = req.product;
    const product = store.products.set(productId, {
      ...req.product,
      ...req.body,
      productId,
      manufacturerId,
      createdAt,
      updatedAt: new Date().toISOString(),
    });
    res.json({ success: true, data: product });
  });

  router.delete('/:productId', (req, res) => {
    store.products.delete(req.product.productId);
    store.dashboards.delete(req.product.productId);
    res.json({ success: true, message: 'Product deleted' });
  });

  router.get('/:productId/commands', (req, res) => {
    res.json({ success: true, data: req.product.commands || [] });
  });

  router.get('/:productId/dashboard', (req, res) => {
    res.json(store.dashboards.get(req.product.productId) || { widgets: [] });
  });

  router.put('/:productId/dashboard', (req, res) => {
    store.dashboards.set(req.product.productId, req.body || {});
    res.json({ success: true });
  });

  router.get('/:productId/database/schemas', (req, res) => {
    res.json({ schemas: store.schemas.filter((s) => s.product_id === req.product.productId) });
  });

  router.post('/:productId/database/schemas', (req, res) => {
    const body = req.body || {};
    if (!body.name) return res.status(422).json({ error: 'Schema name is required' });
    const id = store.schemas.nextId();
    const schema = store.schemas.set(id, {
      ...body,
      id,
      product_id: req.product.productId,
      created_at: new Date().toISOString(),
    });
    res.status(201).json(schema);
  });

  return router;
};
