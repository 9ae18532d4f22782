// Key pair, or a bearer token for everything under /products.
module.exports = (config, store) => {
  const windows = new Map(); // api key -> { minute, count }

  function overLimit(key) {
    const minute = Math.floor(Date.now() / 60000);
    let w = windows.get(key);
    if (!w || w.minute !== minute) {
      w = { minute, count: 0 };
      windows.set(key, w);
    }
    w.count += 1;
    return w.count > config.rateLimit;
  }

  return (req, res, next) => {
    const apiKey = req.get('x-api-key');
    const secretKey = req.get('x-secret-key');
    const bearer = /^Bearer (.+)$/i.exec(req.get('authorization') || '');

    if (bearer && !apiKey && !secretKey && /^\/products(\/|$)/.test(req.path)) {
      const token = store.tokens.get(bearer[1]);
      if (!token || token.type !== 'access' || token.expires_at < Date.now()) {
        return res.status(401).json({ error: 'Invalid or expired token' });
      }
      if (!token.scope.split(' ').includes('manufacturer:products')) {
        return res.status(403).json({ error: 'Forbidden', message: 'Scope manufacturer:products is required' });
      }
      req.account = store.users.get(token.user_id).account_id;
      return next();
    }

    if (!apiKey || !secretKey) {
      return res.status(401).json({
        error: 'Missing credentials',
        message: 'Both x-api-key and x-secret-key headers are required',
      });
    }
    if (apiKey !== config.apiKey || secretKey !== config.secretKey) {
      return res.status(401).json({ error: 'Invalid API credentials' });
    }
    if (overLimit(apiKey)) {
      return res.status(429).json({
        error: 'Rate limit exceeded',
        message: `Maximum ${config.rateLimit} requests per minute`,
      });
    }
    req.account = 'default';
    next();
  };
};
