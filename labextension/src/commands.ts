import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';
import type { ISessionContext } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { closeIcon, refreshIcon } from '@jupyterlab/ui-components';
import type {
  ReadonlyJSONObject,
  ReadonlyPartialJSONObject
} from '@lumino/coreutils';
import { gpuIcon } from './icons';
import { holds } from './reduce';
import { SIDEBAR_ID, type GpuPool, type IGpuPool } from './tokens';
import { checkShare } from './words';

export namespace CommandIDs {
  export const attach = 'gpupool:attach';
  export const detach = 'gpupool:detach';
  export const keep = 'gpupool:keep';
  export const resize = 'gpupool:resize';
  export const cancelQueue = 'gpupool:cancel-queue';
  export const take = 'gpupool:take';
  export const openSidebar = 'gpupool:open-sidebar';
  export const refresh = 'gpupool:refresh';
}

/** Arguments that all commands about a kernel take. */
const KERNEL_ID = {
  type: 'string',
  description: 'Id of the kernel; the current document’s kernel if left out.'
} as const;

const QUIET = {
  type: 'boolean',
  description: 'Do not show a notification on failure; the caller shows it.'
} as const;

const SHARE = {
  type: 'string',
  description: 'A share of one GPU: 0.2, 20%, 2560MiB or 2.5GiB.'
} as const;

/** Of a request, beside how much. */
const TERMS = {
  count: { type: 'integer', minimum: 1 },
  nodes: { type: 'string', enum: ['auto', 'one', 'any'] },
  strict: { type: 'boolean' },
  project: { type: 'string' },
  kind: { type: 'string' },
  priority: { type: 'integer' },
  filters: { type: 'array', items: { type: 'string' } },
  node_pools: { type: 'array', items: { type: 'string' } }
} as const;

function argumentsSchema(properties: ReadonlyJSONObject): {
  args: ReadonlyJSONObject;
} {
  return {
    args: {
      type: 'object',
      properties: { kernelId: KERNEL_ID, quiet: QUIET, ...properties }
    }
  };
}

/**
 * The kernel of the document in front, in JupyterLab and Notebook alike:
 * notebooks and consoles both carry a session context.
 */
export function currentKernelId(shell: JupyterFrontEnd.IShell): string | null {
  const widget = shell.currentWidget as {
    sessionContext?: ISessionContext;
  } | null;
  return widget?.sessionContext?.session?.kernel?.id ?? null;
}

