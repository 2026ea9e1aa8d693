import React from 'react';
import { holds } from '../reduce';
import { formatMilli } from '../share';
import type { GpuPool } from '../tokens';
import type { IContext } from './context';
import { KernelRow } from './KernelRow';
import { Section } from './Section';

/** All running kernels of this server. */
export function KernelsSection(props: {
  state: GpuPool.IState;
  context: IContext;
}): JSX.Element {
  const { state, context } = props;
  const { trans } = context;
  const holding = state.kernels.filter(holds).length;
  return (
    <Section
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
        <p className="jp-GpuPool-empty">
          {trans.__('No kernel runs. Open a notebook to attach a GPU to it.')}
        </p>
      )}
    </Section>
  );
}

/** The share that a queued kernel waits for, from the pool's own queue. */
function askedShare(
  state: GpuPool.IState,
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
