import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { INotebookTracker, type NotebookPanel } from '@jupyterlab/notebook';
import { NAMESPACE } from '../model/tokens';
import { USAGE_MIME_TYPE, UsageOutput } from '../notebook/usageOutput';

/** Before the widget of the same output, which has the rank -10 in each notebook. */
const RANK = -20;

export const usageOutputPlugin: JupyterFrontEndPlugin<void> = {
  id: `${NAMESPACE}:usage-output`,
  description: 'Shows GpuUsage in a notebook that was opened again.',
  autoStart: true,
  requires: [INotebookTracker],
  activate: (app: JupyterFrontEnd, notebooks: INotebookTracker): void => {
    const { serverSettings } = app.serviceManager;
    const follow = ({ content, sessionContext }: NotebookPanel) =>
      content.rendermime.addFactory(
        {
          // Only text is put into the page, and buttons of ours, so notebooks need not be trusted.
          safe: true,
          mimeTypes: [USAGE_MIME_TYPE],
          createRenderer: () => new UsageOutput(serverSettings, sessionContext)
        },
        RANK
      );
    notebooks.forEach(follow);
    notebooks.widgetAdded.connect((_, panel) => follow(panel));
  }
};
