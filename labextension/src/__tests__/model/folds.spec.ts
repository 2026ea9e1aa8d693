import type { ReadonlyPartialJSONValue } from '@lumino/coreutils';
import { Folds, type FoldStore } from '../../model/folds';

class Store implements FoldStore {
  saved: ReadonlyPartialJSONValue | undefined;

  async fetch(): Promise<ReadonlyPartialJSONValue | undefined> {
    return this.saved;
  }

  async save(_: string, value: ReadonlyPartialJSONValue): Promise<void> {
    this.saved = value;
  }
}

it('is as the view thinks best until somebody chooses', () => {
  const folds = new Folds();
  expect(folds.isOpen('node:a', true)).toBe(true);
  expect(folds.isOpen('node:a', false)).toBe(false);
  folds.setOpen('node:a', false);
  expect(folds.isOpen('node:a', true)).toBe(false);
});

it('is remembered', async () => {
  const store = new Store();
  new Folds(store).setOpen('section:pool', false);
  const later = new Folds(store);
  let changes = 0;
  later.changed.connect(() => changes++);
  await later.restore();
  expect(later.isOpen('section:pool')).toBe(false);
  expect(changes).toBe(1);
});

it('keeps a choice that was made before the old ones were read', async () => {
  const store = new Store();
  store.saved = { 'section:pool': false, 'section:queue': false };
  const folds = new Folds(store);
  folds.setOpen('section:pool', true);
  store.saved = { 'section:pool': false, 'section:queue': false };
  await folds.restore();
  expect(folds.isOpen('section:pool')).toBe(true);
  expect(folds.isOpen('section:queue')).toBe(false);
});

it.each([undefined, null, 'x', { 'section:pool': 'yes' }])(
  'does not stumble over %p',
  async saved => {
    const store = new Store();
    store.saved = saved;
    const folds = new Folds(store);
    await folds.restore();
    expect(folds.isOpen('section:pool')).toBe(true);
  }
);

it('forgets the oldest choices, not the newest', () => {
  const store = new Store();
  const folds = new Folds(store);
  for (let number = 0; number < 500; number++) {
    folds.setOpen(`node:${number}`, false);
  }
  expect(Object.keys(store.saved as object)).toHaveLength(200);
  expect(folds.isOpen('node:499')).toBe(false);
  expect(folds.isOpen('node:0')).toBe(true);
});
