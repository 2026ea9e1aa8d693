import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator } from '@jupyterlab/translation';
import { addCommands, CommandIDs } from '../commands/commands';
import { GpuPoolModel } from '../model/model';
import { IGpuPool, NAMESPACE } from '../model/tokens';
import { NotebookTerms } from '../notebook/notebookTerms';
import { ourWords } from './translation';

/** Provides the model and the commands; everything else builds on this. */
export const modelPlugin: JupyterFrontEndPlugin<IGpuPool> = {
  id: `${NAMESPACE}:plugin`,
  description: 'Follows the GPU pool and offers commands to attach and detach.',
  autoStart: true,
  provides: IGpuPool,
  optional: [ITranslator, ISettingRegistry, ICommandPalette, INotebookTracker],
  activate: (
    app: JupyterFrontEnd,
    translator: ITranslator | null,
    settings: ISettingRegistry | null,
    palette: ICommandPalette | null,
    tracker: INotebookTracker | null
  ): IGpuPool => {
    const trans = ourWords(translator);
    const model = new GpuPoolModel({ serviceManager: app.serviceManager });
    addCommands(app, model, trans, tracker && new NotebookTerms(tracker));

    if (settings) {
      settings
        .load(modelPlugin.id)
        .then(loaded => {
          model.applySettings(loaded);
          loaded.changed.connect(() => model.applySettings(loaded));
        })
        .catch(reason => {
          console.error('The settings of the GPU pool were not read', reason);
        });
    }
    if (palette) {
      const category = trans.__('GPU');
      for (const command of [
        CommandIDs.openSidebar,
        CommandIDs.attach,
        CommandIDs.detach,
        CommandIDs.keep,
        CommandIDs.undo,
        CommandIDs.cancelQueue,
        CommandIDs.menu,
        CommandIDs.releaseAll,
        CommandIDs.refresh
      ]) {
        palette.addItem({ command, category });
      }
    }
    return model;
  }
};
