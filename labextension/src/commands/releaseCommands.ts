import { Dialog, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { undoIcon } from '@jupyterlab/ui-components';
import type { GpuPool } from '../api/types';
import { holds } from '../figures/session';
import { idleText } from '../text/choices';
import { shareText } from '../text/words';
import { kernelSchema, numberOf, plainSchema } from './arguments';
import { CommandIDs } from './ids';
import type { KernelActions } from './kernelActions';

/** Commands about when a share goes back, and how it comes again. */
export function addReleaseCommands(actions: KernelActions): void {
  const { model, trans } = actions;
  const { commands } = actions.app;

  commands.addCommand(CommandIDs.keep, {
    label: trans.__('Keep GPU'),
    caption: trans.__('Do not give the idle share back yet'),
    describedBy: kernelSchema({
      minutes: {
        type: 'number',
        minimum: 0,
        description:
          'For so many minutes; ten, or what the administrator allows, if left out.'
      }
    }),
    isEnabled: args => actions.idle(args) && holds(actions.stateOf(args)),
    execute: args =>
      actions.act(args, kernelId =>
        model.keep(kernelId, numberOf(args.minutes))
      )
  });

  commands.addCommand(CommandIDs.undo, {
    label: args => {
      const freed = actions.stateOf(args)?.released?.freed;
      return freed
        ? trans.__('Undo: Attach %1 GPU Again', shareText(freed))
        : trans.__('Undo the Release of the GPU');
    },
    caption: trans.__(
      'Attach what the kernel lost last, on the same terms and with its memory'
    ),
    icon: undoIcon,
    describedBy: kernelSchema(),
    isEnabled: args => actions.idle(args) && undoable(actions.stateOf(args)),
    execute: args => actions.act(args, kernelId => model.undo(kernelId))
  });

  commands.addCommand(CommandIDs.setIdle, {
    label: args => idleLabel(args.minutes, model.defaults, trans),
    caption: trans.__(
      'After how long without use the GPU of the kernel goes back'
    ),
    describedBy: kernelSchema({
      minutes: {
        type: ['number', 'null'],
        minimum: 0,
        description:
          'Minutes without use; 0: never, null or left out: the server’s default.'
      }
    }),
    isToggleable: true,
    isToggled: args => {
      const idle = actions.stateOf(args)?.idle;
      return idle
        ? idle.choice_minutes === (numberOf(args.minutes) ?? null)
        : false;
    },
    isEnabled: args => actions.idle(args) && holds(actions.stateOf(args)),
    execute: args =>
      actions.act(args, kernelId =>
        model.setIdle(kernelId, numberOf(args.minutes) ?? null)
      )
  });

  commands.addCommand(CommandIDs.releaseAll, {
    label: trans.__('Release All GPU Shares…'),
    caption: trans.__('Give back what all your kernels hold or wait for'),
    describedBy: plainSchema({
      confirmed: {
        type: 'boolean',
        description: 'Do not ask first; the caller has.'
      }
    }),
    isEnabled: () => holders(model.state.kernels).length > 0,
    execute: async args => {
      const confirmed =
        args.confirmed === true ||
        (await confirmReleaseAll(holders(model.state.kernels), trans));
      if (!confirmed) {
        return;
      }
      const released = holders(model.state.kernels).map(kernel =>
        actions.act({ kernelId: kernel.kernel_id }, kernelId =>
          holds(kernel)
            ? model.detach(kernelId, true)
            : model.cancelQueue(kernelId)
        )
      );
      await Promise.all(released);
    }
  });
}

/** Kernels that hold a share or wait for one. */
export function holders(
  kernels: readonly GpuPool.IKernel[]
): GpuPool.IKernel[] {
  return kernels.filter(kernel => holds(kernel) || kernel.state === 'queued');
}

/** Whether the last release of a kernel may still be undone. */
export function undoable(kernel: GpuPool.IKernel | undefined): boolean {
  return (kernel?.released?.undo_seconds ?? 0) > 0;
}

/** One line of the menu “Give Back When Idle”. */
function idleLabel(
  minutes: unknown,
  defaults: GpuPool.IDefaults | null,
  trans: TranslationBundle
): string {
  if (typeof minutes !== 'number') {
    return defaults
      ? trans.__(
          'As the Server Says: %1',
          idleText(defaults.idle_minutes, trans)
        )
      : trans.__('As the Server Says');
  }
  return minutes === 0
    ? trans.__('Never Give the GPU Back')
    : trans.__('GPU Idle for %1', idleText(minutes, trans));
}

async function confirmReleaseAll(
  kernels: readonly GpuPool.IKernel[],
  trans: TranslationBundle
): Promise<boolean> {
  const busy = kernels.filter(kernel => holds(kernel) && kernel.busy).length;
  const kept = trans.__(
    'Kernels, variables and what is in GPU memory are kept.'
  );
  const answer = await showDialog({
    title: trans._n(
      'Give back the GPU share of %1 kernel?',
      'Give back the GPU shares of %1 kernels?',
      kernels.length
    ),
    body:
      busy === 0
        ? kept
        : [
            trans._n(
              '%1 of them runs a cell, whose GPU calls will fail from then on.',
              '%1 of them run a cell, whose GPU calls will fail from then on.',
              busy
            ),
            kept
          ].join(' '),
    buttons: [
      Dialog.cancelButton(),
      Dialog.warnButton({ label: trans.__('Release All') })
    ]
  });
  return answer.button.accept;
}
