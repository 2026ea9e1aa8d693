import type { INotebookTracker } from '@jupyterlab/notebook';
import {
  METADATA_KEY,
  NotebookTerms,
  readTerms
} from '../../notebook/notebookTerms';

it.each([
  [{ share: '0.2' }, { share: '0.2' }],
  [
    { share: ' 2.5GiB ', count: 2, project: 'a/b', nodes: 'any', strict: true },
    { share: '2.5GiB', count: 2, project: 'a/b', nodes: 'any', strict: true }
  ],
  [{ share: '1', wait: 1e9, unknown: 1, nodes: 'mars' }, { share: '1' }],
  [{ share: '1', count: 'many', filters: [1], priority: '7' }, { share: '1' }]
])('reads %j as %j', (written, read) => {
  expect(readTerms(written)).toEqual(read);
});

it.each([
  undefined,
  null,
  '0.2',
  [],
  {},
  { share: 0.2 },
  { share: '7' },
  { share: 'rm -rf' }
])('takes %j for nothing', written => {
  expect(readTerms(written)).toBeNull();
});

function aPanel(kernelId: string, value?: object, readOnly = false) {
  const metadata = new Map<string, unknown>();
  if (value) {
    metadata.set(METADATA_KEY, value);
  }
  const model = {
    readOnly,
    writes: 0,
    getMetadata: (key: string) => metadata.get(key),
    setMetadata: (key: string, to: unknown) => {
      model.writes += 1;
      metadata.set(key, to);
    }
  };
  return {
    model,
    sessionContext: { session: { kernel: { id: kernelId } } }
  };
}

function terms(...panels: ReturnType<typeof aPanel>[]): NotebookTerms {
  return new NotebookTerms({
    filter: (condition: (panel: unknown) => boolean) => panels.filter(condition)
  } as unknown as INotebookTracker);
}

it('writes into the notebook of the kernel only, and how long it waited not at all', () => {
  const [mine, other] = [aPanel('k1'), aPanel('k2')];
  const notebooks = terms(mine, other);
  notebooks.remember('k1', { share: '0.2', count: 2, wait: 60 });
  expect(mine.model.getMetadata(METADATA_KEY)).toEqual({
    share: '0.2',
    count: 2
  });
  expect(other.model.writes).toBe(0);
  expect(notebooks.of('k1')).toEqual({ share: '0.2', count: 2 });
  expect(notebooks.of('k2')).toBeNull();
  expect(notebooks.of(null)).toBeNull();
});

it('leaves the document clean when nothing changes', () => {
  const panel = aPanel('k1', { share: '0.2' });
  terms(panel).remember('k1', { share: '0.2', count: undefined });
  expect(panel.model.writes).toBe(0);
});

it('does not write into a notebook that is read-only', () => {
  const panel = aPanel('k1', undefined, true);
  terms(panel).remember('k1', { share: '0.2' });
  expect(panel.model.writes).toBe(0);
});
