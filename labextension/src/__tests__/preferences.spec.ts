import * as fs from 'fs';
import * as path from 'path';
import { DEFAULT_PREFERENCES, readPreferences } from '../preferences';

const schema = JSON.parse(
  fs.readFileSync(
    path.join(__dirname, '..', '..', 'schema', 'plugin.json'),
    'utf8'
  )
);

it('has the defaults that the schema announces', () => {
  const announced = Object.fromEntries(
    Object.entries<{ default: unknown }>(schema.properties).map(
      ([key, value]) => [key, value.default]
    )
  );
  expect(announced).toEqual(DEFAULT_PREFERENCES);
});

it('takes what a person has set', () => {
  const set = {
    defaultShare: '2.5GiB',
    defaultProject: 'research/vision',
    notifyIdle: false,
    notifyReleased: false,
    pollSeconds: 5,
    showStatus: false
  };
  expect(readPreferences(set)).toEqual(set);
});

it('does not trust values that cannot be', () => {
  expect(
    readPreferences({ defaultShare: 'all of it', pollSeconds: 0.01 })
  ).toEqual({ ...DEFAULT_PREFERENCES, pollSeconds: 1 });
  expect(readPreferences({ pollSeconds: 'often' })).toEqual(
    DEFAULT_PREFERENCES
  );
});
