/*
 * The words of the pool's sentences lie with the Python half; the page is built
 * with a copy of them.
 */
import { copyFileSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const HERE = dirname(fileURLToPath(import.meta.url));

copyFileSync(
  resolve(HERE, '../server/gpupool/sentences/catalogue.json'),
  resolve(HERE, 'src/text/catalogue.json')
);
