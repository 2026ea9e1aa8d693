import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStateDB } from '@jupyterlab/statedb';
import { ITranslator } from '@jupyterlab/translation';
import { currentKernelId } from '../commands/kernelActions';
import { openDocument } from '../commands/openDocument';
import { GpuSidebar } from '../components/Sidebar';
import { Folds } from '../model/folds';
import { IGpuPool, NAMESPACE, SIDEBAR_ID } from '../model/tokens';
import { NotebookTerms } from '../notebook/notebookTerms';
import { showPanelOnce } from './firstLook';
import { FirstVisit } from './firstVisit';
import { ourWords } from './translation';

export const sidebarPlugin: JupyterFrontEndPlugin<void> = {
  id: `${NAMESPACE}:sidebar`,
  description: 'Shows devices, kernels and queue of the GPU pool in a sidebar.',
  autoStart: true,
  requires: [IGpuPool],
  optional: [
    ITranslator,
    ILayoutRestorer,
    IStateDB,
    INotebookTracker,
    ISettingRegistry
  ],
  activate: (
    app: JupyterFrontEnd,
    model: IGpuPool,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null,
    store: IStateDB | null,
    tracker: INotebookTracker | null,
    settings: ISettingRegistry | null
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
      front: () => currentKernelId(shell),
      introduction: settings ? new FirstVisit(model, settings) : undefined,
      terms: kernelId => notebooks?.of(kernelId) ?? null,
      open: path => void openDocument(commands, path, trans)
    });
    // Another document comes to the front, or gets another kernel.
    shell.currentChanged?.connect(() => sidebar.redraw());
    tracker?.currentChanged.connect(() => sidebar.redraw());
    shell.add(sidebar, 'left', { rank: 450, type: 'GPU pool' });
    restorer?.add(sidebar, SIDEBAR_ID);
    void showPanelOnce(app, store);
  }
};
