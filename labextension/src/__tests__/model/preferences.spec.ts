import * as fs from 'fs';
import * as path from 'path';
import { DEFAULT_PREFERENCES, readPreferences } from '../../model/preferences';
import { someDefaults } from '../samples';

const schema = JSON.parse(
  fs.readFileSync(
    path.join(__dirname, '..', '..', '..', 'schema', 'plugin.json'),
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
    idleMinutes: 30,
    warnSeconds: 20,
    attachOnRestart: false,
    notifyIdle: false,
    notifyReleased: false,
    pollSeconds: 5,
    showStatus: false,
    introduction: false
  };
  expect(readPreferences(set)).toEqual(set);
});

it('does not trust values that cannot be', () => {
  expect(
    readPreferences({ defaultShare: 'all of it', pollSeconds: 0.01 })
  ).toEqual({
    ...DEFAULT_PREFERENCES,
    defaultShare: '0.2',
    pollSeconds: 1
  });
  expect(readPreferences({ pollSeconds: 'often', idleMinutes: -5 })).toEqual({
    ...DEFAULT_PREFERENCES,
    defaultShare: '0.2'
  });
});

it('takes the share of the server where a person has set none', () => {
  const told = someDefaults({ share: '0.5' });
  expect(readPreferences({}, told).defaultShare).toBe('0.5');
  expect(readPreferences({ defaultShare: '0.1' }, told).defaultShare).toBe(
    '0.1'
  );
});
