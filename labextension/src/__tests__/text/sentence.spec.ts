import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { learn } from '../../api/catalogue';
import type { GpuPool } from '../../api/types';
import {
  firstClause,
  isKnown,
  render,
  withoutHelps
} from '../../text/sentence';
import { reasonSentence } from '../../text/words';
import { CATALOGUE } from '../catalogue';
import { clauses, words } from '../samples';

/** What Python says of the same (tests/unit/test_sentences.py). */
const GOLDEN = JSON.parse(
  readFileSync(
    join(__dirname, '../../../../tests/data/sentences.json'),
    'utf-8'
  )
) as { words: string; sentence: GpuPool.ISentence }[];

it('shows the id of a sentence while nobody has handed out the words', () => {
  const said = { code: 'full', params: {} };
  expect(isKnown('full')).toBe(false);
  expect(render(said)).toBe('full');
  expect(withoutHelps(clauses(said, words('wait')))).toContain('full');
  expect(firstClause(clauses(said))).toBe('full');
  expect(reasonSentence('admin')).toBe('admin');
  learn(CATALOGUE);
  expect(isKnown('full')).toBe(true);
});

it('says what Python says', () => {
  expect(GOLDEN.length).toBeGreaterThan(150);
  expect(GOLDEN.map(({ sentence }) => render(sentence))).toEqual(
    GOLDEN.map(golden => golden.words)
  );
});

it('says the first of several clauses, or all', () => {
  expect(firstClause(clauses(words('one'), words('two')))).toBe('one');
  expect(firstClause(words('one; two'))).toBe('one; two');
});

it('leaves out what would help', () => {
  const help = { code: 'help.wait', params: {} };
  expect(withoutHelps(clauses(words('one'), help, words('two')))).toBe(
    'one; two'
  );
  expect(withoutHelps(words('one'))).toBe('one');
});

it('says why a share is gone', () => {
  expect(reasonSentence('admin')).toBe('Taken back by an administrator.');
  expect(reasonSentence('of a newer server')).toBe('of a newer server');
});
