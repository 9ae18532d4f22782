const fs = require('fs');
const express = require('express');
const store = require('./store');
const seed = require('./seed');
const auth = require('./auth');
const oauth = require('./oauth');

const config = {
  port: Number(process.env.PORT || 0),
  apiKey: process.env.API_KEY,
  secretKey: process.env.SECRET_KEY,
  rateLimit: Number(process.env.RATE_LIMIT || 100),
  data: process.env.DATA,
  seed: process.env.SEED,
};

if (!config.apiKey || !config.secretKey) {
  console.error('API_KEY and SECRET_KEY must be set');
  process.exit(1);
}

store.open(config.data);
if (config.seed) seed(store, JSON.parse(fs.readFileSync(config.seed, 'utf8')));

const app = express();

// OAuth endpoints come first: they carry no key headers
app.use(oauth(store));

// keys before bodies: a stranger gets 401 whatever was sent
app.use(auth(config, store));
app.use(express.json());
app.use('/products', require('./routes/products')(store));
app.use(require('./routes/devices')(store));
app.use(require('./routes/database')(store));
app.use('/onboarding', require('./routes/onboarding')(store));
app.use(require('./routes/misc')(store));

// anything else: Express answers 404 by itself

app.use((err, req, res, next) => {
  if (res.headersSent) return next(err);
  const status = err.status || 500;
  if (status >= 500) console.error(err);
  res.status(status).json({ error: status >= 500 ? 'Internal server error' : err.message });
});

const server = app.listen(config.port, '127.0.0.1', (err) => {
  if (err) {
    console.error(err.message);
    process.exit(1);
  }
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});

function stop() {
  server.close(() => process.exit(0));
  server.closeIdleConnections();
  setTimeout(() => server.closeAllConnections(), 1000).unref();
}
process.on('SIGTERM', stop);
process.on('SIGINT', stop);
