import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ITranslator } from '@jupyterlab/translation';
import { IGpuPool, NAMESPACE } from '../model/tokens';
import { ClosedNotebooks } from '../notebook/closedNotebooks';
import { ourWords } from './translation';

export const closedNotebookPlugin: JupyterFrontEndPlugin<void> = {
  id: `${NAMESPACE}:closed-notebook`,
  description: 'Says that the kernel of a notebook that was closed has a GPU.',
  autoStart: true,
  requires: [IGpuPool, INotebookTracker],
  optional: [ITranslator],
  activate: (
    app: JupyterFrontEnd,
    model: IGpuPool,
    tracker: INotebookTracker,
    translator: ITranslator | null
  ): void => {
    const closed = new ClosedNotebooks(
      model,
      app.commands,
      ourWords(translator)
    );
    tracker.widgetAdded.connect((_, panel) => closed.follow(panel));
  }
};
