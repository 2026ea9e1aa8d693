import type { JupyterFrontEndPlugin } from '@jupyterlab/application';
import { dashboardPlugin } from './plugins/dashboard';
import { modelPlugin } from './plugins/model';
import { notificationsPlugin } from './plugins/notifications';
import { runningPlugin } from './plugins/running';
import { sidebarPlugin } from './plugins/sidebar';
import { statusPlugin } from './plugins/status';
import { toolbarPlugin } from './plugins/toolbar';

export * from './tokens';

/** One concern each, so that a site can switch off any of them by its id. */
const plugins: JupyterFrontEndPlugin<unknown>[] = [
  modelPlugin,
  sidebarPlugin,
  dashboardPlugin,
  toolbarPlugin,
  statusPlugin,
  runningPlugin,
  notificationsPlugin
];

export default plugins;
