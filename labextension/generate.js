/*
 * Makes what the front end has from the pool's own tables, the request for a
 * GPU and the reasons of an end: nothing of it can be compiled or tested
 * without them, and they are never committed.
 */
const { execFileSync } = require('node:child_process');
const { resolve } = require('node:path');

const root = resolve(__dirname, '..');

for (const [made, by] of [
  ['request.ts', 'gpupool.request.typescript'],
  ['reasons.ts', 'gpupool.sentences.typescript']
]) {
  execFileSync('python3', ['-m', by, resolve(__dirname, 'src/api', made)], {
    cwd: root,
    env: { ...process.env, PYTHONPATH: resolve(root, 'server') },
    stdio: ['ignore', 'inherit', 'inherit']
  });
}
