import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IStateDB } from '@jupyterlab/statedb';
import { ITranslator } from '@jupyterlab/translation';
import { openDocument } from '../commands/openDocument';
import { GpuSidebar } from '../components/Sidebar';
import { Folds } from '../model/folds';
import { IGpuPool, NAMESPACE, SIDEBAR_ID } from '../model/tokens';
import { NotebookTerms } from '../notebook/notebookTerms';
import { showPanelOnce } from './firstLook';
import { ourWords } from './translation';

export const sidebarPlugin: JupyterFrontEndPlugin<void> = {
  id: `${NAMESPACE}:sidebar`,
  description: 'Shows devices, kernels and queue of the GPU pool in a sidebar.',
  autoStart: true,
  requires: [IGpuPool],
  optional: [ITranslator, ILayoutRestorer, IStateDB, INotebookTracker],
  activate: (
    app: JupyterFrontEnd,
    model: IGpuPool,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null,
    store: IStateDB | null,
    tracker: INotebookTracker | null
  ): void => {
    const trans = ourWords(translator);
    const { commands, shell } = app;
    const folds = new Folds(store);
    folds.restore().catch(reason => {
      console.error('The layout of the GPU sidebar was not read', reason);
    });
    const notebooks = tracker && new NotebookTerms(tracker);
    const sidebar = new GpuSidebar({
      model,
      commands,
      trans,
      folds,
      terms: kernelId => notebooks?.of(kernelId) ?? null,
      open: path => void openDocument(commands, path, trans)
    });
    shell.add(sidebar, 'left', { rank: 450, type: 'GPU pool' });
    restorer?.add(sidebar, SIDEBAR_ID);
    void showPanelOnce(app, store);
  }
};
