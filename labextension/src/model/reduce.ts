import type { GpuPool } from '../api/types';
import type { IGpuPool } from './tokens';

/** A deadline that is so much later than the known one is that of another countdown. */
const NEW_AFTER_MS = 10_000;

export const EMPTY_STATE: IGpuPool.IState = Object.freeze({
  ready: false,
  pool: null,
  poolAt: null,
  kernels: [],
  problem: null,
  problemSince: null,
  pending: new Set<string>(),
  failures: new Map<string, string>(),
  receivedAt: 0
});

/**
 * The state after both answers of the server have arrived, at `now` (Unix ms).
 * Of a pool that does not answer what it told last is kept, marked as such.
 */
export function withSnapshot(
  state: IGpuPool.IState,
  pool: GpuPool.IPool,
  kernels: readonly GpuPool.IKernel[],
  receivedAt: number,
  now: number
): IGpuPool.IState {
  const before = new Map(state.kernels.map(one => [one.kernel_id, one]));
  // A refusal is about the state that it was asked in, and stands as long as that.
  const stands = new Set(
    kernels
      .filter(one => isAsBefore(before.get(one.kernel_id), one))
      .map(one => one.kernel_id)
  );
  const next = {
    ...state,
    ready: true,
    pool: pool.ok ? pool : lastKnown(pool, state.pool),
    poolAt: pool.ok ? now : state.poolAt,
    kernels,
    failures: new Map([...state.failures].filter(([id]) => stands.has(id))),
    receivedAt
  };
  if (pool.wrong_setting) {
    const problem = { kind: 'setting' as const, message: pool.wrong_setting };
    return withProblem(next, problem, now);
  }
  return pool.ok
    ? { ...next, problem: null, problemSince: null }
    : withProblem(next, { kind: 'pool', message: pool.error ?? '' }, now);
}

function isAsBefore(
  before: GpuPool.IKernel | undefined,
  now: GpuPool.IKernel
): boolean {
  return (
    before === undefined ||
    (before.state === now.state && before.session_id === now.session_id)
  );
}

function lastKnown(
  pool: GpuPool.IPool,
  before: GpuPool.IPool | null
): GpuPool.IPool {
  return before === null
    ? pool
    : {
        ...pool,
        devices: before.devices,
        queue: before.queue,
        queue_left_out: before.queue_left_out,
        totals: before.totals
      };
}

/** The state after nothing was answered; what was known is kept. */
export function withProblem(
  state: IGpuPool.IState,
  problem: IGpuPool.IProblem,
  now: number
): IGpuPool.IState {
  const lasts = state.problem?.kind === problem.kind;
  return {
    ...state,
    ready: true,
    problem,
    problemSince: lasts ? state.problemSince : now
  };
}

/** Puts the answer of one request in the place of the kernel it is about. */
export function withKernel(
  state: IGpuPool.IState,
  kernel: GpuPool.IKernel,
  receivedAt: number
): IGpuPool.IState {
  const known = state.kernels.some(k => k.kernel_id === kernel.kernel_id);
  const kernels = known
    ? state.kernels.map(k => (k.kernel_id === kernel.kernel_id ? kernel : k))
    : [...state.kernels, kernel];
  return { ...state, kernels, receivedAt };
}

/** Marks a request for a kernel as begun; forgets why the last one failed. */
export function withRequest(
  state: IGpuPool.IState,
  kernelId: string
): IGpuPool.IState {
  const failures = new Map(state.failures);
  failures.delete(kernelId);
  return { ...state, pending: new Set(state.pending).add(kernelId), failures };
}

/** Marks a request for a kernel as ended, refused if there is a message. */
export function withAnswer(
  state: IGpuPool.IState,
  kernelId: string,
  message: string | null
): IGpuPool.IState {
  const pending = new Set(state.pending);
  pending.delete(kernelId);
  const failures = new Map(state.failures);
  if (message !== null) {
    failures.set(kernelId, message);
  }
  return { ...state, pending, failures };
}

/**
 * Which kernels changed their state between two snapshots. A kernel this page
 * sees first counts as changed (`from` null), so that a page opened during a
 * countdown still warns; whoever listens decides what is worth a word.
 */
export function transitions(
  before: readonly GpuPool.IKernel[],
  after: readonly GpuPool.IKernel[]
): IGpuPool.ITransition[] {
  const known = new Map(before.map(kernel => [kernel.kernel_id, kernel]));
  const changes: IGpuPool.ITransition[] = [];
  for (const kernel of after) {
    const old = known.get(kernel.kernel_id);
    // A notice is news also to a kernel that was warned of its idleness.
    const noticed = kernel.notice && !old?.notice;
    if (old?.state !== kernel.state || noticed) {
      changes.push({
        kernel,
        from: old?.state ?? null,
        share: old?.share ?? null,
        by: old?.by ?? null,
        asked: old?.queue?.asked ?? null,
        ofCell: old?.queue?.cell === true
      });
    }
  }
  return changes;
}

/**
 * When warned kernels are released, by `performance.now()`.
 *
 * A server that knows the use of a device only as of a moment ago says the
 * same countdown twice. A deadline therefore only ever comes nearer while a
 * kernel stays warned; whoever uses or keeps it leaves that state. A page that
 * nobody looked at may not have seen that: a much later deadline is a new one.
 */
export function deadlines(
  before: ReadonlyMap<string, number>,
  state: IGpuPool.IState
): ReadonlyMap<string, number> {
  const after = new Map<string, number>();
  for (const { kernel_id, state: word, idle, notice } of state.kernels) {
    const left = notice?.seconds_left ?? idle?.countdown ?? null;
    if (word === 'warned' && left !== null) {
      const deadline = state.receivedAt + left * 1000;
      // A notice has its own time, which may be later than idleness had.
      const known = notice ? undefined : before.get(kernel_id);
      const same = known !== undefined && deadline - known < NEW_AFTER_MS;
      after.set(kernel_id, same ? Math.min(known, deadline) : deadline);
    }
  }
  return after;
}
