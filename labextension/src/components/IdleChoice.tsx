import type { GpuPool } from '../api/types';
import { CommandIDs } from '../commands/ids';
import { idleChoices, idleText } from '../text/choices';
import { h } from '../ui/jsx';
import type { IContext } from './context';

/** The value of the server's own default in the list. */
const DEFAULT = '';

/** After how long without use the GPU of a kernel goes back. */
export function IdleChoice(props: {
  kernel: GpuPool.IKernel;
  idle: GpuPool.IIdle;
  pending: boolean;
  context: IContext;
}): JSX.Element {
  const { kernel, idle, pending, context } = props;
  const { commands, model, trans } = context;
  const chosen = idle.choice_minutes;
  const choices = idleChoices(model.defaults);
  if (chosen !== null && !choices.includes(chosen)) {
    choices.unshift(chosen);
  }
  return (
    <label className="jp-GpuPool-idleChoice">
      <span>{trans.__('If unused, back after')}</span>
      <select
        className="jp-mod-styled"
        aria-label={trans.__(
          'After how long without use the GPU of %1 is given back',
          kernel.label
        )}
        value={chosen === null ? DEFAULT : String(chosen)}
        aria-disabled={pending}
        onChange={event => {
          const { value } = event.target;
          if (!pending) {
            void commands.execute(CommandIDs.setIdle, {
              kernelId: kernel.kernel_id,
              minutes: value === DEFAULT ? null : Number(value),
              quiet: true
            });
          }
        }}
      >
        <option value={DEFAULT}>
          {trans.__('%1 (default)', idleText(idle.default_minutes, trans))}
        </option>
        {choices.map(minutes => (
          <option key={minutes} value={String(minutes)}>
            {idleText(minutes, trans)}
          </option>
        ))}
      </select>
    </label>
  );
}
