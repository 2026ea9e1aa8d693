import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { TranslationBundle } from '@jupyterlab/translation';
import { StartPoolApi } from '../api/startPool';
import type { IGpuPool } from '../model/tokens';
import { gpuIcon } from '../ui/icons';
import { plainSchema } from './arguments';
import { CommandIDs } from './ids';

/** The command that starts a pool where the Jupyter server has none. */
export function addStartPoolCommand(
  app: JupyterFrontEnd,
  model: IGpuPool,
  trans: TranslationBundle
): void {
  const api = new StartPoolApi(app.serviceManager.serverSettings);
  app.commands.addCommand(CommandIDs.startPool, {
    label: trans.__('Start a GPU Pool Here'),
    caption: trans.__(
      'Start a pool with the GPUs of the machine of this Jupyter server'
    ),
    icon: gpuIcon,
    describedBy: plainSchema(),
    isEnabled: () => model.state.pool?.startable === true,
    execute: async () => {
      await api.start();
      await model.refresh();
      await model.refreshDefaults();
    }
  });
}
