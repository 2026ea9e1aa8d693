import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, InputDialog, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { closeIcon, refreshIcon } from '@jupyterlab/ui-components';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { GpuPoolError } from '../api/client';
import type { GpuPool } from '../api/types';
import { holds } from '../figures/session';
import { SIDEBAR_ID, type IGpuPool } from '../model/tokens';
import { formatSpan } from '../text/format';
import { besideText, checkShare } from '../text/words';
import { longWork } from '../text/work';
import { gpuIcon } from '../ui/icons';
import {
  kernelSchema,
  numberOf,
  plainSchema,
  SHARE,
  TERMS,
  termsOf,
  textOf,
  WAIT
} from './arguments';
import { IdleChoice } from './idleChoice';
import { CommandIDs } from './ids';
import { KernelActions } from './kernelActions';
import type { INotebookTerms } from './notebooks';
import { addReleaseCommands } from './releaseCommands';
import { addResetCommand } from './resetCommand';
import { addStartPoolCommand } from './startPool';

export { CommandIDs } from './ids';
export { currentKernelId } from './kernelActions';

/**
 * Registers the commands; every button, menu and notification calls these.
 * `notebooks`: where what was attached by hand is kept for the next time.
 */
export function addCommands(
  app: JupyterFrontEnd,
  model: IGpuPool,
  trans: TranslationBundle,
  notebooks: INotebookTerms | null = null
): void {
  const { commands, shell } = app;
  const actions = new KernelActions(app, model, trans);
  const idleChoice = new IdleChoice(model);

  /** What Attach asks for: what is said, else the notebook's, else a default. */
  const attachTerms = (
    args: ReadonlyPartialJSONObject
  ): GpuPool.IAttachOptions => {
    const noted = notebooks?.of(actions.kernelOf(args)) ?? null;
    const share = textOf(args.share, '').trim();
    const known = share === '' ? noted : null;
    const terms = {
      ...known,
      share: share || noted?.share || model.preferences.defaultShare,
      ...termsOf(args)
    };
    const project =
      terms.project ?? noted?.project ?? model.preferences.defaultProject;
    return project ? { ...terms, project } : terms;
  };

  commands.addCommand(CommandIDs.attach, {
    label: args => {
      const terms = attachTerms(args);
      const amount =
        (terms.count ?? 1) > 1
          ? trans.__('%1 × %2', terms.count ?? 1, terms.share)
          : terms.share;
      return textOf(args.project, '')
        ? trans.__('Attach %1 GPU for %2', amount, textOf(args.project, ''))
        : trans.__('Attach %1 GPU', amount);
    },
    caption: trans.__('Give the kernel a share of a GPU until it is detached'),
    icon: gpuIcon,
    describedBy: kernelSchema({ share: SHARE, ...TERMS, wait: WAIT }),
    isEnabled: args =>
      actions.kernelOf(args) !== null &&
      actions.idle(args) &&
      !holds(actions.stateOf(args)) &&
      actions.stateOf(args)?.state !== 'queued',
    execute: args =>
      actions.act(args, async kernelId => {
        const terms = attachTerms(args);
        refuseBadShare(terms.share, trans);
        const wait = numberOf(args.wait);
        await model.attach(
          kernelId,
          wait === undefined ? terms : { ...terms, wait }
        );
        notebooks?.remember(kernelId, terms);
        await idleChoice.attached(kernelId);
      })
  });

  commands.addCommand(CommandIDs.attachWith, {
    label: trans.__('Attach…'),
    caption: trans.__('Say how much of a GPU the kernel gets'),
    describedBy: kernelSchema(),
    isEnabled: args => commands.isEnabled(CommandIDs.attach, args),
    execute: async args => {
      const { share: usual, ...terms } = attachTerms(args);
      const asked = await InputDialog.getText({
        title: trans.__('How much of a GPU?'),
        label:
          trans.__('0.2, 20%, 2560MiB or 2.5GiB') + besideText(terms, trans),
        text: usual,
        okLabel: trans.__('Attach')
      });
      if (!asked.button.accept) {
        return;
      }
      const share = asked.value?.trim() ?? '';
      // Nothing would be the default.
      await (share === ''
        ? actions.act(args, async () => refuseBadShare(share, trans))
        : // Only how much is asked: the notebook's other terms stay.
          commands.execute(CommandIDs.attach, { ...args, ...terms, share }));
    }
  });

  commands.addCommand(CommandIDs.take, {
    label: args => trans.__('Take %1 GPU Now', textOf(args.share, '')),
    caption: trans.__('Take this instead of what the kernel waits for'),
    icon: gpuIcon,
    describedBy: kernelSchema({ share: SHARE, ...TERMS }),
    isEnabled: args =>
      actions.idle(args) &&
      actions.stateOf(args)?.state === 'queued' &&
      actions.stateOf(args)?.queue?.takes === true,
    execute: args =>
      actions.act(args, async kernelId => {
        const terms = { share: textOf(args.share, ''), ...termsOf(args) };
        refuseBadShare(terms.share, trans);
        // What a cell asks for stands in its first line, and is not the notebook's.
        const cell = actions.stateOf(args)?.queue?.cell === true;
        await model.take(kernelId, { ...terms, wait: 0 });
        if (!cell) {
          notebooks?.remember(kernelId, terms);
        }
      })
  });

  commands.addCommand(CommandIDs.detach, {
    label: trans.__('Detach GPU'),
    caption: trans.__(
      'Give the share back; variables and device memory are kept'
    ),
    icon: closeIcon,
    describedBy: kernelSchema({
      force: {
        type: 'boolean',
        description: 'Do not ask first when a cell is running.'
      }
    }),
    isEnabled: args => actions.idle(args) && holds(actions.stateOf(args)),
    execute: args =>
      actions.act(args, async kernelId => {
        const isBusy = () => model.kernel(kernelId)?.busy === true;
        if (isBusy()) {
          // The cell may have ended since the last poll; do not ask in vain.
          await model.refresh();
        }
        const busy = isBusy();
        const force = args.force === true;
        const kernel = model.kernel(kernelId);
        if (busy && !force && !(await confirmDetach(kernel, 'cell', trans))) {
          return;
        }
        const running = await model.detach(kernelId, busy || force).then(
          () => false,
          error => {
            // A cell has begun since.
            if (error instanceof GpuPoolError && error.reason === 'running') {
              return true;
            }
            throw error;
          }
        );
        const left = model.kernel(kernelId);
        if (
          !busy &&
          !force &&
          (running || holds(left)) &&
          (await confirmDetach(left, running ? 'cell' : 'code', trans))
        ) {
          await model.detach(kernelId, true);
        }
      })
  });

  commands.addCommand(CommandIDs.resize, {
    label: args =>
      textOf(args.share, '')
        ? trans.__('Resize to %1 GPU', textOf(args.share, ''))
        : trans.__('Resize GPU Share'),
    caption: trans.__('Change how much of the GPU the kernel holds'),
    describedBy: kernelSchema({ share: SHARE }),
    isEnabled: args => actions.idle(args) && holds(actions.stateOf(args)),
    execute: args =>
      actions.act(args, async kernelId => {
        const share = textOf(args.share, '').trim();
        refuseBadShare(share, trans);
        await model.resize(kernelId, share);
        const noted = notebooks?.of(kernelId);
        if (noted) {
          notebooks?.remember(kernelId, { ...noted, share });
        }
      })
  });

  commands.addCommand(CommandIDs.cancelQueue, {
    label: trans.__('Leave the GPU Queue'),
    caption: trans.__('Withdraw the request that waits for a GPU'),
    describedBy: kernelSchema(),
    isEnabled: args =>
      actions.idle(args) && actions.stateOf(args)?.state === 'queued',
    execute: args => actions.act(args, kernelId => model.cancelQueue(kernelId))
  });

  commands.addCommand(CommandIDs.refresh, {
    label: trans.__('Refresh GPU Pool'),
    caption: trans.__('Ask the GPU pool for its state now'),
    icon: refreshIcon,
    describedBy: plainSchema(),
    execute: () => model.refresh()
  });

  commands.addCommand(CommandIDs.openSidebar, {
    label: trans.__('Show GPU Pool'),
    caption: trans.__('Open the sidebar with devices, kernels and queue'),
    icon: gpuIcon,
    describedBy: plainSchema(),
    execute: () => {
      shell.activateById(SIDEBAR_ID);
      return focusFront();
    }
  });

  addReleaseCommands(actions);
  addResetCommand(actions);
  addStartPoolCommand(actions);

  const notify = () => {
    for (const id of Object.values(CommandIDs)) {
      if (commands.hasCommand(id)) {
        commands.notifyCommandChanged(id);
      }
    }
  };
  model.changed.connect(notify);
  model.preferencesChanged.connect(notify);
}

