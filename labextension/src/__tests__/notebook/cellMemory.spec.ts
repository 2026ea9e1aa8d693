import * as fs from 'fs';
import * as path from 'path';
import { RenderMimeRegistry, type IRenderMime } from '@jupyterlab/rendermime';
import { nullTranslator } from '@jupyterlab/translation';
import type { PartialJSONObject } from '@lumino/coreutils';
import { CommandIDs } from '../../commands/ids';
import { readOutOfMemory, shareEdit } from '../../notebook/cellMemory';
import { CELL_MIME_TYPE } from '../../notebook/cellResult';
import {
  cellResultPlugin,
  CellResultRenderer,
  type ICellActions
} from '../../plugins/cellResult';

// Of the package only the token is needed here; the rest wants a browser.
jest.mock('@jupyterlab/notebook', () => ({ INotebookTracker: {} }));

const trans = nullTranslator.load('jupyter_gpupool');
/** What a kernel writes; its own tests keep it true. */
const sample = JSON.parse(
  fs.readFileSync(
    path.join(__dirname, '../../../../tests/data/cell_without_memory.json'),
    'utf8'
  )
)[CELL_MIME_TYPE];

let renderer: CellResultRenderer | IRenderMime.IRenderer;

afterEach(() => renderer.dispose());

interface IActed {
  rewritten: string[];
  resized: string[];
}

async function rendered(
  change: object
): Promise<{ node: HTMLElement; acted: IActed }> {
  const acted: IActed = { rewritten: [], resized: [] };
  const actions: ICellActions = {
    rewrite: (_, share) => void acted.rewritten.push(share),
    resize: (_, share) => void acted.resized.push(share)
  };
  renderer = new CellResultRenderer(trans, actions);
  const out_of_memory = { ...sample.out_of_memory, ...change };
  await renderer.renderModel({
    trusted: false,
    metadata: {},
    data: {
      [CELL_MIME_TYPE]: { ...sample, out_of_memory } as PartialJSONObject
    },
    setData: () => undefined
  });
  return { node: renderer.node, acted };
}

const line = (node: HTMLElement) =>
  node.querySelector('.jp-GpuPool-cellLacking');
const button = (node: HTMLElement) => node.querySelector('button');

it('says what was asked, what there is, and what would do', async () => {
  const { node } = await rendered({});
  const text = line(node)!.textContent!;
  for (const part of ['3 GiB asked', '1.5 GiB', '0 B used', '0.5', '3.9 GiB']) {
    expect(text).toContain(part);
  }
  expect(node.querySelector('summary')!.textContent).not.toContain('peak');
});

it('offers to change the line of the cell, whose share is gone', async () => {
  const { node, acted } = await rendered({});
  expect(button(node)!.textContent).toBe('Use %%gpu 0.5');
  button(node)!.click();
  expect(acted).toEqual({ rewritten: ['0.5'], resized: [] });
});

it('offers to resize a share that is held, if that is free', async () => {
  const { node, acted } = await rendered({ way: 'resize' });
  expect(button(node)!.textContent).toBe('Resize to 0.5');
  button(node)!.click();
  expect(acted).toEqual({ rewritten: [], resized: ['0.5'] });
  const larger_share = { ...sample.out_of_memory.larger_share, free: false };
  const full = await rendered({ way: 'resize', larger_share });
  expect(button(full.node)).toBeNull();
  const waits = await rendered({ larger_share });
  expect(button(waits.node)).not.toBeNull();
});

it.each([
  { way: 'code' },
  { larger_share: null },
  { larger_share: { share: null, mib: 7936, free: false, count: 1 } },
  { larger_share: { share: '0.5\nimport os', mib: 1, free: true, count: 1 } }
])('offers nothing that would not help: %j', async change => {
  const { node } = await rendered(change);
  expect(line(node)).not.toBeNull();
  expect(button(node)).toBeNull();
});

it.each([null, undefined, 7, [], {}, { asked: 1 }, { asked: 'much' }])(
  'takes nothing for a record that is none: %j',
  data => {
    expect(readOutOfMemory(data)).toBeNull();
  }
);

