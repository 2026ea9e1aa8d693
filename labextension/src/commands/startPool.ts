import { StartPoolApi } from '../api/startPool';
import { gpuIcon } from '../ui/icons';
import { plainSchema } from './arguments';
import { CommandIDs } from './ids';
import type { KernelActions } from './kernelActions';
import { mayStart } from '../model/mayStart';

/** The command that starts a pool where the Jupyter server has none. */
export function addStartPoolCommand({
  app,
  model,
  trans
}: KernelActions): void {
  app.commands.addCommand(CommandIDs.startPool, {
    label: trans.__('Start a GPU Pool Here'),
    caption: trans.__(
      'Start a pool on the Jupyter server’s machine, which ends with the server'
    ),
    icon: gpuIcon,
    describedBy: plainSchema(),
    isEnabled: () => mayStart(model.state.pool),
    execute: async () => {
      await new StartPoolApi(app.serviceManager.serverSettings).start();
      await model.refresh();
      await model.refreshDefaults();
    }
  });
}
