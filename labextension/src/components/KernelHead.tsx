import type { GpuPool } from '../api/types';
import { autoText, shownState, stateWord } from '../text/words';
import { h } from '../ui/jsx';
import type { IContext } from './context';

/** Name, whether a cell runs, and the state of a kernel. */
export function KernelHead(props: {
  kernel: GpuPool.IKernel;
  pending: boolean;
  context: IContext;
}): JSX.Element {
  const { kernel, pending, context } = props;
  const { trans, open } = context;
  const path = kernel.path;
  const shown = shownState(kernel);
  return (
    <div className="jp-GpuPool-line">
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
        <span className="jp-GpuPool-name" title={path ?? kernel.kernel_id}>
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
