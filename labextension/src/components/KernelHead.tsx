import { caretDownIcon } from '@jupyterlab/ui-components';
import type { GpuPool } from '../api/types';
import { autoText, shownState, stateWord } from '../text/words';
import { Fragment, h } from '../ui/jsx';
import type { IContext } from './context';

/** The name of a kernel, which opens its notebook, and whether a cell runs. */
export function KernelName(props: {
  kernel: GpuPool.IKernel;
  context: IContext;
}): JSX.Element {
  const { kernel, context } = props;
  const { trans, open } = context;
  const path = kernel.path;
  return (
    <>
      {open && path ? (
        <button
          type="button"
          className="jp-GpuPool-link jp-GpuPool-name"
          title={trans.__('Open %1', path)}
          onClick={() => open(path)}
        >
          {kernel.label}
        </button>
      ) : (
        <span className="jp-GpuPool-name" title={path || kernel.kernel_id}>
          {kernel.label}
        </span>
      )}
      {kernel.busy ? (
        <span
          className="jp-GpuPool-busy"
          role="img"
          aria-label={trans.__('running a cell')}
          title={trans.__('running a cell')}
        />
      ) : null}
    </>
  );
}

/** Name, whether a cell runs, and the state of a kernel. */
export function KernelHead(props: {
  kernel: GpuPool.IKernel;
  pending: boolean;
  /** Makes one line of it again; absent: it has to be seen. */
  onFold?: () => void;
  focusFold?: boolean;
  context: IContext;
}): JSX.Element {
  const { kernel, pending, onFold, context } = props;
  const { trans } = context;
  const shown = shownState(kernel);
  return (
    <div className="jp-GpuPool-line">
      {onFold ? (
        <button
          type="button"
          className="jp-GpuPool-link jp-GpuPool-fold"
          autoFocus={props.focusFold}
          aria-expanded={true}
          aria-label={trans.__('Less about %1', kernel.label)}
          onClick={onFold}
        >
          <caretDownIcon.react tag="span" className="jp-GpuPool-caret" />
        </button>
      ) : null}
      <KernelName kernel={kernel} context={context} />
      {kernel.auto ? (
        <span
          className="jp-GpuPool-tag"
          title={trans.__(
            'CUDA calls outside of attached cells attach by themselves (%1)',
            '%gpu auto'
          )}
        >
          {autoText(kernel.auto, trans)}
        </span>
      ) : null}
      <span
        className="jp-GpuPool-state"
        role="status"
        data-state={shown}
        data-pending={pending}
      >
        {stateWord(shown, trans)}
      </span>
    </div>
  );
}
