import type { JupyterFrontEnd } from '@jupyterlab/application';
import { PageConfig } from '@jupyterlab/coreutils';
import type { IStateDB } from '@jupyterlab/statedb';
import { NAMESPACE, SIDEBAR_ID } from '../model/tokens';

const SHOWN = `${NAMESPACE}:panel-shown`;

/**
 * Shows the panel to whoever sees it first, where the server says so. Who has
 * closed it is not shown it again.
 */
export async function showPanelOnce(
  { restored, shell }: JupyterFrontEnd,
  store: IStateDB | null
): Promise<void> {
  if (PageConfig.getOption('gpupoolShowPanel') === 'true') {
    await restored;
    if (!(await store?.fetch(SHOWN))) {
      shell.activateById(SIDEBAR_ID);
      await store?.save(SHOWN, true);
    }
  }
}
