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
            {help.kernels.map(id => (
              <Detach key={id} id={id} pending={pending} context={context} />
            ))}
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

/** Gives back what another notebook of one's own holds. */
function Detach(props: {
  id: string;
  pending: boolean;
  context: IContext;
}): JSX.Element {
  const { id, pending, context } = props;
  const { commands, model, trans } = context;
  const label = model.kernel(id)?.label ?? id.slice(0, 8);
  return (
    <Button
      aria-label={trans.__('Detach the GPU from %1', label)}
      title={label}
      aria-disabled={pending}
      onClick={() => {
        if (!pending) {
          void commands.execute(CommandIDs.detach, {
            kernelId: id,
            quiet: true
          });
        }
      }}
    >
      {trans.__('Detach it')}
    </Button>
  );
}
