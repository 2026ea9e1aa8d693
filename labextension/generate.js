/*
 * Makes `src/api/request.ts` from the pool's table of options: nothing of the
 * front end can be compiled or tested without it, and it is never committed.
 */
const { execFileSync } = require('node:child_process');
const { resolve } = require('node:path');

const root = resolve(__dirname, '..');

execFileSync(
  'python3',
  [
    '-m',
    'gpupool.request.typescript',
    resolve(__dirname, 'src/api/request.ts')
  ],
  {
    cwd: root,
    env: { ...process.env, PYTHONPATH: resolve(root, 'server') },
    stdio: ['ignore', 'inherit', 'inherit']
  }
);
