import type { GpuPool } from '../api/types';
import { holds } from '../figures/session';
import { formatMilli } from '../figures/share';
import type { IGpuPool } from '../model/tokens';
import { Button } from '../ui/Button';
import { h } from '../ui/jsx';
import { KernelRow } from './KernelRow';
import { Section } from './Section';
import type { IContext } from './context';

/** Of JupyterLab and Notebook, where they have it. */
const CREATE_NOTEBOOK = 'notebook:create-new';

/** All running kernels of this server. */
export function KernelsSection(props: {
  state: IGpuPool.IState;
  context: IContext;
}): JSX.Element {
  const { state, context } = props;
  const { trans } = context;
  const holding = state.kernels.filter(holds).length;
  return (
    <Section
      id="kernels"
      context={context}
      title={trans.__('Kernels')}
      summary={
        state.kernels.length > 0
          ? trans.__('%1 of %2 attached', holding, state.kernels.length)
          : undefined
      }
    >
      {state.kernels.length > 0 ? (
        <ul className="jp-GpuPool-list" aria-label={trans.__('Kernels')}>
          {state.kernels.map(kernel => (
            <KernelRow
              key={kernel.kernel_id}
              kernel={kernel}
              pending={state.pending.has(kernel.kernel_id)}
              failure={state.failures.get(kernel.kernel_id)}
              asked={askedShare(state, kernel)}
              context={context}
            />
          ))}
        </ul>
      ) : (
        <Empty state={state} context={context} />
      )}
    </Section>
  );
}

/** Says how to come by a kernel, and opens a notebook where that is possible. */
function Empty(props: {
  state: IGpuPool.IState;
  context: IContext;
}): JSX.Element {
  const { state, context } = props;
  const { commands, trans } = context;
  if (!state.ready || (state.problem && state.problem.kind !== 'pool')) {
    return (
      <p className="jp-GpuPool-empty">
        {trans.__('The kernels are shown when the server answers.')}
      </p>
    );
  }
  return (
    <div className="jp-GpuPool-empty">
      <p>
        {trans.__('No kernel runs. Open a notebook to attach a GPU to it.')}
      </p>
      {commands.hasCommand(CREATE_NOTEBOOK) ? (
        <Button onClick={() => void commands.execute(CREATE_NOTEBOOK)}>
          {trans.__('New notebook')}
        </Button>
      ) : null}
    </div>
  );
}

/** The share that a queued kernel waits for, from the pool's own queue. */
function askedShare(
  state: IGpuPool.IState,
  kernel: GpuPool.IKernel
): string | undefined {
  const entry = state.pool?.queue.find(
    ({ kernel_id }) => kernel_id === kernel.kernel_id
  );
  if (entry?.milli) {
    return formatMilli(entry.milli);
  }
  return entry?.mib ? `${entry.mib}MiB` : undefined;
}
