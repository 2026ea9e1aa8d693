/*
 * Makes what the page takes from the Python half: `src/api/request.ts` from the
 * pool's table of options, `src/api/reasons.ts` from the reasons of an end,
 * `src/api/types.ts` from the description of the REST interface. Nothing of the
 * front end can be compiled or tested without them. They are never committed.
 */
const { execFileSync } = require('node:child_process');
const { resolve } = require('node:path');

const root = resolve(__dirname, '..');
const api = resolve(__dirname, 'src/api');
const description = resolve(root, 'jupyter_gpupool/server/rest/openapi.json');

function run(program, ...args) {
  execFileSync(program, args, {
    cwd: root,
    env: {
      ...process.env,
      PYTHONPATH: [root, resolve(root, 'server')].join(':')
    },
    stdio: ['ignore', 'inherit', 'inherit']
  });
}

run('python3', '-m', 'gpupool.request.typescript', resolve(api, 'request.ts'));
run(
  'python3',
  '-m',
  'gpupool.sentences.typescript',
  resolve(api, 'reasons.ts')
);
run('python3', '-m', 'jupyter_gpupool.server.rest.document', description);
run(
  'node',
  resolve(__dirname, 'rest-types.mjs'),
  description,
  resolve(api, 'types.ts')
);
