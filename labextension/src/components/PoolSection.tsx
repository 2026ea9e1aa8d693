import type { GpuPool } from '../api/types';
import { demandOf } from '../figures/demand';
import { formatRoom } from '../figures/share';
import { poolNow } from '../model/known';
import type { IGpuPool } from '../model/tokens';
import { demandSentence, demandWord } from '../text/demand';
import { h } from '../ui/jsx';
import { Devices } from './Devices';
import { Section } from './Section';
import type { IContext } from './context';

/** The devices of the pool, by node, and how they are shared out. */
export function PoolSection(props: {
  state: IGpuPool.IState;
  context: IContext;
}): JSX.Element {
  const { state, context } = props;
  const { trans } = context;
  const { pool } = state;
  const now = poolNow(state);
  return (
    <Section
      id="pool"
      title={trans.__('Pool')}
      summary={summary(props)}
      context={context}
    >
      {now ? <Demand pool={now} context={context} /> : null}
      {pool && pool.devices.length > 0 ? (
        <div data-stale={now === null}>
          <Devices pool={pool} context={context} />
        </div>
      ) : (
        <p className="jp-GpuPool-empty">{emptyText(state, context)}</p>
      )}
    </Section>
  );
}

/** How much the pool is asked for: a word, and the numbers behind it. */
function Demand(props: {
  pool: GpuPool.IPool;
  context: IContext;
}): JSX.Element | null {
  const { pool, context } = props;
  const { trans } = context;
  if (pool.devices.length === 0) {
    return null;
  }
  const demand = demandOf(pool);
  const word = demandWord(demand, trans);
  return (
    <p className="jp-GpuPool-demand">
      {word === null ? null : (
        <span className="jp-GpuPool-demandWord" data-level={demand.level}>
          {word}
        </span>
      )}
      {demandSentence(demand, trans)}
    </p>
  );
}

function emptyText(state: IGpuPool.IState, { trans }: IContext): string {
  const now = poolNow(state);
  if (now) {
    if (now.lenders.length > 0) {
      return trans.__(
        'No GPU is here now. %1 can lend one when it is needed.',
        now.lenders.join(', ')
      );
    }
    return trans.__('The pool has no device. Start a node: gpupool node start');
  }
  return state.ready
    ? trans.__('The devices are not known now.')
    : trans.__('Asking the pool…');
}

function summary(props: {
  state: IGpuPool.IState;
  context: IContext;
}): string | undefined {
  const { trans } = props.context;
  const { pool } = props.state;
  if (!pool || pool.devices.length === 0) {
    return undefined;
  }
  if (poolNow(props.state) === null) {
    return trans.__('as it was');
  }
  const total = pool.devices.filter(device => device.healthy).length;
  return trans._n(
    '%2 of %1 GPU free',
    '%2 of %1 GPUs free',
    total,
    formatRoom(pool.totals.free_milli)
  );
}
