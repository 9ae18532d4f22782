const crypto = require('crypto');
const express = require('express');
const { checkPassword } = require('./passwords');

const CODE_LIFETIME = 5 * 60 * 1000;
const TOKEN_LIFETIME = 3600; // seconds

const random = () => crypto.randomBytes(32).toString('base64url');
const escape = (s) => String(s).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

const FIELDS = [
  'client_id', 'redirect_uri', 'scope', 'response_type', 'state',
  'code_challenge', 'code_challenge_method',
];

module.exports = (store) => {
  const router = express.Router();
  const form = express.urlencoded({ extended: false });
  const codes = new Map(); // not written to DATA, they live five minutes

  // Returns [error, message] or nothing
  function checkRequest(q) {
    for (const f of FIELDS) {
      if (q[f] !== undefined && typeof q[f] !== 'string') return ['invalid_request', `${f} given twice`];
    }
    const client = q.client_id && store.clients.get(q.client_id);
    if (!client) return ['invalid_client', 'Unknown client_id'];
    if (!client.redirect_uris.includes(q.redirect_uri)) {
      return ['invalid_request', 'redirect_uri does not match a registered redirect URI'];
    }
    if (q.response_type !== 'code') return ['unsupported_response_type', 'response_type must be code'];
    const scopes = (q.scope || '').split(' ').filter(Boolean);
    if (!scopes.length) return ['invalid_scope', 'scope is required'];
    const bad = scopes.find((s) => !client.scopes.includes(s));
    if (bad) return ['invalid_scope', `Scope ${bad} is not allowed for this client`];
    if (!client.client_secret && !q.code_challenge) return ['invalid_request', 'code_challenge is required'];
    if (q.code_challenge && q.code_challenge_method !== 'S256') {
      return ['invalid_request', 'code_challenge_method must be S256'];
    }
  }

  function page(q, note = '') {
    const client = store.clients.get(q.client_id);
    const hidden = FIELDS.filter((f) => q[f] !== undefined)
      .map((f) => `<input type="hidden" name="${f}" value="${escape(q[f])}">`)
      .join('\n');
    return `<!DOCTYPE html>
<html><head><title>Sign in</title></head><body>
<h1>${escape(client.name || client.client_id)} wants to access your account</h1>
<p>Requested: ${escape(q.scope)}</p>
${note && `<p class="error">${escape(note)}</p>`}
<form method="post" action="/partner-oauth-authorize">
${hidden}
<label>Email <input type="email" name="email"></label>
<label>Password <input type="password" name="password"></label>
<button type="submit" name="decision" value="approve">Approve</button>
<button type="submit" name="decision" value="deny">Deny</button>
</form>
</body></html>`;
  }

  function back(res, q, params) {
    const url = new URL(q.redirect_uri);
    for (const [k, v] of Object.entries(params)) url.searchParams.set(k, v);
    if (q.state !== undefined) url.searchParams.set('state', q.state);
    res.redirect(url.toString());
  }

  router.get('/partner-oauth-authorize', (req, res) => {
    const bad = checkRequest(req.query);
    if (bad) return res.status(400).json({ error: bad[0], message: bad[1] });
    res.send(page(req.query));
  });

  router.post('/partner-oauth-authorize', form, (req, res) => {
    const q = req.body || {};
    const bad = checkRequest(q);
    if (bad) return res.status(400).json({ error: bad[0], message: bad[1] });
    if (q.decision === 'deny') return back(res, q, { error: 'access_denied' });

    let user = store.users.find((u) => u.email === q.email);
    if (!user || !checkPassword(q.password, user.password)) {
      return res.status(401).send(page(q, 'Wrong email or password'));
    }
    // first approval of a manufacturer:* scope makes the user a manufacturer
    if (/(^| )manufacturer:/.test(q.scope) && (user.role !== 'manufacturer' || !user.account_id)) {
      user = store.users.set(user.id, {
        ...user,
        role: 'manufacturer',
        account_id: user.account_id || 'mfr_' + crypto.randomBytes(6).toString('hex'),
      });
    }
    const code = random();
    codes.set(code, {
      client_id: q.client_id,
      redirect_uri: q.redirect_uri,
      scope: q.scope,
      code_challenge: q.code_challenge,
      user_id: user.id,
      expires_at: Date.now() + CODE_LIFETIME,
    });
    back(res, q, { code });
  });

  function issue(res, { client_id, user_id, scope }) {
    const access = random();
    const refresh = random();
    store.tokens.set(access, {
      type: 'access', client_id, user_id, scope, expires_at: Date.now() + TOKEN_LIFETIME * 1000,
    });
    store.tokens.set(refresh, { type: 'refresh', client_id, user_id, scope, access });
    res.set('Cache-Control', 'no-store').json({
      access_token: access,
      token_type: 'Bearer',
      expires_in: TOKEN_LIFETIME,
      refresh_token: refresh,
      scope,
    });
  }

  router.post('/functions/v1/partner-oauth-token', express.json(), form, (req, res) => {
    const b = req.body || {};
    const fail = (error, message, status = 400) => res.status(status).json({ error, message });

    const client = b.client_id && store.clients.get(b.client_id);
    if (!client) return fail('invalid_client', 'Unknown client_id', 401);
    if (client.client_secret && client.client_secret !== b.client_secret) {
      return fail('invalid_client', 'Wrong client_secret', 401);
    }

    if (b.grant_type === 'authorization_code') {
      const grant = codes.get(b.code);
      if (!grant || grant.client_id !== client.client_id) return fail('invalid_grant', 'Invalid code');
      codes.delete(b.code); // one try only
      if (grant.expires_at < Date.now()) return fail('invalid_grant', 'Code has expired');
      if (grant.redirect_uri !== b.redirect_uri) return fail('invalid_grant', 'redirect_uri mismatch');
      if (grant.code_challenge) {
        const hash = crypto.createHash('sha256').update(String(b.code_verifier || '')).digest('base64url');
        if (hash !== grant.code_challenge) return fail('invalid_grant', 'code_verifier mismatch');
      }
      return issue(res, grant);
    }

    if (b.grant_type === 'refresh_token') {
      const old = store.tokens.get(b.refresh_token);
      if (!old || old.type !== 'refresh' || old.client_id !== client.client_id) {
        return fail('invalid_grant', 'Invalid refresh token');
      }
      store.tokens.delete(old.access);
      store.tokens.delete(b.refresh_token);
      return issue(res, old);
    }

    fail('unsupported_grant_type', 'grant_type must be authorization_code or refresh_token');
  });

  return router;
};
