// Everything lives in Maps. With DATA set, every change is also appended to a
// JSON-lines file, which is replayed at the start.
const fs = require('fs');

const names = [
  'products', 'dashboards', 'devices', 'commands', 'readings', 'schemas', 'tables',
  'records', 'users', 'clients', 'tokens', 'rules',
];
let file = null;

const store = {};

class Collection {
  constructor(name) {
    this.name = name;
    this.map = new Map();
  }

  get(id) {
    return this.map.get(String(id));
  }

  all() {
    return [...this.map.values()];
  }

  filter(fn) {
    return this.all().filter(fn);
  }

  find(fn) {
    return this.all().find(fn);
  }

  set(id, value) {
    this.map.set(String(id), value);
    append({ c: this.name, id: String(id), v: value });
    return value;
  }

  delete(id) {
    const existed = this.map.delete(String(id));
    if (existed) append({ c: this.name, id: String(id) });
    return existed;
  }

  // 1, 2, 3 ... ids
  nextId() {
    return this.all().reduce((max, v) => Math.max(max, Number(v.id)), 0) + 1;
  }
}

for (const name of names) store[name] = new Collection(name);

function append(entry) {
  if (file) fs.appendFileSync(file, JSON.stringify(entry) + '\n', { mode: 0o600 });
}

store.open = (path) => {
  if (!path) return;
  if (fs.existsSync(path)) {
    const text = fs.readFileSync(path, 'utf8');
    for (const line of text.split('\n')) {
      if (!line) continue;
      let entry;
      try {
        entry = JSON.parse(line);
      } catch (e) {
        console.error(`${path}: skipped a line that is not JSON`);
        continue;
      }
      if (!store[entry.c]) continue;
      if (entry.v === undefined) store[entry.c].map.delete(entry.id);
      else store[entry.c].map.set(entry.id, entry.v);
    }
    // a last line cut short by a crash must not swallow the next one
    if (text && !text.endsWith('\n')) fs.appendFileSync(path, '\n');
  }
  file = path;
};

module.exports = store;
