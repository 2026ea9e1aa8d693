import * as fs from 'fs';
import * as path from 'path';
import { Sanitizer } from '@jupyterlab/apputils';
import { RenderMimeRegistry } from '@jupyterlab/rendermime';
import { nullTranslator } from '@jupyterlab/translation';
import type { PartialJSONObject } from '@lumino/coreutils';
import { CELL_MIME_TYPE, readCellResult } from '../../notebook/cellResult';
import { cellResultPlugin, CellResultRenderer } from '../../plugins/cellResult';

// Of the package only the token is needed here; the rest wants a browser.
jest.mock('@jupyterlab/notebook', () => ({ INotebookTracker: {} }));

const trans = nullTranslator.load('jupyter_gpupool');
/** What a kernel writes; its own tests keep it true. */
const sample = JSON.parse(
  fs.readFileSync(
    path.join(__dirname, '../../../../tests/data/cell_result.json'),
    'utf8'
  )
);

let renderer: CellResultRenderer;

beforeEach(() => {
  renderer = new CellResultRenderer(trans);
});

afterEach(() => renderer.dispose());

async function rendered(data: unknown): Promise<HTMLElement> {
  await renderer.renderModel({
    trusted: false,
    metadata: {},
    data: { [CELL_MIME_TYPE]: data as PartialJSONObject },
    setData: () => undefined
  });
  return renderer.node;
}

it('says in one line what the cell used, and all of it when it is opened', async () => {
  const node = await rendered(sample[CELL_MIME_TYPE]);
  expect(node.querySelector('summary')!.textContent).toBe(
    '0.2 GPU (1.55 GiB) of vm/0 <software GPU> · device time 750 ms of 2.5 s · peak memory 640 MiB · 500 waits for the GPU'
  );
  const rows = [...node.querySelectorAll('tr')].map(row =>
    [...row.children].map(cell => cell.textContent)
  );
  expect(rows).toEqual([
    ['Device time', '750 ms'],
    ['Wall time', '2.5 s'],
    ['Peak memory', '640 MiB'],
    ['To the device', '3 MiB'],
    ['From the device', '4 KiB'],
    ['CUDA calls', '2,000'],
    ['Waits for the GPU', '500'],
    ['Waited for them', '1.25 s'],
    ['Waited for cuStreamSynchronize', '497 times, 1.2 s'],
    ['Waited for cuMemcpyDtoH', '3 times, 50 ms']
  ]);
  expect(node.querySelector('details')!.open).toBe(false);
  expect(node.textContent).toContain('still attached');
  expect(node.textContent).toContain('each waits for the GPU');
});

it('shows why a cell never reached a GPU', async () => {
  const node = await rendered({ title: 'GPU', figures: null, note: 'lost' });
  expect(node.querySelector('details')).toBeNull();
  expect(node.textContent).toBe('GPUlost');
});

it.each([null, 7, [], {}, { title: 3 }])(
  'says so when it is none of ours: %j',
  async data => {
    expect(readCellResult(data)).toBeNull();
    expect((await rendered(data)).textContent).toContain('cannot be read');
  }
);

it('takes what it knows of a newer version, and nothing of the wrong kind', () => {
  const read = readCellResult({
    version: 99,
    title: 't',
    hint: { html: '<b>' },
    figures: {
      wall_seconds: 'long',
      device_seconds: -1,
      calls: 4,
      round_trips_by_call: [null, { call: 3 }, { call: 'cuInit', count: 'x' }]
    },
    something: 'new'
  });
  expect(read).toMatchObject({ title: 't', hint: null, note: null });
  expect(read!.figures).toMatchObject({
    wallSeconds: null,
    deviceSeconds: null,
    calls: 4,
    byCall: [{ call: 'cuInit', count: 0, seconds: 0 }]
  });
});

it('puts only text into the page', async () => {
  const bad = '<img src=x onerror=alert(1)>';
  const node = await rendered({ title: bad, note: bad, hint: bad });
  expect(node.querySelector('img')).toBeNull();
  expect(node.textContent).toContain(bad);
});

it('is preferred to the HTML, also in a notebook that is not trusted', () => {
  const registry = new RenderMimeRegistry({
    initialFactories: [
      {
        safe: false,
        mimeTypes: ['text/html'],
        defaultRank: 50,
        createRenderer: () => new CellResultRenderer(trans)
      }
    ]
  });
  void cellResultPlugin.activate({} as never, registry, null, null);
  expect(registry.preferredMimeType(sample, 'ensure')).toBe(CELL_MIME_TYPE);
  expect(registry.preferredMimeType(sample, 'any')).toBe(CELL_MIME_TYPE);
});

it('reads well as the HTML that is left without this extension and without trust', () => {
  const page = document.createElement('div');
  page.innerHTML = new Sanitizer().sanitize(sample['text/html']);
  expect(page.querySelector('details > summary')!.textContent).toContain(
    'device time 750 ms of 2.50 s · peak memory 640 MiB'
  );
  expect(page.querySelectorAll('table tr')).toHaveLength(8);
  expect(page.textContent).toContain('still attached');
});