/** Registers the commands; every button, menu and notification calls these. */
export function addCommands(
  app: JupyterFrontEnd,
  model: IGpuPool,
  trans: TranslationBundle
): void {
  const { commands, shell } = app;

  const kernelOf = (args: ReadonlyPartialJSONObject): string | null =>
    typeof args.kernelId === 'string' ? args.kernelId : currentKernelId(shell);
  const stateOf = (args: ReadonlyPartialJSONObject) =>
    model.kernel(kernelOf(args));
  const idle = (args: ReadonlyPartialJSONObject): boolean =>
    !model.state.pending.has(kernelOf(args) ?? '');

  /** Runs an action on a kernel; says what went wrong unless told not to. */
  const act = async (
    args: ReadonlyPartialJSONObject,
    action: (kernelId: string) => Promise<void>
  ): Promise<void> => {
    const kernelId = kernelOf(args);
    if (kernelId === null) {
      // `execute` does not ask `isEnabled`, so this can be reached.
      Notification.error(
        trans.__('There is no running kernel to attach a GPU to.'),
        { autoClose: 5000 }
      );
      return;
    }
    try {
      await action(kernelId);
    } catch (error) {
      if (args.quiet !== true) {
        const message = error instanceof Error ? error.message : String(error);
        Notification.error(message, { autoClose: 10000 });
      }
    }
  };

  commands.addCommand(CommandIDs.attach, {
    label: args =>
      trans.__(
        'Attach %1 GPU',
        textOf(args.share, model.preferences.defaultShare)
      ),
    caption: trans.__('Give the kernel a share of a GPU until it is detached'),
    icon: gpuIcon,
    describedBy: argumentsSchema({
      share: SHARE,
      ...TERMS,
      wait: {
        type: 'number',
        description: 'Seconds to wait in the queue.'
      }
    }),
    isEnabled: args =>
      kernelOf(args) !== null &&
      idle(args) &&
      !holds(stateOf(args)) &&
      stateOf(args)?.state !== 'queued',
    execute: args =>
      act(args, kernelId => {
        const share = textOf(args.share, model.preferences.defaultShare);
        const problem = checkShare(share, trans);
        if (problem !== null) {
          throw new Error(problem);
        }
        return model.attach(kernelId, {
          ...termsOf(args),
          share,
          project:
            textOf(args.project, '') ||
            model.preferences.defaultProject ||
            undefined,
          wait: numberOf(args.wait)
        });
      })
  });

  commands.addCommand(CommandIDs.take, {
    label: args => trans.__('Take %1 GPU Now', textOf(args.share, '')),
    caption: trans.__('Take this instead of what the kernel waits for'),
    icon: gpuIcon,
    describedBy: argumentsSchema({ share: SHARE, ...TERMS }),
    isEnabled: args =>
      idle(args) &&
      stateOf(args)?.state === 'queued' &&
      stateOf(args)?.queue?.takes === true,
    execute: args =>
      act(args, kernelId =>
        model.take(kernelId, {
          ...termsOf(args),
          share: textOf(args.share, ''),
          wait: 0
        })
      )
  });

  commands.addCommand(CommandIDs.detach, {
    label: trans.__('Detach GPU'),
    caption: trans.__(
      'Give the share back; variables and device memory are kept'
    ),
    icon: closeIcon,
    describedBy: argumentsSchema({
      force: {
        type: 'boolean',
        description: 'Do not ask first when a cell is running.'
      }
    }),
    isEnabled: args => idle(args) && holds(stateOf(args)),
    execute: args =>
      act(args, async kernelId => {
        const isBusy = () => model.kernel(kernelId)?.busy === true;
        if (isBusy()) {
          // The cell may have ended since the last poll; do not ask in vain.
          await model.refresh();
        }
        const busy = isBusy();
        if (!busy || args.force === true || (await confirmDetach(trans))) {
          await model.detach(kernelId, busy || args.force === true);
        }
      })
  });

  commands.addCommand(CommandIDs.keep, {
    label: trans.__('Keep GPU'),
    caption: trans.__('Do not give the idle share back yet'),
    describedBy: argumentsSchema({
      minutes: { type: 'number', minimum: 1 }
    }),
    isEnabled: args => idle(args) && holds(stateOf(args)),
    execute: args =>
      act(args, kernelId => model.keep(kernelId, numberOf(args.minutes)))
  });

  commands.addCommand(CommandIDs.resize, {
    label: trans.__('Resize GPU Share'),
    caption: trans.__('Change how much of the GPU the kernel holds'),
    describedBy: argumentsSchema({ share: SHARE }),
    isEnabled: args => idle(args) && holds(stateOf(args)),
    execute: args =>
      act(args, kernelId => {
        const share = textOf(args.share, '');
        const problem = checkShare(share, trans);
        if (problem !== null) {
          throw new Error(problem);
        }
        return model.resize(kernelId, share);
      })
  });

  commands.addCommand(CommandIDs.cancelQueue, {
    label: trans.__('Leave the GPU Queue'),
    caption: trans.__('Withdraw the request that waits for a GPU'),
    describedBy: argumentsSchema({}),
    isEnabled: args => idle(args) && stateOf(args)?.state === 'queued',
    execute: args => act(args, kernelId => model.cancelQueue(kernelId))
  });

  commands.addCommand(CommandIDs.refresh, {
    label: trans.__('Refresh GPU Pool'),
    caption: trans.__('Ask the GPU pool for its state now'),
    icon: refreshIcon,
    describedBy: { args: { type: 'object', properties: {} } },
    execute: () => model.refresh()
  });

  commands.addCommand(CommandIDs.openSidebar, {
    label: trans.__('Show GPU Pool'),
    caption: trans.__('Open the sidebar with devices, kernels and queue'),
    icon: gpuIcon,
    describedBy: { args: { type: 'object', properties: {} } },
    execute: () => shell.activateById(SIDEBAR_ID)
  });

  const notify = () => {
    for (const id of [
      CommandIDs.attach,
      CommandIDs.detach,
      CommandIDs.keep,
      CommandIDs.resize,
      CommandIDs.cancelQueue,
      CommandIDs.take
    ]) {
      commands.notifyCommandChanged(id);
    }
  };
  model.changed.connect(notify);
  model.preferencesChanged.connect(notify);
}

/** A running cell loses its GPU only when its owner says so. */
async function confirmDetach(trans: TranslationBundle): Promise<boolean> {
  const answer = await showDialog({
    title: trans.__('Detach the GPU from a running cell?'),
    body: trans.__(
      'A cell is running. GPU calls that it makes from now on will fail; variables and device memory are kept.'
    ),
    buttons: [
      Dialog.cancelButton(),
      Dialog.warnButton({ label: trans.__('Detach') })
    ]
  });
  return answer.button.accept;
}

function textOf(value: unknown, otherwise: string): string {
  return typeof value === 'string' ? value : otherwise;
}

function termsOf(
  args: ReadonlyPartialJSONObject
): Omit<GpuPool.IAttachOptions, 'share'> {
  const texts = (value: unknown): string[] | undefined =>
    Array.isArray(value) ? value.map(String) : undefined;
  const nodes = textOf(args.nodes, '');
  return {
    count: numberOf(args.count),
    nodes:
      nodes === 'auto' || nodes === 'one' || nodes === 'any'
        ? nodes
        : undefined,
    strict: args.strict === true ? true : undefined,
    project: textOf(args.project, '') || undefined,
    kind: textOf(args.kind, '') || undefined,
    priority: numberOf(args.priority),
    filters: texts(args.filters),
    node_pools: texts(args.node_pools)
  };
}

function numberOf(value: unknown): number | undefined {
  return typeof value === 'number' ? value : undefined;
}
