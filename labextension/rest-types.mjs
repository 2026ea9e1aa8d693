/*
 * Makes `src/api/types.ts` from the description of the REST interface: a type
 * for each of its shapes, spelled as they travel.
 *
 *     node labextension/rest-types.mjs OPENAPI.json FILE.ts
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import openapiTS, { astToString } from 'openapi-typescript';

const HEAD =
  '// Made from jupyter_gpupool/server/rest by `jlpm generate`: change it there, not here.';

const [source, target] = process.argv.slice(2);
const { schemas } = JSON.parse(readFileSync(source, 'utf-8')).components;
const types = astToString(
  await openapiTS(pathToFileURL(source), { immutable: true })
);
const text = [HEAD, types, ...namespace(), ''].join('\n');
// Nothing is compiled again for nothing.
if (!existsSync(target) || readFileSync(target, 'utf-8') !== text) {
  writeFileSync(target, text);
}

/** The shapes by the names that the page has for them: `GpuPool.IKernel`. */
function namespace() {
  const lines = Object.entries(schemas).map(([name, schema]) => {
    // As everywhere here: what an object looks like begins with an I.
    const prefix = 'properties' in schema || 'allOf' in schema ? 'I' : '';
    return `  export type ${prefix}${name} = components['schemas']['${name}'];`;
  });
  return [
    '/** The shapes of the REST interface. */',
    'export namespace GpuPool {',
    ...lines,
    '}'
  ];
}
