import type { JupyterFrontEndPlugin } from '@jupyterlab/application';
import { cellResultPlugin } from './plugins/cellResult';
import { closedNotebookPlugin } from './plugins/closedNotebook';
import { dashboardPlugin } from './plugins/dashboard';
import { modelPlugin } from './plugins/model';
import { notificationsPlugin } from './plugins/notifications';
import { restartPlugin } from './plugins/restart';
import { runningPlugin } from './plugins/running';
import { sidebarPlugin } from './plugins/sidebar';
import { statusPlugin } from './plugins/status';
import { toolbarPlugin } from './plugins/toolbar';
import { usageOutputPlugin } from './plugins/usageOutput';

export * from './api/reasons';
export * from './api/types';
export * from './model/tokens';

/** One concern each, so that a site can switch off any of them by its id. */
const plugins: JupyterFrontEndPlugin<unknown>[] = [
  modelPlugin,
  sidebarPlugin,
  dashboardPlugin,
  toolbarPlugin,
  statusPlugin,
  runningPlugin,
  notificationsPlugin,
  closedNotebookPlugin,
  restartPlugin,
  cellResultPlugin,
  usageOutputPlugin
];

export default plugins;