it.each([
  ['%%gpu 0.2\nx = 1', '%%gpu 0.5\nx = 1'],
  ['%%gpu\nx', '%%gpu 0.5\nx'],
  ['%%gpu', '%%gpu 0.5'],
  ['%%gpu 20% --wait 5m\n0.2', '%%gpu 0.5 --wait 5m\n0.2'],
  ['%%gpu --wait 5 -n 1 2560MiB --hold', '%%gpu --wait 5 -n 1 0.5 --hold'],
  ['%%gpu --hold 0.2', '%%gpu --hold 0.5'],
  ['%%gpu --project=a/b 0.2', '%%gpu --project=a/b 0.5'],
  ['%%gpu -n 1', '%%gpu 0.5 -n 1'],
  ['%%gpu -n2 0.2', '%%gpu -n2 0.5'],
  ['%%gpu --wait -1 0.2', '%%gpu --wait -1 0.5'],
  ['%%gpu 2 GiB', '%%gpu 0.5'],
  ['%%gpu 2.5 mb --hold', '%%gpu 0.5 --hold'],
  ['%%gpu 20 % -n 2', '%%gpu 0.5 -n 2'],
  ['%%gpu --type "NVIDIA H100" 0.2', '%%gpu --type "NVIDIA H100" 0.5'],
  ["%%gpu --type='A B' 0.2", "%%gpu --type='A B' 0.5"],
  ["%%gpu --type 'L 4'", "%%gpu 0.5 --type 'L 4'"],
  ['%%gpu --type "#1" 0.2 # 2 GiB', '%%gpu --type "#1" 0.5 # 2 GiB'],
  ['%%gpu # 0.2 was too little', '%%gpu 0.5 # 0.2 was too little'],
  ['\n%%time\n  %%gpu 0.2', '\n%%time\n  %%gpu 0.5']
])('changes the share and nothing else: %j', (source, changed) => {
  const edit = shareEdit(source, '0.5')!;
  expect(source.slice(0, edit.start) + edit.text + source.slice(edit.end)).toBe(
    changed
  );
});

it.each(['', 'x = 1', '%%gpux 0.2', 'print("%%gpu 0.2")'])(
  'leaves other cells alone: %j',
  source => {
    expect(shareEdit(source, '0.5')).toBeNull();
  }
);

describe('in a notebook', () => {
  const execute = jest.fn();
  const updateSource = jest.fn();
  const output = document.createElement('div');
  const node = document.createElement('div');
  const other = document.createElement('div');
  node.append(output);
  const notebook = {
    activeCellIndex: 0,
    activate: jest.fn(),
    widgets: [
      { node: other },
      {
        node,
        model: {
          sharedModel: { getSource: () => '%%gpu 0.2\n1', updateSource }
        }
      }
    ]
  };
  const panel = {
    node,
    content: notebook,
    sessionContext: { session: { kernel: { id: 'k1' } } }
  };
  const tracker = {
    find: (test: (p: unknown) => boolean) => (test(panel) ? panel : undefined)
  };

  async function press(way: string): Promise<void> {
    const registry = new RenderMimeRegistry();
    void cellResultPlugin.activate(
      { commands: { execute } } as never,
      registry,
      null,
      tracker as never
    );
    renderer = registry.createRenderer(CELL_MIME_TYPE);
    output.replaceChildren(renderer.node);
    const out_of_memory = { ...sample.out_of_memory, way };
    await renderer.renderModel({
      trusted: false,
      metadata: {},
      data: { [CELL_MIME_TYPE]: { ...sample, out_of_memory } },
      setData: () => undefined
    });
    renderer.node.querySelector('button')!.click();
  }

  it('the line of the cell is changed, and the cell is ready to run', async () => {
    await press('cell');
    expect(updateSource).toHaveBeenCalledWith(6, 9, '0.5');
    expect(notebook.activeCellIndex).toBe(1);
    expect(notebook.activate).toHaveBeenCalled();
    expect(execute).not.toHaveBeenCalled();
  });

  it('the share of its kernel is resized', async () => {
    await press('resize');
    expect(execute).toHaveBeenCalledWith(CommandIDs.resize, {
      kernelId: 'k1',
      share: '0.5'
    });
  });
});
