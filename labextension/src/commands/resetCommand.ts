import { Dialog, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { refreshIcon } from '@jupyterlab/ui-components';
import type { GpuPool } from '../api/types';
import { kernelSchema } from './arguments';
import { CommandIDs } from './ids';
import type { KernelActions } from './kernelActions';

/** The command that ends a GPU session while its kernel lives on. */
export function addResetCommand(actions: KernelActions): void {
  const { model, trans } = actions;
  actions.app.commands.addCommand(CommandIDs.reset, {
    label: trans.__('Reset GPU Session…'),
    caption: trans.__(
      'End the GPU session: arrays in GPU memory are lost, Python variables stay'
    ),
    icon: refreshIcon,
    describedBy: kernelSchema({
      confirmed: {
        type: 'boolean',
        description: 'Do not ask first; the caller has.'
      }
    }),
    isEnabled: args => actions.idle(args) && resettable(actions.stateOf(args)),
    execute: args =>
      actions.act(args, async kernelId => {
        const kernel = model.kernel(kernelId);
        if (args.confirmed === true || (await confirmed(kernel, trans))) {
          await model.reset(kernelId);
        }
      })
  });
}

/** Whether there is a session that could be ended. */
export function resettable(kernel: GpuPool.IKernel | undefined): boolean {
  return Boolean(kernel?.session_id);
}

async function confirmed(
  kernel: GpuPool.IKernel | undefined,
  trans: TranslationBundle
): Promise<boolean> {
  const answer = await showDialog({
    title: trans.__('Reset the GPU session of %1?', kernel?.label ?? ''),
    body: trans.__(
      'What runs on the GPU ends now, and arrays in GPU memory are lost. Python variables stay, and the next attach begins a new session.'
    ),
    buttons: [
      Dialog.cancelButton(),
      Dialog.warnButton({ label: trans.__('Reset') })
    ]
  });
  return answer.button.accept;
}
