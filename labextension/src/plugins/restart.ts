import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import {
  ISessionContextDialogs,
  type ISessionContext
} from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ITranslator } from '@jupyterlab/translation';
import { IGpuPool, NAMESPACE } from '../model/tokens';
import { AttachAgain } from '../notebook/attachAgain';
import { NotebookTerms } from '../notebook/notebookTerms';
import { RestartHook } from '../notebook/restartHook';
import { ourWords } from './translation';

export const restartPlugin: JupyterFrontEndPlugin<void> = {
  id: `${NAMESPACE}:restart`,
  description:
    'Attaches a restarted kernel again before its cells run, if it was attached by hand.',
  autoStart: true,
  requires: [IGpuPool, ISessionContextDialogs],
  optional: [INotebookTracker, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    model: IGpuPool,
    dialogs: ISessionContext.IDialogs,
    tracker: INotebookTracker | null,
    translator: ITranslator | null
  ): void => {
    const trans = ourWords(translator);
    const again = new AttachAgain(model, tracker && new NotebookTerms(tracker));
    new RestartHook(app.commands, model, dialogs, again, trans);
  }
};
