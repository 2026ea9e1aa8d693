import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification, type ISessionContext } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import type { GpuPool } from '../api/types';
import type { IGpuPool } from '../model/tokens';

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

/** What all commands about a kernel share: which kernel, and how to fail. */
export class KernelActions {
  constructor(
    readonly app: JupyterFrontEnd,
    readonly model: IGpuPool,
    readonly trans: TranslationBundle
  ) {}

  kernelOf(args: ReadonlyPartialJSONObject): string | null {
    return typeof args.kernelId === 'string'
      ? args.kernelId
      : currentKernelId(this.app.shell);
  }

  stateOf(args: ReadonlyPartialJSONObject): GpuPool.IKernel | undefined {
    return this.model.kernel(this.kernelOf(args));
  }

  /** Whether no request of this page for the kernel is under way. */
  idle(args: ReadonlyPartialJSONObject): boolean {
    return !this.model.state.pending.has(this.kernelOf(args) ?? '');
  }

  /** Runs an action on a kernel; says what went wrong unless told not to. */
  async act(
    args: ReadonlyPartialJSONObject,
    action: (kernelId: string) => Promise<void>
  ): Promise<void> {
    const kernelId = this.kernelOf(args);
    if (kernelId === null) {
      // `execute` does not ask `isEnabled`, so this can be reached.
      Notification.error(
        this.trans.__('There is no running kernel to attach a GPU to.'),
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
  }
}
