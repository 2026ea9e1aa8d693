import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ICatalogue } from '../api/catalogue';

/** What the server hands out. */
export const CATALOGUE = JSON.parse(
  readFileSync(
    join(__dirname, '../../../server/gpupool/sentences/catalogue.json'),
    'utf-8'
  )
) as ICatalogue;
