import type { GpuPool } from '../api/types';
import { noticeSentence } from '../text/words';
import { h } from '../ui/jsx';
import { Countdown } from './Countdown';
import type { IContext } from './context';

/**
 * That the pool takes a share back, for whom, and when. A notification reads it
 * out once; the seconds are a timer, which is not read.
 */
export function NoticeBanner(props: {
  kernel: GpuPool.IKernel;
  notice: GpuPool.INotice;
  context: IContext;
}): JSX.Element {
  const { kernel, context } = props;
  const { model, trans } = context;
  return (
    <div className="jp-GpuPool-warning" data-kind="notice">
      <div>
        {trans.__('Asked back in')}{' '}
        <Countdown
          model={model}
          kernelId={kernel.kernel_id}
          label={trans.__(
            'Time until the GPU of %1 is taken back',
            kernel.label
          )}
        />
        <div className="jp-GpuPool-detail" role="note">
          {noticeSentence(kernel, trans)}
        </div>
      </div>
    </div>
  );
}
