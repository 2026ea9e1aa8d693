import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import { useEffect, useId, useRef } from 'react';
import type { GpuPool } from '../api/types';
import { rowsOf } from '../figures/rows';
import { holds } from '../figures/session';
import { formatMilli } from '../figures/share';
import { serverAnswers } from '../model/known';
import type { IGpuPool } from '../model/tokens';
import { Button } from '../ui/Button';
import { h } from '../ui/jsx';
import { lateRefusal } from './KernelDetail';
import { KernelLine } from './KernelLine';
import { KernelRow } from './KernelRow';
import { Section } from './Section';
import { useFold, type IContext } from './context';

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
  const front = context.front?.() ?? null;
  const rows = rowsOf(
    state.kernels,
    front,
    kernel =>
      state.failures.has(kernel.kernel_id) || lateRefusal(kernel) !== null
  );
  return (
    <Section
      id="kernels"
      context={context}
      title={trans.__('Kernels')}
      summary={
        state.kernels.length > 0
          ? trans._n(
              '%2 of %1 has a GPU',
              '%2 of %1 have a GPU',
              state.kernels.length,
              holding
            )
          : undefined
      }
    >
      {state.kernels.length > 0 ? (
        <ul className="jp-GpuPool-list" aria-label={trans.__('Kernels')}>
          {[...rows.whole, ...rows.lines].map(kernel => (
            <Kernel
              key={kernel.kernel_id}
              kernel={kernel}
              whole={rows.whole.includes(kernel)}
              front={kernel.kernel_id === front}
              state={state}
              context={context}
            />
          ))}
        </ul>
      ) : (
        <Empty state={state} context={context} />
      )}
      {rows.grouped.length > 0 ? (
        <Without kernels={rows.grouped} state={state} context={context} />
      ) : null}
    </Section>
  );
}

/** All that is known of a kernel, or one line that unfolds to it. */
function Kernel(props: {
  kernel: GpuPool.IKernel;
  /** It has to be seen. */
  whole: boolean;
  front: boolean;
  state: IGpuPool.IState;
  context: IContext;
}): JSX.Element {
  const { kernel, whole, front, state, context } = props;
  const key = `kernel:${kernel.kernel_id}`;
  const [unfolded, toggle] = useFold(context, key, false);
  const pending = state.pending.has(kernel.kernel_id);
  // The caret of the other form takes the focus over from the one that was pressed.
  const pressed = useRef(false);
  useEffect(() => {
    pressed.current = false;
  });
  const press = () => {
    pressed.current = true;
    toggle();
  };
  return whole || unfolded ? (
    <KernelRow
      kernel={kernel}
      pending={pending}
      failure={state.failures.get(kernel.kernel_id)}
      asked={askedShare(state, kernel)}
      front={front}
      onFold={whole ? undefined : press}
      focusFold={pressed.current}
      context={context}
    />
  ) : (
    <KernelLine
      kernel={kernel}
      pending={pending}
      onUnfold={press}
      focusUnfold={pressed.current}
      context={context}
    />
  );
}

/** Many kernels without a GPU: a heading, and a line each once it is unfolded. */
function Without(props: {
  kernels: readonly GpuPool.IKernel[];
  state: IGpuPool.IState;
  context: IContext;
}): JSX.Element {
  const { kernels, state, context } = props;
  const { trans } = context;
  const [open, toggle] = useFold(context, 'kernels:without', false);
  const body = useId();
  const Caret = open ? caretDownIcon.react : caretRightIcon.react;
  return (
    <div className="jp-GpuPool-without">
      <button
        type="button"
        className="jp-GpuPool-link jp-GpuPool-fold jp-GpuPool-nodeToggle"
        aria-expanded={open}
        aria-controls={body}
        onClick={toggle}
      >
        <Caret tag="span" className="jp-GpuPool-caret" />
        {trans._n(
          '%1 kernel without a GPU',
          '%1 kernels without a GPU',
          kernels.length
        )}
      </button>
      <div id={body} hidden={!open}>
        {open ? (
          <ul
            className="jp-GpuPool-list"
            aria-label={trans.__('Kernels without a GPU')}
          >
            {kernels.map(kernel => (
              <Kernel
                key={kernel.kernel_id}
                kernel={kernel}
                whole={false}
                front={false}
                state={state}
                context={context}
              />
            ))}
          </ul>
        ) : null}
      </div>
    </div>
  );
}

/** Says how to come by a kernel, and opens a notebook where that is possible. */
function Empty(props: {
  state: IGpuPool.IState;
  context: IContext;
}): JSX.Element {
  const { state, context } = props;
  const { commands, trans } = context;
  if (!state.ready || !serverAnswers(state)) {
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