/** As often the page is drawn until the sidebar is there, at most. */
const MOST_FRAMES = 10;

/** The keyboard goes on in the sidebar: at the notebook in front, or else at the top. */
async function focusFront(): Promise<void> {
  for (let frame = 0; frame < MOST_FRAMES; frame += 1) {
    await new Promise(resolve => requestAnimationFrame(resolve));
    const sidebar = document.getElementById(SIDEBAR_ID);
    const home =
      sidebar?.querySelector<HTMLElement>(
        '[data-front=true] [data-focus-home]'
      ) ?? sidebar?.querySelector<HTMLElement>('[data-focus-home]');
    if (home) {
      home.focus();
      return;
    }
  }
}

/** Throws the sentence that says what is wrong with a share. */
function refuseBadShare(share: string, trans: TranslationBundle): void {
  const problem = checkShare(share, trans);
  if (problem !== null) {
    throw new Error(problem);
  }
}

/** A running cell, and code that outlives its cell, loses its GPU only when its owner says so. */
async function confirmDetach(
  kernel: GpuPool.IKernel | undefined,
  runs: 'cell' | 'code',
  trans: TranslationBundle
): Promise<boolean> {
  const work = longWork(kernel, trans);
  const longest =
    work === null
      ? ''
      : trans.__(
          ' %1 has been running for %2: it has some seconds to end, then it is stopped.',
          work.name,
          formatSpan(work.seconds)
        );
  const answer = await showDialog({
    title:
      runs === 'cell'
        ? trans.__('Detach the GPU from a running cell?')
        : trans.__('Detach the GPU from running code?'),
    body:
      (runs === 'cell'
        ? trans.__('A cell is running.')
        : trans.__(
            'Code of this kernel still uses the GPU, such as a thread.'
          )) +
      trans.__(
        ' GPU calls that it makes from now on will fail; variables and device memory are kept.'
      ) +
      longest,
    buttons: [
      Dialog.cancelButton(),
      Dialog.warnButton({ label: trans.__('Detach') })
    ]
  });
  return answer.button.accept;
}
