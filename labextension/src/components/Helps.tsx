import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import type { GpuPool } from '../api/types';
import { CommandIDs } from '../commands/ids';
import { render } from '../text/sentence';
import { takeText } from '../text/words';
import { Button } from '../ui/Button';
import { h } from '../ui/jsx';
import type { IContext } from './context';

/** What would help a request that waits; what could be had now as a button. */
export function Helps(props: {
  kernel: GpuPool.IKernel;
  helps: readonly GpuPool.IHelp[];
  pending: boolean;
  context: IContext;
}): JSX.Element | null {
  const { kernel, helps, pending, context } = props;
  const { commands, trans } = context;
  if (helps.length === 0) {
    return null;
  }
  return (
    <ul
      className="jp-GpuPool-notes jp-GpuPool-helps"
      aria-label={trans.__('What would help %1', kernel.label)}
    >
      {helps.map(help => {
        const request = kernel.queue?.takes ? help.request : null;
        const words = render(help.said);
        return (
          <li key={words} data-kind="help">
            <span>{words}</span>
            {request === null ? null : (
              <Button
                tone="accept"
                aria-label={trans.__(
                  '%1 for %2',
                  takeText(request, trans),
                  kernel.label
                )}
                aria-disabled={pending}
                onClick={() => {
                  if (!pending) {
                    void commands.execute(CommandIDs.take, {
                      ...(request as unknown as ReadonlyPartialJSONObject),
                      kernelId: kernel.kernel_id,
                      quiet: true
                    });
                  }
                }}
              >
                {takeText(request, trans)}
              </Button>
            )}
          </li>
        );
      })}
    </ul>
  );
}
