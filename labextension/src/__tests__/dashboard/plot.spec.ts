import { loadLibrary } from '../../dashboard/plot';

let mockOffline = true;

jest.mock('uplot', () => {
  if (mockOffline) {
    throw new Error('offline');
  }
  return { __esModule: true, default: 'the library' };
});

it('loads the library again after it could not be loaded, and then once', async () => {
  await expect(loadLibrary()).rejects.toThrow('offline');
  mockOffline = false;
  expect(await loadLibrary()).toBe('the library');
  expect(loadLibrary()).toBe(loadLibrary());
});
