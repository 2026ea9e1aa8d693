import type { GpuPool } from '../../api/types';
import {
  deadlines,
  EMPTY_STATE,
  transitions,
  withAnswer,
  withKernel,
  withProblem,
  withRequest,
  withSnapshot
} from '../../model/reduce';
import { aKernel, anAttachedKernel, aPool, aWarnedKernel } from '../samples';

describe('a snapshot', () => {
  it('names the problem when the pool does not answer', () => {
    const pool = aPool({ ok: false, error: 'nobody at unix:/x', devices: [] });
    const state = withSnapshot(EMPTY_STATE, pool, [aKernel()], 5, 1000);
    expect(state.problem).toEqual({
      kind: 'pool',
      message: 'nobody at unix:/x'
    });
    expect(state.kernels).toHaveLength(1);
    expect(state.ready).toBe(true);
  });

  it('clears a problem that is over', () => {
    const broken = withProblem(
      EMPTY_STATE,
      { kind: 'server', message: 'x' },
      2000
    );
    expect(withSnapshot(broken, aPool(), [], 5, 1000).problem).toBeNull();
  });

  it('forgets failures of kernels that are gone', () => {
    const failed = withAnswer(EMPTY_STATE, 'gone', 'full');
    expect(
      withSnapshot(failed, aPool(), [aKernel()], 5, 1000).failures.size
    ).toBe(0);
  });

  it.each([
    ['stays while its kernel is as it was', {}, ['k1']],
    ['goes when its kernel holds or waits', { state: 'queued' }, []],
    ['goes when its kernel has another session', { session_id: 's2' }, []]
  ] as const)('a refusal %s', (_, change, left) => {
    const known = withSnapshot(EMPTY_STATE, aPool(), [aKernel()], 5, 1000);
    const failed = withAnswer(known, 'k1', 'full');
    const next = withSnapshot(failed, aPool(), [aKernel(change)], 6, 2000);
    expect([...next.failures.keys()]).toEqual(left);
  });
});

it('a server that does not answer leaves what was known', () => {
  const before = withSnapshot(EMPTY_STATE, aPool(), [aKernel()], 5, 1000);
  const after = withProblem(before, { kind: 'server', message: 'x' }, 2000);
  expect(after.kernels).toBe(before.kernels);
  expect(after.pool).toBe(before.pool);
});

describe('a request', () => {
  it('is pending until answered, and clears the last failure', () => {
    const failed = withAnswer(EMPTY_STATE, 'k1', 'full');
    const asked = withRequest(failed, 'k1');
    expect([...asked.pending]).toEqual(['k1']);
    expect(asked.failures.has('k1')).toBe(false);
    expect(withAnswer(asked, 'k1', null).pending.size).toBe(0);
  });

  it('does not change the state it came from', () => {
    withRequest(EMPTY_STATE, 'k1');
    withAnswer(EMPTY_STATE, 'k1', 'no');
    expect(EMPTY_STATE.pending.size + EMPTY_STATE.failures.size).toBe(0);
  });

  it('puts the answered kernel where the old one was', () => {
    const state = withSnapshot(
      EMPTY_STATE,
      aPool(),
      [aKernel({ kernel_id: 'a' }), aKernel({ kernel_id: 'b' })],
      5,
      1000
    );
    const next = withKernel(state, anAttachedKernel({ kernel_id: 'a' }), 6);
    expect(next.kernels.map(k => [k.kernel_id, k.state])).toEqual([
      ['a', 'attached'],
      ['b', 'none']
    ]);
  });
});

describe('a pool that does not answer', () => {
  const pool = aPool({ totals: { milli: 1000, free_milli: 1000 } });
  const down = aPool({ ok: false, error: 'nobody', devices: [], queue: [] });

  it('is shown as it was known last, and marked', () => {
    const known = withSnapshot(EMPTY_STATE, pool, [], 5, 1000);
    const state = withSnapshot(known, down, [aKernel()], 6, 3000);
    expect(state.pool).toEqual({ ...pool, ok: false, error: 'nobody' });
    expect(state.poolAt).toBe(1000);
    expect(state.problem).toEqual({ kind: 'pool', message: 'nobody' });
    expect(state.kernels).toHaveLength(1);
  });

  it('has not answered since it first did not', () => {
    let state = withSnapshot(EMPTY_STATE, down, [], 5, 1000);
    state = withSnapshot(state, down, [], 6, 3000);
    expect(state.problemSince).toBe(1000);
    state = withProblem(state, { kind: 'server', message: 'gone' }, 5000);
    expect(state.problemSince).toBe(5000);
    state = withSnapshot(state, pool, [], 7, 6000);
    expect([state.problemSince, state.poolAt]).toEqual([null, 6000]);
  });

  it('has no devices to show when it was never known', () => {
    const state = withSnapshot(EMPTY_STATE, down, [], 5, 1000);
    expect(state.pool?.devices).toEqual([]);
    expect(state.poolAt).toBeNull();
  });
});

describe('transitions', () => {
  it('are none when nothing changed', () => {
    expect(transitions([aKernel()], [aKernel()])).toEqual([]);
  });

  it('tell the state before and the share that was held', () => {
    const [change] = transitions(
      [aWarnedKernel(3)],
      [aKernel({ state: 'parked', reason: 'idle' })]
    );
    expect(change.from).toBe('warned');
    expect(change.share?.milli).toBe(200);
    expect(change.kernel.state).toBe('parked');
  });

  it('include a kernel that is seen first', () => {
    const [change] = transitions([], [aWarnedKernel(30)]);
    expect(change.from).toBeNull();
  });

  it('ignore a kernel that is gone', () => {
    expect(transitions([anAttachedKernel()], [])).toEqual([]);
  });
});

describe('deadlines', () => {
  const at = (receivedAt: number, ...kernels: GpuPool.IKernel[]) =>
    withSnapshot(EMPTY_STATE, aPool(), kernels, receivedAt, 1000);

  it('are where the countdown ends', () => {
    expect(deadlines(new Map(), at(1000, aWarnedKernel(8)))).toEqual(
      new Map([['k1', 9000]])
    );
  });

  it('never go back when a server repeats an old countdown', () => {
    const first = deadlines(new Map(), at(1000, aWarnedKernel(8)));
    const second = deadlines(first, at(3000, aWarnedKernel(8)));
    expect(second.get('k1')).toBe(9000);
    expect(deadlines(second, at(5000, aWarnedKernel(1))).get('k1')).toBe(6000);
  });

  it('start anew when a countdown comes that cannot be the same', () => {
    const first = deadlines(new Map(), at(1000, aWarnedKernel(60)));
    const hidden = deadlines(first, at(700_000, aWarnedKernel(45)));
    expect(hidden.get('k1')).toBe(745_000);
  });

  it('start anew after a kernel was used', () => {
    const first = deadlines(new Map(), at(1000, aWarnedKernel(8)));
    const used = deadlines(first, at(3000, anAttachedKernel()));
    expect(used.size).toBe(0);
    expect(deadlines(used, at(9000, aWarnedKernel(8))).get('k1')).toBe(17000);
  });
});
