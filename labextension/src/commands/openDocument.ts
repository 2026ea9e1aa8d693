import { showErrorMessage } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';

/**
 * Opens the notebook of a kernel, and says so when that is not possible (it may have been moved or deleted).
 */
export async function openDocument(
  commands: CommandRegistry,
  path: string,
  trans: TranslationBundle
): Promise<void> {
  try {
    await commands.execute('docmanager:open', { path });
  } catch (error) {
    await showErrorMessage(
      trans.__('%1 cannot be opened', path),
      error instanceof Error ? error : String(error)
    );
  }
}
