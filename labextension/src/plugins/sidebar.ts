import {
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { GpuSidebar } from '../components/Sidebar';
import { openDocument } from '../openDocument';
import { IGpuPool, NAMESPACE, SIDEBAR_ID } from '../tokens';

export const sidebarPlugin: JupyterFrontEndPlugin<void> = {
  id: `${NAMESPACE}:sidebar`,
  description: 'Shows devices, kernels and queue of the GPU pool in a sidebar.',
  autoStart: true,
  requires: [IGpuPool],
  optional: [ITranslator, ILayoutRestorer],
  activate: (
    app: JupyterFrontEnd,
    model: IGpuPool,
    translator: ITranslator | null,
    restorer: ILayoutRestorer | null
  ): void => {
    const trans = (translator ?? nullTranslator).load('jupyter_gpupool');
    const { commands, shell } = app;
    const sidebar = new GpuSidebar({
      model,
      commands,
      trans,
      open: path => void openDocument(commands, path, trans)
    });
    shell.add(sidebar, 'left', { rank: 450, type: 'GPU pool' });
    restorer?.add(sidebar, SIDEBAR_ID);
  }
};
