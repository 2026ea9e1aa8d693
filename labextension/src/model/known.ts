import type { GpuPool } from '../api/types';
import type { IGpuPool } from './tokens';

/** Whether the Jupyter server answers; while it does not, all that is known is of before. */
export function serverAnswers({
  problem
}: Pick<IGpuPool.IState, 'problem'>): boolean {
  return problem?.kind !== 'server' && problem?.kind !== 'missing';
}

/** The pool as it is now; null: nobody knows, and there is nothing to offer. */
export function poolNow(
  state: Pick<IGpuPool.IState, 'pool' | 'problem'>
): GpuPool.IPool | null {
  return state.pool?.ok && serverAnswers(state) ? state.pool : null;
}
