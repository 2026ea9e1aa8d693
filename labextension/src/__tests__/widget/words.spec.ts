import { learn } from '../../api/catalogue';
import type { GpuPool } from '../../api/types';
import { ENGLISH } from '../../widget/english';
import {
  busyText,
  countdownText,
  notesOf,
  stateText
} from '../../widget/words';
import { CATALOGUE } from '../catalogue';
import {
  aKernel,
  anAttachedKernel,
  aQueuePlace,
  aWarnedKernel,
  clauses,
  words
} from '../samples';

learn(CATALOGUE);

describe('words without a translator', () => {
  it('are English, with what is said in their places', () => {
    expect(ENGLISH.__('%2 of %1', 'b', 3)).toBe('3 of b');
    expect(ENGLISH._n('%1 cell', '%1 cells', 1)).toBe('1 cell');
    expect(ENGLISH._n('%1 cell of %2', '%1 cells of %2', 2, 'x')).toBe(
      '2 cells of x'
    );
  });
});

describe('the state in the widget', () => {
  it('has more than a word where a notebook has room', () => {
    expect(stateText(aKernel())).toBe('no GPU attached');
    expect(stateText(anAttachedKernel())).toBe('attached');
    expect(stateText(aKernel({ state: 'parked' }))).toBe('no GPU, memory kept');
    expect(stateText(anAttachedKernel({ silent: true }))).toBe(
      'waits for the GPU pool, which does not answer'
    );
  });

  it('leaves the cause of a loss to the sentence below it', () => {
    const message = 'The GPU is gone: its kernel ran on after its lease.';
    const lost = aKernel({ state: 'lost', reason: 'stopped', message });
    expect(stateText(lost)).toBe('lost');
    expect(notesOf(lost)).toEqual([message]);
  });

  it('has the place in the queue', () => {
    const queue = aQueuePlace({
      place: 2,
      reason: 'All is lent.',
      eta_seconds: 45
    });
    const kernel = aKernel({ state: 'queued', queue });
    expect(stateText(kernel)).toBe('queued, place 2');
    expect(countdownText(kernel)).toBe('about 45 s to go');
    expect(notesOf(kernel)).toEqual(['All is lent.']);
  });

  it('counts down to the release, and to what is asked back', () => {
    expect(countdownText(aWarnedKernel(38))).toBe('in 38 s');
    const notice = {
      reason: 'reclaim',
      seconds_left: 20,
      explanation: 'vision is owed it',
      said: clauses(words('vision is owed it'), words('you have 20 s.')),
      returns: true
    };
    const kernel = aWarnedKernel(38, { notice });
    expect(stateText(kernel)).toBe('asked back for others');
    expect(countdownText(kernel)).toBe('in 20 s');
    expect(notesOf(kernel)).toEqual([
      'vision is owed it. What is in GPU memory is kept; calls wait until the GPU comes again.'
    ]);
  });

  it('says how long a GPU was not used, and after how long it goes back', () => {
    const { idle } = aWarnedKernel(30);
    const unused = { ...idle!, seconds: 5459, release_at: 7200 };
    expect(notesOf(anAttachedKernel({ idle: unused }))).toEqual([
      'Not used for 1 h 31 min; it goes back after 2 h.'
    ]);
  });

  it('shows a state that only a newer server knows', () => {
    const state = 'thinking' as GpuPool.State;
    expect(stateText(aKernel({ state }))).toBe('thinking');
  });
});

describe('work in the widget', () => {
  const usage = anAttachedKernel().usage!;

  it('is named once it takes long', () => {
    const work = { ...usage, work: 'running' as const, kernel: 'forever' };
    const quick = anAttachedKernel({ usage: { ...work, work_seconds: 1 } });
    const long = anAttachedKernel({ usage: { ...work, work_seconds: 14 } });
    expect(busyText(1, quick)).toBe('100 %');
    expect(busyText(1, long)).toBe('100 % · forever, 14 s');
  });

  it('that failed is said with the way out', () => {
    const failed = anAttachedKernel({
      usage: { ...usage, failure: 700, failure_name: 'illegal address' }
    });
    expect(stateText(failed)).toBe('failed');
    expect(notesOf(failed).join(' ')).toMatch(/illegal address.*%gpu reset/);
  });
});
